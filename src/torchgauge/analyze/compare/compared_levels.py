"""Compare two records of load level by level: equal loads are compared, others named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from torchgauge.analyze.compare.compare import judged
from torchgauge.analyze.compare.differences import differences, side_of
from torchgauge.analyze.gate.evidence import growth
from torchgauge.analyze.gate.repeated_runs import LoadTest, load_test
from torchgauge.analyze.gate.stored import HostNoise, uncalibrated
from torchgauge.records.comparison import Change, Comparison, Difference, Judgement
from torchgauge.records.headline.figure import level_estimate
from torchgauge.records.metric import METRICS, Metric, figure_of
from torchgauge.records.profile import Profile
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import Estimate
from torchgauge.records.serving.serving import Serving

OF_LOAD = tuple(metric for metric in METRICS.values() if metric.level or metric.of_load)
_TIMES = ("latency", "ttft", "itl", "tpot")
SIDES = ("the baseline", "the current run")


class LevelPair(NamedTuple):
    """One load, or the capacity (without a name), on both sides.

    `levels` are all of each side, which tell how times grow with the rate.
    """

    name: str
    baseline: Profile
    current: Profile
    levels: tuple[tuple[Level, ...], tuple[Level, ...]]

    @property
    def is_on_both_sides(self) -> bool:
        """Whether both sides have it."""
        return not any(_is_empty(profile) for profile in (self.baseline, self.current))

    def growth(self, name: str) -> float:
        """Return how much more than the machine's speed a figure changes with it."""
        sides = zip((self.baseline.serving, self.current.serving), self.levels, strict=True)
        growths = [growth(name, level, levels) for level, levels in sides if level is not None]
        return max(growths, default=1.0)


def level_pairs(baseline: Serving, current: Serving) -> list[LevelPair]:
    """Return the capacity and the loads of both records, each load's first level.

    A side without a load has a level without figures.
    """
    sides = [_by_load(side.levels) for side in (baseline, current)]
    either = {**sides[1], **sides[0]}
    same_label: dict[str, list[Level]] = {}
    for level in either.values():
        same_label.setdefault(level.label, []).append(level)
    pairs = [
        LevelPair("", baseline.profile(), current.profile(), (baseline.levels, current.levels))
    ]
    for load, level in either.items():
        profiles = [
            record.profile(levels.get(load) or _without_figures(level))
            for record, levels in zip((baseline, current), sides, strict=True)
        ]
        pairs.append(
            LevelPair(
                _name(level, same_label[level.label]),
                profiles[0], profiles[1], (baseline.levels, current.levels),
            )
        )  # fmt: skip
    return pairs


def _name(level: Level, same_label: Sequence[Level]) -> str:
    """Return a level's label; beside others of it with what tells it from them."""
    if len(same_label) == 1:
        return level.label
    shared = set.intersection(*(set(other.load.items()) for other in same_label))
    facts = [f"{name} {fact}" for name, fact in level.load.items() if (name, fact) not in shared]
    return f"{level.label} ({', '.join(facts) or 'as usual'})"


def _by_load(levels: Iterable[Level]) -> dict[tuple[tuple[str, str], ...], Level]:
    by_load: dict[tuple[tuple[str, str], ...], Level] = {}
    for level in levels:
        by_load.setdefault(tuple(level.load.items()), level)
    return by_load


def _without_figures(level: Level) -> Level:
    return Level(scenario=level.scenario, arrivals=level.arrivals, duration=0.0, window=(0.0, 0.0))


def _is_empty(profile: Profile) -> bool:
    return profile.serving.count == 0 if profile.serving is not None else profile.capacity is None


def compare_servings(
    baseline: Serving, current: Serving, *, labels: tuple[str, str] = ("baseline", "current")
) -> Comparison:
    """Return what changed: the capacity, then every load.

    A load ran once on each side, and no calibration tells by how much a server's sessions differ,
    so that a change counts beyond the floor that is assumed of any host, times what load adds.
    """
    comparison = compare_pairs(level_pairs(baseline, current), labels=labels)
    all_differences = (*comparison.differences, *_of_server(baseline, current))
    return msgspec.structs.replace(comparison, differences=all_differences)


def compare_pairs(
    pairs: Iterable[LevelPair], *, labels: tuple[str, str], noise: HostNoise | None = None
) -> Comparison:
    """Return what changed between the loads of two sides; at least one pair is needed."""
    noise, listed = noise or uncalibrated(), list(pairs)
    capacity_pair = listed[0]
    differing = _differences(capacity_pair)
    changes = []
    for pair in listed:
        for metric in OF_LOAD:
            change = compared(metric, pair, differing, noise)
            if change is not None:
                changes.append(change)
    return Comparison(
        baseline=side_of(capacity_pair.baseline, labels[0], 1),
        current=side_of(capacity_pair.current, labels[1], 1),
        differences=differing,
        changes=tuple(changes),
    )


def compared(
    metric: Metric, pair: LevelPair, differing: tuple[Difference, ...], noise: HostNoise
) -> Change | None:
    """Return the change of a metric at a load; None where neither side has it."""
    old, new = (figure_of(side, metric) for side in (pair.baseline, pair.current))
    if (old.value is None and new.value is None) or metric.name == "p50":
        return None  # p50 is the latency
    test, reason = tested(metric, pair, differing, noise)
    judgement: Judgement = "inconclusive"
    if old.value is None or new.value is None or any(difference.timing for difference in differing):
        judgement = "unknown"
    elif test is not None:
        judgement = judged(metric, test.interval)
    elif metric.name == "errors" and old.value == new.value:
        judgement, reason = "same", ""
    change = None
    if old.value and new.value is not None:
        change = float(new.value / old.value - 1)
    return Change(
        metric=metric.name, unit=new.unit or old.unit, how=new.how, better=metric.better,
        exact=False, baseline=old.value, current=new.value, judgement=judgement,
        change=None if judgement == "unknown" else change,
        interval=None if test is None else test.interval, reason=reason, shape=pair.name,
        method="" if test is None else _method(metric, pair, noise),
    )  # fmt: skip


def _method(metric: Metric, pair: LevelPair, noise: HostNoise) -> str:
    factor = pair.growth(estimate_name(metric, pair.current))
    growth_text = f" × {factor:.1f} under load" if factor >= 1.05 else ""
    return f"the intervals of both, sessions as of {noise.source}{growth_text}"


def tested(
    metric: Metric, pair: LevelPair, differing: tuple[Difference, ...], noise: HostNoise
) -> tuple[LoadTest | None, str]:
    """Return the test of a metric at a load, and else why there is none."""
    if any(difference.timing for difference in differing):
        names = ", ".join(difference.name for difference in differing if difference.timing)
        return None, f"not comparable: {names}"
    name = estimate_name(metric, pair.current)
    sides = [estimate_of(side, name) for side in (pair.baseline, pair.current)]
    for side, estimate in zip(SIDES, sides, strict=True):
        if estimate is None:
            return None, f"{side} did not record it"
    if reason := against(name, pair):
        return None, reason
    old, new = sides
    if old is None or new is None:
        return None, ""
    for side, estimate in zip(SIDES, (old, new), strict=True):
        if estimate.interval is None:
            return None, f"{side} has no interval{_needed(estimate)}"
    test = load_test(old, new, noise, pair.growth(name))
    return test, "" if test is not None else "a figure is 0"


def estimate_name(metric: Metric, profile: Profile) -> str:
    """Return what a metric is called by `level_estimate`."""
    return metric.figure_in(profile).removeprefix("serving_")


def estimate_of(profile: Profile, name: str) -> Estimate | None:
    """Return an estimate of a level, or the capacity; errors have none."""
    capacity = profile.capacity
    if name == "capacity" and capacity is not None and capacity.rate is not None:
        # Of a rate above which none was tried it is not known how far the capacity is away.
        interval = None if capacity.above_all_tried else capacity.interval
        reason = capacity.reason if interval is None else ""
        return Estimate(value=capacity.rate, interval=interval, reason=reason)
    if profile.serving is None or name == "capacity":
        return None
    if name == "errors":
        share = profile.serving.failed_share
        reason = "errors come together; hold them to a limit: --threshold errors:1%"
        return None if share is None else Estimate(value=share, reason=reason)
    return level_estimate(profile.serving, name)


def against(name: str, pair: LevelPair, *, limits: bool = True) -> str:
    """Return what speaks against judging a figure of two levels; "" where nothing does.

    With `limits` a client that was too slow does.
    """
    for side, level in zip(SIDES, (pair.baseline.serving, pair.current.serving), strict=True):
        if level is None:
            continue
        if limits and level.client is not None and level.client.limited:
            return f"the client was too slow in {side}: it measured itself"
        is_time = name.partition("_")[0] in _TIMES
        if is_time and level.saturation is not None and level.saturation.saturated:
            return f"{side} was saturated: times are of its window alone"
    return ""


def _needed(estimate: Estimate) -> str:
    if estimate.needed is not None:
        return f", which takes {estimate.needed:,} requests"
    return f": {estimate.reason}" if estimate.reason else ""


def _differences(pair: LevelPair) -> tuple[Difference, ...]:
    """Return the differences of target and machine; of an endpoint the client's software tells."""
    targets = [
        msgspec.structs.replace(side.target, name="", inputs=())
        for side in (pair.baseline, pair.current)
    ]
    environments = pair.baseline.environment, pair.current.environment
    differing = differences((targets[0], targets[1]), environments)
    goals = [side.target.inputs[0].name for side in (pair.baseline, pair.current)]
    if pair.name == "" and goals[0] != goals[1]:
        goal_difference = Difference(
            part="target", name="goals", baseline=goals[0], current=goals[1], timing=False
        )
        differing = (*differing, goal_difference)
    sent = [next((level.sending for level in levels), None) for levels in pair.levels]
    if sent[0] is not None and sent[1] is not None and sent[0].facts != sent[1].facts:
        texts = [
            ", ".join(f"{name} {fact}" for name, fact in side.facts.items()) or "as usual"
            for side in sent
            if side is not None
        ]
        differing = (
            *differing,
            Difference(part="settings", name="requests sent", baseline=texts[0], current=texts[1]),
        )
    if all(side.target.kind == "endpoint" for side in (pair.baseline, pair.current)):
        differing = tuple(
            msgspec.structs.replace(difference, timing=False, work=False)
            if difference.part == "software"
            else difference
            for difference in differing
        )
    return differing


def _of_server(baseline: Serving, current: Serving) -> tuple[Difference, ...]:
    """Return how the servers were set otherwise: what the comparison may be about."""
    names = ("api", "model", "version", "software", "max_batch", "max_delay", "workers")
    texts = [
        {name: str(getattr(side.served_by, name)) for name in names} for side in (baseline, current)
    ]
    return tuple(
        Difference(
            part="settings", name=f"server's {name}", baseline=texts[0][name] or "none",
            current=texts[1][name] or "none", timing=False,
        )
        for name in names
        if texts[0][name] != texts[1][name]
    )  # fmt: skip
