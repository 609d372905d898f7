"""Two records side by side: what differs around them, every metric, and the places that changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec

from torchgauge.analyze.by_process import by_process
from torchgauge.analyze.compare_places import compare_places
from torchgauge.analyze.differences import differences
from torchgauge.analyze.evidence import disturbed, few_samples
from torchgauge.analyze.stored import FEWEST, HostNoise, corrected, uncalibrated, welch
from torchgauge.model.comparison import Change, Comparison, Difference, Judgement, Side
from torchgauge.model.figures import Figure, figures
from torchgauge.model.metric import METRICS, Metric
from torchgauge.model.profile import Profile
from torchgauge.model.record import Interval

# Within it a change that is known not to be larger is none.
SAME = 0.03
# What the weights of a correction are learnt for, and what follows from it.
CORRECTED = ("latency", "throughput")
_EXACT_FIRST = ("size", "count", "memory", "timing")


def compare(
    baseline: Profile,
    current: Profile,
    *,
    labels: tuple[str, str] = ("baseline", "current"),
    noise: HostNoise | None = None,
) -> Comparison:
    """Return what changed between two records; exact metrics first.

    `noise` is what sessions of this host differ by; None stands for a host that was never
    calibrated, of which a floor of 20 % is assumed. Times are judged between the same machine,
    software and settings alone; elsewhere they are shown and not judged.
    """
    found = differences(
        (baseline.target, current.target), (baseline.environment, current.environment)
    )
    noise = noise or uncalibrated()
    where = _Circumstances(baseline, current, found, noise)
    both = (
        {figure.name: figure for figure in figures(baseline)},
        {figure.name: figure for figure in figures(current)},
    )
    changes = []
    for metric in sorted(METRICS.values(), key=lambda one: _EXACT_FIRST.index(one.kind)):
        old, new = both[0][metric.figure], both[1][metric.figure]
        if metric.name == "p50" or (old.value is None and new.value is None):
            continue  # p50 is the latency
        if metric.kind == "timing":
            values = by_process(baseline, metric), by_process(current, metric)
            changes.append(_timed(metric, (old, new), values, where))
        else:
            unknown = _unknown_work(baseline) or _unknown_work(current)
            changes.append(_exact(metric, (old, new), where, at_least=unknown))
    placed = compare_places(baseline, current, noise if where.timing is None else None)
    return Comparison(
        baseline=_side(baseline, labels[0]),
        current=_side(current, labels[1]),
        differences=found,
        changes=tuple(changes),
        layers=placed.layers,
        operators=placed.operators,
        kernels=placed.kernels,
        step_change=placed.step_change,
        elsewhere=placed.elsewhere,
        places_tested=placed.places_tested,
    )


class _Circumstances:
    """What stands against a comparison of times, of counted work, of memory; None is nothing."""

    def __init__(
        self, baseline: Profile, current: Profile, found: tuple[Difference, ...], noise: HostNoise
    ) -> None:
        self.noise = noise
        self.sides = baseline.latency, current.latency
        self.timing = _names([one for one in found if one.timing])
        self.work = _names([one for one in found if one.work])
        told = [one for one in found if one.work or (one.part == "target" and one.timing)]
        self.memory = _names(told)


def asked_otherwise(found: Sequence[Difference]) -> str | None:
    """Return why not even builds that ran in turn can be compared: they had other inputs."""
    return _names([one for one in found if one.part == "target" and one.work])


def _names(found: list[Difference]) -> str | None:
    if not found:
        return None
    names = ", ".join(one.name for one in found[:4]) + (" …" if len(found) > 4 else "")
    single = len(found) == 1 and not names.endswith("s")
    return f"not comparable: {names} differ{'s' if single else ''}"


def _unknown_work(profile: Profile) -> bool:
    return bool(profile.cost is not None and profile.cost.unknown)


def _exact(
    metric: Metric, sides: tuple[Figure, Figure], where: _Circumstances, *, at_least: bool
) -> Change:
    old, new = sides
    against = {"size": None, "count": where.work, "memory": where.memory}[metric.kind]
    judgement: Judgement
    reason = against or ""
    if old.value is None or new.value is None:
        judgement, reason = "unknown", _one_side(old)
    elif against is not None:
        judgement = "unknown"
    elif old.value == new.value:
        judgement = "same"
    else:
        judgement = "worse" if new.value > old.value else "better"
    if metric.kind == "count" and at_least and not reason:
        reason = "at least: operators without a formula took part"
    return _change(metric, sides, judgement, method="exact", reason=reason)


def _timed(
    metric: Metric,
    sides: tuple[Figure, Figure],
    values: tuple[tuple[float, ...], tuple[float, ...]],
    where: _Circumstances,
) -> Change:
    old, new = sides
    if old.value is None or new.value is None:
        return _change(metric, sides, "unknown", reason=_one_side(old))
    if where.timing is not None:
        return _change(metric, sides, "unknown", reason=where.timing)
    fewest = min(len(side) for side in values)
    if reason := few_samples(metric, where.sides):
        return _change(metric, sides, "inconclusive", reason=reason)
    if found := _by_yardstick(metric, sides, values, where.noise):
        return found
    few = fewest < FEWEST
    found = (
        _by_floor(metric, sides, where.noise, fewest)
        if few
        else _by_welch(metric, sides, values, where.noise)
    )
    against = disturbed(metric, where.sides, where.noise, few=few)
    if against is None or found.judgement not in ("worse", "better"):
        return found
    return msgspec.structs.replace(found, judgement="inconclusive", reason=against)


def _by_welch(
    metric: Metric,
    sides: tuple[Figure, Figure],
    values: tuple[tuple[float, ...], tuple[float, ...]],
    noise: HostNoise,
) -> Change:
    """Judge a time by its processes and by what the host's sessions differ by."""
    found = welch(*values, noise)
    if found is None:
        return _change(metric, sides, "unknown", reason="a process has no figure")
    counts = f"{len(values[0])} and {len(values[1])} processes"
    judgement = judged(metric, found.interval(noise.confidence))
    return _change(
        metric,
        sides,
        judgement,
        change=found.change,
        interval=found.interval(),
        method=f"Welch's t on {counts}, sessions as of {noise.source}",
        reason=_undecided(noise) if judgement == "inconclusive" else "",
    )


def _by_yardstick(
    metric: Metric,
    sides: tuple[Figure, Figure],
    values: tuple[tuple[float, ...], tuple[float, ...]],
    noise: HostNoise,
) -> Change | None:
    """Judge a time without what the machine's speed explains; None where that is not known."""
    known = noise.correction
    if known is None or metric.name not in CORRECTED:
        return None
    times = values if metric.better == "lower" else (values[1], values[0])
    found = corrected(*times, known)
    if found is None:
        return None
    if metric.better == "higher":
        found = dataclasses.replace(found, estimate=-found.estimate)
    interval = found.interval(noise.confidence)
    judgement = judged(metric, interval)
    measured = welch(*values, noise)
    return _change(
        metric,
        sides,
        judgement,
        change=None if measured is None else measured.change,
        interval=None if measured is None else measured.interval(),
        corrected=found.change,
        corrected_interval=interval,
        method=f"fastest processes and yardstick, as {known.runs} earlier runs on this host tell",
        reason=_undecided(noise) if judgement == "inconclusive" else "",
    )


def _undecided(noise: HostNoise) -> str:
    confidence = f"{noise.confidence:.0%} " if noise.remembered else ""
    return f"the {confidence}interval holds both no change and a change".replace("%", " %")


def _by_floor(
    metric: Metric, sides: tuple[Figure, Figure], noise: HostNoise, processes: int
) -> Change:
    """Judge a time of few processes by what a host's sessions differ by at most."""
    change = _relative(*sides)
    floor = noise.floor
    known = noise.source if noise.calibrated else "assumed: it was never calibrated"
    method = f"the host's noise floor of {floor:.0%}, {known}"
    if change is not None and abs(change) > floor:
        worse = (change > 0) == (metric.better == "lower")
        return _change(metric, sides, "worse" if worse else "better", method=method)
    reason = (
        f"{processes} process{'es' if processes != 1 else ''} on a side, and the change is within "
        "the noise floor: re-record both with --processes 10"
    )
    return _change(metric, sides, "inconclusive", method=method, reason=reason)


def judged(metric: Metric, interval: Interval) -> Judgement:
    """Return what an interval of current ÷ baseline − 1 says of a metric."""
    if interval.low > 0 or interval.high < 0:
        worse = (interval.low > 0) == (metric.better == "lower")
        return "worse" if worse else "better"
    return "same" if interval.low >= -SAME and interval.high <= SAME else "inconclusive"


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
    return Change(
        metric=metric.name,
        unit=new.unit,
        how=new.how,
        better=metric.better,
        exact=metric.kind != "timing",
        baseline=old.value,
        current=new.value,
        judgement=judgement,
        change=_relative(old, new) if change is None else change,
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


def _one_side(old: Figure) -> str:
    return f"the {'baseline' if old.value is None else 'current run'} does not have it"


def _side(profile: Profile, label: str) -> Side:
    return Side(
        label=label,
        target=profile.target,
        created=profile.environment.created,
        machine=profile.environment.machine.cpu,
        processes=0 if profile.latency is None else len(profile.latency.processes),
    )
