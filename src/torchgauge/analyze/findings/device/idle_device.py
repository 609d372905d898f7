"""A device with nothing to do: in a step, or for a cause other than the host in a trace."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    yield from _in_a_step(evidence)
    yield from _in_a_trace(evidence)


def _in_a_step(evidence: Evidence) -> Iterator[Finding]:
    uses = () if evidence.tree is None or evidence.rank is not None else evidence.tree.devices
    shares = [(use.idle / (use.busy + use.idle), use) for use in uses if use.busy + use.idle > 0]
    if not shares:
        return
    idle_share, use = max(shares, key=lambda pair: pair[0])
    yield Finding(
        id="idle-device",
        severity="info",
        title=f"GPU {use.device or 0} is idle {units.percent(idle_share)} of the step",
        evidence=f"{units.time(use.idle, 3)} without any kernel, {units.time(use.busy, 3)} with.",
        time=use.idle,
        view="tree",
    )


def _in_a_trace(evidence: Evidence) -> Iterator[Finding]:
    for device in evidence.device_times:
        time, window = device.breakdown.idle.other, device.breakdown.window
        if share(time, window) < NOTICEABLE:
            continue
        cause_text = "for a cause other than the host" if evidence.has_launches else ""
        yield RULE.costs(
            time,
            window,
            title=f"{evidence.called(device.device)} is idle for {units.percent(time / window)} of "
            f"the window {cause_text}".strip(),
            evidence=f"{units.time(time)} in pauses of more than 5 µs, before work that was "
            "launched already, or whose launch is not in the file.",
            remedy="See which streams wait for each other (events, stream priorities).",
            view="devices",
        )


RULE = Rule("idle-device", _find)
