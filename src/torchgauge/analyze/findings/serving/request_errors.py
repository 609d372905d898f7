"""Requests without a whole answer, by what became of them."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding
from torchgauge.records.serving.requests import Fate

SERIOUS = 0.01  # share of the requests
_REMEDIES: dict[Fate, str] = {
    "timeout": "Answers took longer than --timeout: a lower rate, or more time.",
    "refused": "Nothing took the connection: is the server running, and its backlog long enough?",
    "reset": "The server closed connections: look for restarts and limits in its log.",
    "status": "The server answered with errors: look into its log at these times.",
    "protocol": "The answers are not of this protocol: is --api right?",
    "stream": "Streams ended early: look into the server's log, and for proxies with timeouts.",
    "tls": "No secure connection was made: check certificate and protocol.",
    "redirect": "Name the address that is redirected to, if it is yours to put under load.",
    "local": "This machine had no port, file descriptor or memory left: raise `ulimit -n`.",
    "failed": "The model raised: run it once by itself.",
    "unsent": "No slot in flight became free: raise --in-flight, or lower the rate.",
    "unfinished": "They were under way when the level ended: a longer --for.",
}


def _find(evidence: Evidence) -> Iterator[Finding]:
    # Ctrl-C ended an interrupted level, and with it what was under way.
    uninterrupted = [(name, level) for name, level in evidence.levels if not level.interrupted]
    worst = max(uninterrupted, key=lambda pair: pair[1].failed_share or 0.0, default=None)
    if worst is None or not worst[1].failed_share:
        return
    name, level = worst
    counts = {fate: count for fate, count in level.fates.items() if fate != "done" and count}
    ordered = sorted(counts, key=lambda fate: -counts[fate])
    listed = ", ".join(f"{counts[fate]:,} {fate}" for fate in ordered)
    remedy = _REMEDIES[ordered[0]]
    if ordered[0] == "unsent" and level.client is None and level.scenario == "offline":
        remedy = "The time was over before they were called: a longer --for, or fewer --requests."
    yield Finding(
        id="request-errors",
        severity="serious" if level.failed_share and level.failed_share > SERIOUS else "warning",
        title=f"{units.percent(level.failed_share)} of the requests had no whole answer at {name}",
        evidence=f"Of {level.count:,}: {listed}. They count as longer than all others.",
        remedy=remedy,
    )


RULE = Rule("request-errors", _find)
