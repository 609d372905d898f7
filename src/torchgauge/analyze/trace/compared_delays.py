"""Delays of the host in two traces, by cause."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.records.trace.host_delay import Cause, HostDelay
from torchgauge.records.trace.trace import RankTrace
from torchgauge.records.trace.trace_diff import DelayChange


def delay_changes(
    sides: tuple[RankTrace, RankTrace], steps: Sequence[int]
) -> tuple[DelayChange, ...]:
    """Return what delays cost on both sides by cause, what changed most first.

    Seconds of a step, of `steps` in all on each side.
    """
    device = all(side.times for side in sides)
    delays = [_by_cause(side) for side in sides]
    changes = []
    for cause in dict.fromkeys((*delays[0], *delays[1])):
        costs, names = [], []
        for side, count in zip(delays, steps, strict=True):
            of_cause = sorted(side.get(cause, []), key=lambda delay: -_cost(delay, device=device))
            costs.append(sum(_cost(delay, device=device) for delay in of_cause) / count)
            names.append(of_cause[0].name if of_cause else "")
        changes.append(
            DelayChange(
                cause=cause,
                baseline=costs[0],
                current=costs[1],
                baseline_name=names[0],
                current_name=names[1],
            )
        )
    return tuple(sorted(changes, key=lambda change: -abs(change.contribution)))


def _by_cause(side: RankTrace) -> dict[Cause, list[HostDelay]]:
    delays: dict[Cause, list[HostDelay]] = {}
    for delay in side.host_delays:
        delays.setdefault(delay.cause, []).append(delay)
    return delays


def _cost(delay: HostDelay, *, device: bool) -> float:
    return delay.cost if device else delay.time
