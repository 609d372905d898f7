"""What delays of one cause cost: of a trace's window, or of a loop's step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, severity, share
from torchgauge.records.finding import Finding
from torchgauge.records.trace.host_delay import Cause


class Delay(NamedTuple):
    """All delays of one cause.

    Attributes:
        name: Of those that cost most.
        calls: How often, in all steps.
        time: Seconds of all.
        longest: Seconds of the longest.
        steps: The steps in which they were; 1 is the whole of a trace.
        cost: Seconds of a step, or of the window, in which a device waited for it; without a
            device those of the host. No more than
            a typical step's, which rare delays may exceed.
        share: The share of the window, or of the time of all these steps, that it costs.
        waits: Whether that is a device's time.
    """

    name: str
    calls: int
    time: float
    longest: float
    steps: int
    cost: float
    share: float
    waits: bool

    @property
    def text(self) -> str:
        """The evidence: "16 × cudaMalloc: 3.1 ms, the longest 1.2 ms"."""
        steps = f" in {self.steps:,} steps" if self.steps > 1 else ""
        longest = f", the longest {units.time(self.longest)}" if self.calls > 1 else ""
        return f"{self.calls:,} × {self.name}{steps}: {units.time(self.time)}{longest}"


def delayed_by(evidence: Evidence, cause: Cause) -> Delay | None:
    """Return what delays of this cause cost; None where the record has none."""
    record = evidence.rank or evidence.loop
    delays = [] if record is None else [d for d in record.host_delays if d.cause == cause]
    if not delays:
        return None
    cost = sum(delay.cost / delay.steps for delay in delays)
    duration = delays[0].duration or evidence.time
    return Delay(
        max(delays, key=lambda delay: delay.cost).name,
        sum(delay.calls for delay in delays),
        sum(delay.time for delay in delays),
        max(delay.longest for delay in delays),
        max(delay.steps for delay in delays),
        min(cost, evidence.time),
        share(sum(delay.cost for delay in delays), duration),
        any(delay.idle is not None for delay in delays),
    )


def title(evidence: Evidence, delay: Delay, subject: str) -> str:
    """Return the share of the step or window that a delay costs, in words."""
    scope = "window" if evidence.rank is not None else "step"
    percent = units.percent(delay.share)
    if delay.waits:
        return f"The device waits for {subject} {percent} of the {scope}"
    return f"{subject[0].upper()}{subject[1:]} takes {percent} of the {scope}"


def delay_rule(
    rule_id: str,
    cause: Cause,
    subject: str,
    *,
    remedy: str,
    source: str,
    explains: tuple[str, ...] = ("idle-host",),
) -> Rule:
    """Return the rule that delays of a cause are noticeable; `subject` is the cause in words."""

    def find(evidence: Evidence) -> Iterator[Finding]:
        delay = delayed_by(evidence, cause)
        if delay is not None and delay.share >= NOTICEABLE:
            yield Finding(
                id=rule_id,
                severity=severity(delay.share),
                title=title(evidence, delay, subject),
                evidence=f"{delay.text}.",
                remedy=remedy,
                time=delay.cost,
                worth=delay.cost,
                view="devices" if evidence.device_times else "tree",
            )

    return Rule(rule_id, find, source=source, explains=explains)
