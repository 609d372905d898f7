"""The first screen of a page: facts, figures, what stands out, and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torchgauge.records.finding import Finding
from torchgauge.records.record import MeasurementWarning
from torchgauge.report.content import sections
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


def first_screen(
    facts: Iterable[Sequence[str]],
    figures: Iterable[dict[str, str]],
    findings: Iterable[dict[str, Any]] = (),
    recorded_warnings: Iterable[MeasurementWarning] = (),
    *,
    created: str = "",
    bound: dict[str, Any] | None = None,
    phases: dict[str, Any] | None = None,
    complete: bool = True,
    interrupted: bool = False,
    notices: Iterable[str] | None = None,
) -> dict[str, Any]:
    """Return the first screen of a page.

    Args:
        facts: What was measured: label, text and what is less important behind it.
        figures: The headline figures, as `figure` makes them.
        findings: What stands out, as `finding_entry` or `finding` makes it.
        recorded_warnings: The warnings of the record.
        created: When the record was made.
        bound: What the call waits for.
        phases: The parts of a training step.
        complete: Whether no probe failed.
        interrupted: Whether Ctrl-C ended it.
        notices: Sentences above everything; None: the page has no room for any.
    """
    part = {} if notices is None else {"notices": list(notices)}
    return part | {
        "facts": [list(fact) for fact in facts],
        "created": created,
        "figures": list(figures),
        "bound": bound,
        "phases": phases,
        "findings": list(findings),
        "warnings": warnings(recorded_warnings),
        "complete": complete,
        "interrupted": interrupted,
    }


def figure(
    label: str, value: str, note: str = "", how: str = "measured", view: str = ""
) -> dict[str, str]:
    """Return a headline figure; `view` is the view with its details."""
    return {"label": label, "value": value, "note": note, "how": how, "view": view}


def finding(title: str, text: str, view: str) -> dict[str, Any]:
    """Return what stands out of a comparison or a history, and the view with its details."""
    return {"title": title, "text": text, "view": view, "node": None, "search": ""}


def finding_entry(record: Finding, view: str = "") -> dict[str, Any]:
    """Return a finding's entry; `view` is the view of a finding that names none."""
    return {
        "title": short(record.title),
        "text": short(f"{evidence_text(record)} {record.remedy}".strip()),
        "view": record.view or view,
        "node": record.node,
        "search": record.search,
        "kind": _KINDS.get(record.id, ""),
    }


def warnings(records: Iterable[MeasurementWarning]) -> list[dict[str, Any]]:
    """Return the warnings, those of failed probes first."""
    ordered = sorted(records, key=lambda warning: not warning.failed)
    return [
        {
            "id": warning.id,
            "probe": warning.probe,
            "failed": warning.failed,
            "text": sections.warning_text(warning),
        }
        for warning in ordered
    ]


def bar(
    name: str, total: int, amounts: Iterable[int], cells: list[str], note: str = "", level: int = 0
) -> dict[str, Any]:
    """Return a row of a chart of parts: `amounts` of the total, and further cells."""
    return {
        "name": name,
        "level": level,
        "whole": total,
        "amounts": list(amounts),
        "more": cells,
        "note": note,
        "option": None,
    }
