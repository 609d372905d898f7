"""A finding as the first screen shows it, with the view and the row of the tree that detail it."""

from __future__ import annotations

from typing import Any

from torchgauge.records.finding import Finding
from torchgauge.report.content.findings import evidence_text
from torchgauge.report.page.page_shorter import short

# The kind of events that a finding is about; the timeline shows the longest of them.
_KINDS = {
    "exposed-communication": "communication",
    "collectives-on-compute-stream": "communication",
    "small-collectives": "communication",
    "straggler": "communication",
    "slow-collective": "communication",
    "pageable-copies": "copy",
    "exposed-copies": "copy",
    "small-copies": "copy",
    "idle-host": "idle: host",
    "launch-bound": "idle: host",
    "synchronisation": "idle: host",
    "input-pipeline": "idle: host",
    "idle-device": "idle: other",
}


def finding_entry(finding: Finding, view: str = "") -> dict[str, Any]:
    """Return a finding's entry; `view` is the view of a finding that names none."""
    return {
        "title": short(finding.title),
        "text": short(f"{evidence_text(finding)} {finding.remedy}".strip()),
        "view": finding.view or view,
        "node": finding.node,
        "search": finding.search,
        "kind": _KINDS.get(finding.id, ""),
    }
