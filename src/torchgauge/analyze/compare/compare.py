"""Compare two records: differences of their context, every metric, and the places that changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec

from torchgauge.analyze.compare.compare_locations import ComparedLocations, compare_locations
from torchgauge.analyze.compare.compared_memory import WITHIN_SPREAD, measured_differently, spread
from torchgauge.analyze.compare.differences import MODEL, differences, other_model, side_of
from torchgauge.analyze.gate.evidence import disturbed, few_samples
from torchgauge.analyze.gate.stored import HostNoise, corrected, min_repeats, uncalibrated, welch
from torchgauge.analyze.latency.metrics_by_process import by_process
from torchgauge.records.comparison import Change, Comparison, Difference, Judgement
from torchgauge.records.figures import figures
from torchgauge.records.headline.figure import Figure
from torchgauge.records.metric import METRICS, Metric
from torchgauge.records.profile import Profile
from torchgauge.records.record import Interval

# A change whose interval lies within it counts as none.
EQUIVALENCE_MARGIN = 0.03
# The metrics that a correction applies to.
CORRECTED = ("latency", "throughput")
_EXACT_FIRST = ("size", "count", "memory", "timing")


def compare(
    baseline: Profile,
    current: Profile,
    *,
    labels: tuple[str, str] = ("baseline", "current"),
    noise: HostNoise | None = None,
    across_models: bool = False,
) -> Comparison:
    """Return what changed between two records; exact metrics first.

    `noise` is what sessions of this host differ by; None stands for a host that was never
    calibrated, of which a floor of 20 % is assumed. Times are judged between the same machine,
    software and settings alone; elsewhere both are shown, without a change. Of two models nothing
    is judged unless they are compared on purpose (`across_models`).
    """
    differing = differences(
        (baseline.target, current.target), (baseline.environment, current.environment)
    )
    if not across_models:
        differing = (*other_model(baseline, current), *differing)
    noise = noise or uncalibrated()
    circumstances = _Circumstances(baseline, current, differing, noise)
    figures_by_name = (
        {figure.name: figure for figure in figures(baseline)},
        {figure.name: figure for figure in figures(current)},
    )
    changes = []
    of_calls = [metric for metric in METRICS.values() if not metric.of_load]
    for metric in sorted(of_calls, key=lambda metric: _EXACT_FIRST.index(metric.kind)):
        old, new = figures_by_name[0][metric.figure], figures_by_name[1][metric.figure]
        if metric.name == "p50" or (old.value is None and new.value is None):
            continue  # p50 is the latency
        if metric.kind == "timing":
            values = by_process(baseline, metric), by_process(current, metric)
            changes.append(_timed(metric, (old, new), values, circumstances))
        else:
            unknown = _unknown_work(baseline) or _unknown_work(current)
            changes.append(_exact(metric, (old, new), circumstances, at_least=unknown))
    is_same_work = not any(d.part == "target" and d.timing for d in differing)
    locations = (
        compare_locations(baseline, current, noise if circumstances.timing is None else None)
        if is_same_work
        else ComparedLocations()
    )
    return Comparison(
        baseline=side_of(baseline, labels[0], _processes(baseline)),
        current=side_of(current, labels[1], _processes(current)),
        differences=differing,
        changes=tuple(changes),
        layers=locations.layers,
        operators=locations.operators,
        kernels=locations.kernels,
        step_change=locations.step_change,
        remainder=locations.remaining_change,
        places_tested=locations.places_tested,
        warnings=locations.warnings,
    )


class _Circumstances:
    """The reasons why times, counted work or memory are not comparable; None where they are."""

    def __init__(
        self,
        baseline: Profile,
        current: Profile,
        differing: tuple[Difference, ...],
        noise: HostNoise,
    ) -> None:
        self.noise = noise
        self.sides = baseline.latency, current.latency
        self.ends = tuple(map(_end, (baseline, current)))
        self.timing = _not_comparable([difference for difference in differing if difference.timing])
        self.size = _not_comparable(
            [difference for difference in differing if difference.name == MODEL]
        )
        self.work = _not_comparable([difference for difference in differing if difference.work])
        memory_differences = [
            difference
            for difference in differing
            if difference.work or (difference.part == "target" and difference.timing)
        ]
        self.memory = _not_comparable(memory_differences) or measured_differently(baseline, current)
        self.memory_spread = spread(baseline, current)


def inputs_differ(differing: Sequence[Difference]) -> str | None:
    """Return why builds that ran in turn are not comparable, as their inputs differ; else None."""
    return _not_comparable(
        [difference for difference in differing if difference.part == "target" and difference.work]
    )


def _not_comparable(differing: list[Difference]) -> str | None:
    if not differing:
        return None
    names = ", ".join(difference.name for difference in differing[:4]) + (
        " …" if len(differing) > 4 else ""
    )
    single = len(differing) == 1 and not names.endswith("s")
    return f"not comparable: {names} differ{'s' if single else ''}"


def _unknown_work(profile: Profile) -> bool:
    return bool(profile.cost is not None and profile.cost.unknown)


def _exact(
    metric: Metric, sides: tuple[Figure, Figure], circumstances: _Circumstances, *, at_least: bool
) -> Change:
    old, new = sides
    against = {
        "size": circumstances.size,
        "count": circumstances.work,
        "memory": circumstances.memory,
    }[metric.kind]
    judgement: Judgement
    reason = against or ""
    if old.value is None or new.value is None:
        judgement, reason = "unknown", _one_side(old, circumstances)
    elif against is not None:
        judgement = "unknown"
    elif old.value == new.value:
        judgement = "same"
    elif metric.kind == "memory" and abs(
        new.value - old.value
    ) <= circumstances.memory_spread * min(old.value, new.value):
        judgement, reason = "same", WITHIN_SPREAD
    else:
        judgement = "worse" if new.value > old.value else "better"
    if metric.kind == "count" and at_least and not reason:
        reason = "at least: operators without a formula took part"
    return _change(metric, sides, judgement, method="exact", reason=reason)


def _timed(
    metric: Metric,
    sides: tuple[Figure, Figure],
    values: tuple[tuple[float, ...], tuple[float, ...]],
    circumstances: _Circumstances,
) -> Change:
    old, new = sides
    if old.value is None or new.value is None:
        return _change(metric, sides, "unknown", reason=_one_side(old, circumstances))
    if circumstances.timing is not None:
        return _change(metric, sides, "unknown", reason=circumstances.timing)
    processes = min(len(side) for side in values)
    if reason := few_samples(metric, circumstances.sides):
        return _change(metric, sides, "inconclusive", reason=reason)
    if change := _by_yardstick(metric, sides, values, circumstances.noise):
        return change
    is_short = processes < min_repeats(metric)
    change = (
        _by_floor(metric, sides, circumstances.noise, processes)
        if is_short
        else _by_welch(metric, sides, values, circumstances.noise)
    )
    against = disturbed(metric, circumstances.sides, circumstances.noise, few_processes=is_short)
    if against is None or change.judgement not in ("worse", "better"):
        return change
    return msgspec.structs.replace(change, judgement="inconclusive", reason=against)


def _by_welch(
    metric: Metric,
    sides: tuple[Figure, Figure],
    values: tuple[tuple[float, ...], tuple[float, ...]],
    noise: HostNoise,
) -> Change:
    """Judge a time by its processes and the spread of the host's sessions."""
    test = welch(*values, noise)
    if test is None:
        return _change(metric, sides, "unknown", reason="a process has no figure")
    repeats = "calls in a process each" if metric.of_calls else "processes"
    counts = f"{len(values[0])} and {len(values[1])} {repeats}"
    judgement = judged(metric, test.interval(noise.confidence))
    return _change(
        metric,
        sides,
        judgement,
        change=test.change,
        interval=test.interval(),
        method=f"Welch's t on {counts}, sessions as of {noise.source}",
        reason=_undecided(noise) if judgement == "inconclusive" else "",
    )


def _by_yardstick(
    metric: Metric,
    sides: tuple[Figure, Figure],
    values: tuple[tuple[float, ...], tuple[float, ...]],
    noise: HostNoise,
) -> Change | None:
    """Judge a time corrected for the machine's speed; None where there is no correction."""
    correction = noise.correction
    if correction is None or metric.name not in CORRECTED:
        return None
    times = values if metric.better == "lower" else (values[1], values[0])
    test = corrected(*times, correction)
    if test is None:
        return None
    if metric.better == "higher":
        test = dataclasses.replace(test, estimate=-test.estimate)
    interval = test.interval(noise.confidence)
    judgement = judged(metric, interval)
    measured = welch(*values, noise)
    return _change(
        metric,
        sides,
        judgement,
        change=None if measured is None else measured.change,
        interval=None if measured is None else measured.interval(),
        corrected=test.change,
        corrected_interval=interval,
        method="fastest processes and yardstick, fitted on "
        f"{correction.runs} earlier runs on this host",
        reason=_undecided(noise) if judgement == "inconclusive" else "",
    )


def _undecided(noise: HostNoise) -> str:
    confidence = f"{noise.confidence:.0%} " if noise.remembered else ""
    return f"the {confidence}interval holds both no change and a change".replace("%", " %")


def _by_floor(
    metric: Metric, sides: tuple[Figure, Figure], noise: HostNoise, processes: int
) -> Change:
    """Judge a time of few processes by the noise floor of the host."""
    change = _relative(*sides)
    floor = noise.floor
    floor_source = noise.source if noise.calibrated else "assumed: it was never calibrated"
    method = f"the host's noise floor of {floor:.0%}, {floor_source}"
    if change is not None and abs(change) > floor:
        worse = (change > 0) == (metric.better == "lower")
        return _change(metric, sides, "worse" if worse else "better", method=method)
    repeats = (
        f"call{'s' * (processes != 1)}" if metric.of_calls else "process" + "es" * (processes != 1)
    )
    reason = (
        f"{processes} {repeats} on a side, and the change is within the noise floor: "
        f"re-record both with {'--precise' if metric.of_calls else '--processes 10'}"
    )
    return _change(metric, sides, "inconclusive", method=method, reason=reason)


def judged(metric: Metric, interval: Interval) -> Judgement:
    """Return the judgement of a metric from the interval of current ÷ baseline − 1."""
    if interval.low > 0 or interval.high < 0:
        worse = (interval.low > 0) == (metric.better == "lower")
        return "worse" if worse else "better"
    return (
        "same"
        if interval.low >= -EQUIVALENCE_MARGIN and interval.high <= EQUIVALENCE_MARGIN
        else "inconclusive"
    )


def _change(
    metric: Metric,
    sides: tuple[Figure, Figure],
    judgement: Judgement,
    *,
    change: float | None = None,
    interval: Interval | None = None,
    corrected: float | None = None,
    corrected_interval: Interval | None = None,
    method: str = "",
    reason: str = "",
) -> Change:
    old, new = sides
    if change is None and judgement != "unknown":
        change = _relative(old, new)
    return Change(
        metric=metric.name,
        unit=new.unit,
        how=new.how,
        better=metric.better,
        exact=metric.kind != "timing",
        baseline=old.value,
        current=new.value,
        judgement=judgement,
        change=change,
        interval=interval,
        corrected=corrected,
        corrected_interval=corrected_interval,
        method=method,
        reason=reason,
    )


def _relative(old: Figure, new: Figure) -> float | None:
    if not old.value or new.value is None:
        return None
    return float(new.value / old.value - 1)


def _one_side(old: Figure, circumstances: _Circumstances) -> str:
    """Return which side has no figure; of calls that ended early, how."""
    name, end = (
        ("baseline", circumstances.ends[0])
        if old.value is None
        else ("current run", circumstances.ends[1])
    )
    return f"the {name} did not record it{f': {end}' * bool(end)}"


def _end(profile: Profile) -> str:
    cell = profile.generation
    return "" if cell is None or cell.status in ("done", "skipped") else cell.status


def _processes(profile: Profile) -> int:
    return 0 if profile.latency is None else len(profile.latency.processes)
