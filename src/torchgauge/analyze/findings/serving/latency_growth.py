"""The rate from which latency grows far more than the load."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

FACTOR = 2.0  # of the latency at the lowest rate


def _find(evidence: Evidence) -> Iterator[Finding]:
    for fraction in (0.99, 0.5):
        points = sorted(
            (level.arrivals.rate, percentile.value, name)
            for name, level in evidence.levels
            if level.arrivals.rate is not None
            and level.latency is not None
            and not (level.client is not None and level.client.limited)
            and (percentile := level.latency.percentile(fraction)) is not None
        )
        if len(points) > 1:
            break
    else:
        return
    _, lowest, lowest_name = points[0]
    for (before_rate, _, before), (rate, value, name) in itertools.pairwise(points):
        if rate > before_rate and value > FACTOR * lowest:
            yield Finding(
                id="latency-growth",
                severity="info",
                title=f"Latency is {value / lowest:.1f} times as long at {name}",
                evidence=f"p{100 * fraction:g} is {units.time(lowest, 3)} at {lowest_name} and "
                f"{units.time(value, 3)} at {name}: between {before} and {name} requests begin to "
                "wait for each other.",
                remedy="Plan for a rate below that" + _workers(evidence),
            )
            return


def _workers(evidence: Evidence) -> str:
    """Return how to plan workers, where the server's times are known."""
    if evidence.serving is None or evidence.serving.service_times is None:
        return "."
    return ": `torchgauge capacity RECORD` says how many workers keep each of them there."


RULE = Rule("latency-growth", _find)
