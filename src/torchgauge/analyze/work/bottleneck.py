"""Bottleneck of a call: arithmetic, memory or overhead, and how sure that is."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from torchgauge import units
from torchgauge.analyze.work.lower_bound import TORCH_DEFAULT, Fp32, LowerBound, row_bounds, summed
from torchgauge.analyze.work.roof_quality import description, disturbed, of_each_call, reservations
from torchgauge.records.latency.latency import Latency, TrainingTime
from torchgauge.records.work.cost import OUTSIDE, Cost
from torchgauge.records.work.roofline import Bottleneck, Bound, Confidence, Roofs

# From this share of the measured time on, the roofs explain it: kernels rarely do better.
EXPLAINED = 0.5
WELL_EXPLAINED = 0.65
# One roof must bound so much of the explained time to be called the bottleneck without doubt.
DOMINANT = 0.75
BARELY_DOMINANT = 0.6
# Empty calls cost at least this share of a time that is overhead: a module's own Python, more
# arguments and more output make real calls a few times as dear.
PLAUSIBLE = 0.15
WELL_PLAUSIBLE = 0.3
# Seconds of an operator call where no machine was measured.
USUAL_DISPATCH = 4e-6
# A lower bound so far above the measured time says that the roofs are not those of the run.
IMPOSSIBLE = 1.25
MOST_UNKNOWN = 0.5
# Operator calls without a formula, from which on they may be what the roofs do not explain.
MANY_UNKNOWN = 0.1
# The phases of a training step whose work is counted, and the share of the step from which on
# they tell what bounds it: surely, or at all.
PASSES = ("forward", "loss", "backward")
MOSTLY_PASSES = 0.8
LEAST_PASSES = 0.5
# Below this share of the time the nearer roof tells nothing about the rest.
LEAST_EXPLAINED = 0.1

_LESS_SURE: dict[Confidence, Confidence] = {
    "clear": "likely",
    "likely": "unsure",
    "unsure": "unsure",
}
_ROOFS: dict[str, str] = {"compute": "arithmetic", "memory": "memory traffic"}


class _Times(NamedTuple):
    bound: LowerBound
    dispatch: float
    calls: int


def bottleneck(
    cost: Cost, latency: Latency, roofs: Roofs | None, *, fp32: Fp32 = TORCH_DEFAULT
) -> Bottleneck:
    """Return the bottleneck of a call of the median latency, with the times and the evidence.

    "compute" or "memory" where that roof's lower bound explains most of the time. "overhead" where
    neither does and the operator calls alone, each at the cost of an empty one, plausibly take the
    rest. Where they cannot, kernels are slow: the nearer roof is named, never as clear, and none
    where it explains less than a tenth. None as well where many operators are unknown and may take
    the rest, and where the machine evidently does more than was measured of it beside other work.
    Unknown operators, dtypes without a peak, roofs from a
    datasheet or measured beside other work, and an interval that reaches into another answer each
    make it less sure. `cost` and `latency` must be of the same call.
    """
    calls = sum(row.calls for row in cost.rows)
    missing = _missing(cost, latency, roofs, calls)
    if roofs is None or missing:
        return Bottleneck(kind=None, confidence="unsure", evidence=(missing,))
    bound = summed(row_bounds(cost, roofs, fp32))
    if _contradicted(bound, latency.median, roofs):
        return Bottleneck(
            kind=None,
            confidence="unsure",
            evidence=(_contradiction(bound, latency), *reservations(roofs)),
        )
    times = _Times(bound, calls * (roofs.dispatch or USUAL_DISPATCH), calls)
    kind, confidence = _kind(times, latency.median)
    if _undecided(cost, bound.time / latency.median):
        kind = None
    for _ in range(_doubts(times, latency, kind, roofs)):
        confidence = _LESS_SURE[confidence]
    return Bottleneck(
        kind=kind,
        confidence=confidence if kind else "unsure",
        evidence=(*_shares(times, latency.median, roofs), *_reservations(cost, times, roofs)),
        compute_time=bound.compute,
        memory_time=bound.memory,
        unexplained=max(0.0, latency.median - bound.time),
    )


def step_bottleneck(
    cost: Cost,
    latency: Latency,
    training: TrainingTime,
    roofs: Roofs | None,
    *,
    fp32: Fp32 = TORCH_DEFAULT,
) -> Bottleneck:
    """Return the bottleneck of a training step: that of its forward and backward pass.

    Their work is counted, the optimizer's is not: `cost` is of the passes, `latency` of the whole
    step, and `training` says which share of it they take. Where that is less than `LEAST_PASSES`
    nothing is said of the step, and below `MOSTLY_PASSES` it is less sure.
    """
    share = sum(phase.share for phase in training.phases if phase.name in PASSES)
    passes = bottleneck(cost, _part(latency, training.step * share), roofs, fp32=fp32)
    if passes.kind is None:
        return passes
    other_phases = ", ".join(
        f"{phase.name} {units.percent(phase.share)}"
        for phase in training.phases
        if phase.name not in PASSES and phase.share > 0
    )
    note = (
        f"This is of forward and backward pass, {units.percent(share)} of the step of "
        f"{units.time(training.step, 3)}"
        + (f"; the rest: {other_phases}." if other_phases else ".")
    )
    evidence = (*passes.evidence, note)
    if share < LEAST_PASSES:
        return msgspec.structs.replace(passes, kind=None, confidence="unsure", evidence=evidence)
    confidence = passes.confidence if share >= MOSTLY_PASSES else _LESS_SURE[passes.confidence]
    return msgspec.structs.replace(passes, confidence=confidence, evidence=evidence)


def _part(latency: Latency, seconds: float) -> Latency:
    """Return the latency of a part of the call, whose interval is as wide relative to it."""
    interval = latency.interval
    if interval is not None and latency.median > 0:
        factor = seconds / latency.median
        interval = msgspec.structs.replace(
            interval, low=interval.low * factor, high=interval.high * factor
        )
    return msgspec.structs.replace(latency, median=seconds, interval=interval)


def nearest(bound: LowerBound, measured: float, roofs: Roofs, calls: int) -> Bound | None:
    """Return the likely bottleneck of a part of a call, from its seconds and operator calls."""
    return _kind(_Times(bound, calls * (roofs.dispatch or USUAL_DISPATCH), calls), measured)[0]


def _missing(cost: Cost, latency: Latency, roofs: Roofs | None, calls: int) -> str:
    """Return why nothing can be said; empty where something can."""
    if of_each_call(cost, None) is None:
        return "Calls do other work each time: what was counted is not what was timed."
    if OUTSIDE in cost.unknown:
        return "The call ran no operator of torch: what it did, and where, is not known."
    if not calls or latency.median <= 0:
        return "No operator was counted, or the call took no time."
    if (cost.coverage or 0.0) < 1 - MOST_UNKNOWN:
        return f"{units.percent(1 - (cost.coverage or 0.0))} of the operator calls have no formula."
    if roofs is None or not roofs.peaks or not roofs.bandwidth:
        return (
            "Peak speed of this machine has not been measured: measure it once with "
            "`torchgauge profile TARGET --roofs`."
        )
    return ""


def _kind(times: _Times, measured: float) -> tuple[Bound | None, Confidence]:
    """Return the answer for one time, were every figure certain."""
    bound = times.bound
    nearer: Literal["compute", "memory"] = "compute" if bound.compute > bound.memory else "memory"
    dominance = max(bound.compute, bound.memory) / bound.time if bound.time else 0.0
    explained = bound.time / measured
    if explained >= EXPLAINED:
        if dominance < BARELY_DOMINANT or explained > IMPOSSIBLE:
            return nearer, "unsure"
        sure = dominance >= DOMINANT and explained >= WELL_EXPLAINED
        return nearer, "clear" if sure else "likely"
    plausible = times.dispatch / (measured - bound.time)
    if plausible >= PLAUSIBLE:
        sure = plausible >= WELL_PLAUSIBLE and explained <= 1 - WELL_EXPLAINED
        return "overhead", "clear" if sure else "likely"
    if explained < LEAST_EXPLAINED:
        return None, "unsure"
    sure = explained >= EXPLAINED / 2 and dominance >= DOMINANT
    return nearer, "likely" if sure else "unsure"


def contradicted(cost: Cost, seconds: float, roofs: Roofs, *, fp32: Fp32 = TORCH_DEFAULT) -> bool:
    """Return whether a call of `seconds` was faster than roofs of a busy machine allow.

    They tell nothing of it then: two threads that wait for a core each multiply a hundred times
    more slowly than they can.
    """
    return _contradicted(summed(row_bounds(cost, roofs, fp32)), seconds, roofs)


def _contradicted(bound: LowerBound, seconds: float, roofs: Roofs) -> bool:
    return disturbed(roofs) and bound.time > IMPOSSIBLE * seconds


def _contradiction(bound: LowerBound, latency: Latency) -> str:
    return (
        f"The call took {units.time(latency.median, 3)}, and at the roofs that are kept of this "
        f"machine it would take {units.time(bound.time, 3)} at least: they are far too low."
    )


def _undecided(cost: Cost, explained: float) -> bool:
    """Return whether unknown operators may take the unexplained time."""
    return 1 - (cost.coverage or 0.0) > MANY_UNKNOWN and explained < EXPLAINED


def _doubts(times: _Times, latency: Latency, kind: Bound | None, roofs: Roofs) -> int:
    """Return the number of reasons for doubt."""
    interval = latency.interval
    ends = () if interval is None else (interval.low, interval.high)
    wavers = any(end > 0 and _kind(times, end)[0] != kind for end in ends)
    doubted = roofs.source == "datasheet" or disturbed(roofs)
    return sum((times.bound.at_least, doubted, wavers))


def _shares(times: _Times, measured: float, roofs: Roofs) -> tuple[str, ...]:
    bound = times.bound
    remainder = max(0.0, measured - bound.time)
    parts = [
        f"Of {units.time(measured, 3)} measured, the roofs of {roofs.device} "
        f"({description(roofs)}) explain {units.time(bound.time, 3)} "
        f"({units.percent(bound.time / measured)}).",
        *(
            f"Operators bound by {_ROOFS[name]} take at least {units.time(time, 3)} "
            f"({units.percent(time / measured)})."
            for name, time in (("compute", bound.compute), ("memory", bound.memory))
            if time > 0
        ),
    ]
    if remainder > 0:
        dispatch_time = roofs.dispatch or USUAL_DISPATCH
        how = "an empty one takes here" if roofs.dispatch else "an empty one usually takes"
        share = units.percent(remainder / measured)
        parts.append(
            f"{units.time(remainder, 3)} ({share}) is explained by neither: "
            f"{times.calls} operator calls at the {units.time(dispatch_time, 3)} that {how} "
            f"are {units.time(times.dispatch, 3)}."
        )
    return tuple(parts)


def _reservations(cost: Cost, times: _Times, roofs: Roofs) -> tuple[str, ...]:
    notes = []
    if cost.unknown:
        names = ", ".join(f"{name} ×{calls}" for name, calls in list(cost.unknown.items())[:3])
        notes.append(f"Operators without a formula are in no bound: {names}.")
    elif times.bound.at_least:
        dtypes = sorted({row.dtype for row in cost.rows if roofs.peak(row.dtype) is None})
        notes.append(f"No peak is known for {', '.join(dtypes)}: the bound is too low.")
    return (*notes, *reservations(roofs))
