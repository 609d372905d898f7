"""A client that sent too late to be believed: it has measured itself."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    limited = [
        (name, level.client)
        for name, level in evidence.levels
        if level.client is not None and level.client.limited and not level.left_out
    ]
    if not limited:
        return
    name, client = limited[0]
    parts = []
    if client.lateness_p99 is not None:
        parts.append(f"1 % of the requests were sent {units.time(client.lateness_p99, 3)} late")
    if client.waiting is not None:
        parts.append(f"it waited for a core in {units.share(client.waiting)} of the time")
    if client.cpu is not None:
        parts.append(f"a request takes {units.time(client.cpu, 3)} of its CPU")
    other_levels = f", and at {len(limited) - 1} other levels" if len(limited) > 1 else ""
    yield Finding(
        id="client-limited",
        severity="serious",
        title=f"The client was too slow for {name}: its figures are its own",
        evidence=f"At {name} {', '.join(parts) or 'requests were sent late'}{other_levels}.",
        remedy="A lower rate, more cores for the client, or the server on another machine of "
        "yours; `torchgauge doctor` names what else takes its cores.",
    )


RULE = Rule("client-limited", _find)
