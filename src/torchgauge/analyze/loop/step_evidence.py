"""What is said of a loop's steps below its verdict."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.loop.step_shares import Shares, share_of
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.step_times import STEP_KINDS, StepKind, StepTimes
from torchgauge.visible import one_line

# Of all time without a core: less is not said.
NOTICEABLE = 0.05
# Steps without a profiler that take so much longer than the recorded ones are others.
MUCH_LONGER = 1.25
KIND_NAMES: dict[StepKind, str] = {
    "loading": "loading",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "waiting": "waiting for other processes",
    "collecting": "garbage collection",
    "outside": "outside the model",
}


def steps_by_kind(times: StepTimes, shares: Shares) -> str:
    """Return how long a step is, and what it is in, the largest first."""
    ordered = sorted(STEP_KINDS, key=lambda kind: -shares[kind][0])
    parts = [
        f"{KIND_NAMES[k]} {units.percent(shares[k][0])}" for k in ordered if shares[k][0] > 0.005
    ]
    mean = units.time(mean_duration(times), 3)
    return f"{mean} a step over {len(times.steps):,} undisturbed steps: {', '.join(parts)}."


def further_evidence(loop: Loop, times: StepTimes) -> Iterator[str]:
    """Yield the rates of a step, and how much of it the machine was busy with something else."""
    used = loop.utilization
    rates = []
    if used is not None:
        rates += [f"MFU {units.percent(used.mfu)}"] if used.mfu is not None else []
        if used.tokens_per_second:
            rates.append(units.rate(used.tokens_per_second, "tokens"))
        if used.samples_per_second:
            rates.append(units.rate(used.samples_per_second, "samples"))
    if rates:
        yield ", ".join(rates) + "."
    yield from delay_evidence(loop, "allocation")
    yield from _unlike_the_recorded(loop, times)
    share, _ = share_of(times.preempted or (), times.durations if times.preempted else ())
    if share > NOTICEABLE:
        yield (
            f"For {units.percent(share)} of all time the loop's thread had no core: other threads "
            "or programs ran. Shares leave this out."
        )


def _unlike_the_recorded(loop: Loop, times: StepTimes) -> Iterator[str]:
    """Yield that the steps took longer than the recorded ones, whose tree says what they are in."""
    recorded = None if loop.tree is None else loop.tree.root.time
    if recorded and mean_duration(times) > MUCH_LONGER * recorded:
        yield (
            f"The recorded steps took {units.time(recorded, 3)} each, less than the others: what a "
            "step is in may be of the recorded ones alone. Record later ones with --skip."
        )


def delay_evidence(loop: Loop, cause: str) -> tuple[str, ...]:
    """Return a line for each delay of the host that has this cause."""
    return tuple(
        f"{delay.calls:,} × {one_line(delay.name)} in {delay.steps:,} steps, the longest "
        f"{units.time(delay.longest, 3)}."
        for delay in loop.host_delays
        if delay.cause == cause
    )


def mean_duration(times: StepTimes) -> float:
    """Return the seconds of a step, the mean."""
    durations = times.durations
    return sum(durations) / len(durations)
