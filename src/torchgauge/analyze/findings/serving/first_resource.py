"""What the server ran out of at the lowest rate."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding
from torchgauge.records.serving.server_use import ServerUse

_REMEDIES = {
    "cpu": "More cores or workers; less work a request outside of the model.",
    "gpu": "More GPUs or a faster model; larger batches, if requests wait anyway.",
    "one core": "More processes or workers: threads that take turns, as of Python, use one core "
    "together.",
    "memory": "A smaller batch or cache, weights of fewer bytes, or more memory.",
}


def _find(evidence: Evidence) -> Iterator[Finding]:
    for name, level in evidence.levels:
        use = level.server
        if use is not None and use.first_saturated:
            resource = use.first_saturated
            noun = {"cpu": "its cores", "gpu": "the GPU", "memory": "its memory",
                    "one core": "one core in its busiest process"}  # fmt: skip
            yield Finding(
                id="first-resource",
                severity="info",
                title=f"The server reaches the limit of {noun.get(resource, resource)} at {name}",
                evidence=_amounts(use),
                remedy=_REMEDIES.get(resource, ""),
            )
            return


def _amounts(use: ServerUse) -> str:
    parts = []
    if use.cpu:
        cores = "" if use.cores is None else f" of {use.cores:g}"
        parts.append(f"{units.significant(statistics.fmean(use.cpu), 3)}{cores} cores in use")
    if use.busiest:
        busiest = units.significant(statistics.fmean(use.busiest), 3)
        parts.append(f"{busiest} by the busiest process or thread")
    if use.gpu:
        parts.append(f"the GPU busy in {units.share(statistics.fmean(use.gpu))} of the time")
    if use.memory:
        parts.append(f"{units.size(max(use.memory), 3)} of memory")
    if use.waiting:
        waiting = units.share(statistics.fmean(use.waiting))
        parts.append(f"threads waiting for a core in {waiting} of the time")
    text = ", ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else "By the system's counters."


RULE = Rule("first-resource", _find)
