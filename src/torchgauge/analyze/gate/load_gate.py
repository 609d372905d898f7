"""Gate records of load: the capacity, and every load that both sides have."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import msgspec

from torchgauge import units
from torchgauge.analyze.compare.compared_levels import (
    LevelPair,
    against,
    compare_pairs,
    estimate_name,
    estimate_of,
    tested,
)
from torchgauge.analyze.gate.limits import judge_limit
from torchgauge.analyze.gate.repeated_runs import (
    NORMAL,
    LoadTest,
    Sample,
    against_runs,
    repeated_test,
    session_reach,
)
from torchgauge.analyze.gate.stored import HostNoise, uncalibrated
from torchgauge.analyze.gate.tolerances import default_tolerance
from torchgauge.analyze.statistics.paired import holm, signed
from torchgauge.records.comparison import Change, Comparison
from torchgauge.records.metric import METRICS, Metric
from torchgauge.records.profile import Profile
from torchgauge.records.serving.serving import Serving
from torchgauge.records.verdict import Limit, Outcome, Ruling, Tolerance, Verdict, overall

# Beside latency, which every record may have.
USUAL_METRICS = ("p99", "ttft", "tpot", "throughput", "goodput", "capacity")
ALPHA = 0.025  # one-sided
ANY_AMOUNT = 3.0  # as a logarithm: a factor of 20


def gate_levels(
    pairs: Sequence[LevelPair],
    tolerances: Sequence[Tolerance],
    *,
    limits: Sequence[Limit] = (),
    usual: Collection[str] = (),
    noise: HostNoise | None = None,
    labels: tuple[str, str] = ("baseline", "current"),
    earlier: Sequence[Serving] = (),
) -> Verdict:
    """Return the verdict over all loads that both sides have; it fails where any fails.

    The probability of a false alarm is kept over all metrics and loads together (Holm). Where
    nobody asked for metrics, the `usual` ones have percentiles and rates with them. `earlier` are
    several runs of the baseline: three or more that have a figure show how far runs differ.
    """
    if usual:
        named = {tolerance.metric for tolerance in tolerances}
        added = [name for name in USUAL_METRICS if name not in named]
        tolerances = [*tolerances, *map(default_tolerance, added)]
        usual = {*usual, *added}
    noise = noise or uncalibrated()
    comparison = compare_pairs(pairs, labels=labels, noise=noise)
    judged_pairs = {pair.name: pair for pair in pairs if pair.is_on_both_sides}
    cases = [
        (judged_pairs[change.shape], change, tolerance)
        for change in comparison.changes
        for tolerance in tolerances
        if change.shape in judged_pairs and _is_asked_for(tolerance.metric, change.metric)
    ]
    tests = [_worse_test(pair, change, comparison, noise, earlier) for pair, change, _ in cases]
    probabilities = [
        1.0 if test is None else test.p_above(tolerance.accepted)
        for test, (_, _, tolerance) in zip(tests, cases, strict=True)
    ]
    fails = holm(probabilities, ALPHA)
    rulings = [
        _ruling(case, test, comparison, noise, fails=failed)
        for case, test, failed in zip(cases, tests, fails, strict=True)
    ]
    rulings += _absent(tolerances, {case[2].metric for case in cases}, usual)
    rulings += limited(limits, pairs)
    return Verdict(outcome=overall(tuple(rulings)), rulings=tuple(rulings), comparison=comparison)


def _is_asked_for(tolerance_metric: str, metric: str) -> bool:
    """Whether a metric is the one of a tolerance; p50 is the latency."""
    return tolerance_metric == metric or (tolerance_metric, metric) == ("p50", "latency")


def _worse_test(
    pair: LevelPair,
    change: Change,
    comparison: Comparison,
    noise: HostNoise,
    earlier: Sequence[Serving],
) -> LoadTest | None:
    """Return the test of a change, positive where it got worse; None where there is none."""
    metric = METRICS[change.metric]
    if comparison.timing_comparable and (repeated := _against_runs(metric, pair, earlier)):
        return repeated
    test, _ = tested(metric, pair, comparison.differences, noise)
    return test.reversed if test is not None and metric.better == "higher" else test


def _against_runs(metric: Metric, pair: LevelPair, earlier: Sequence[Serving]) -> LoadTest | None:
    """Return the test against several runs; None of fewer than three that can be judged by.

    A client that was as late in most of them is part of how they differ.
    """
    name = estimate_name(metric, pair.current)
    runs = [run for record in earlier if (run := _same_load(pair.current, record)) is not None]
    limited = sum(_is_limited(run) for run in runs)
    if _is_limited(pair.current) and 2 * limited <= len(runs):
        return None
    if against(name, pair, limits=False):
        return None
    runs = [run for run in runs if not against(name, pair._replace(baseline=run), limits=False)]
    test = against_runs(runs, pair.current, metric, _sample)
    return None if test is None else repeated_test(test)


def _same_load(current: Profile, record: Serving) -> Profile | None:
    """Return the level of a record with the load of another, or its capacity."""
    if current.serving is None:
        return record.profile()
    load = current.serving.load
    return next((record.profile(level) for level in record.levels if level.load == load), None)


def _is_limited(run: Profile) -> bool:
    client = None if run.serving is None else run.serving.client
    return client is not None and client.limited


def _sample(run: Profile, metric: Metric) -> Sample | None:
    """Return a figure with the error of its logarithm, by the upper half of its interval."""
    estimate = estimate_of(run, estimate_name(metric, run))
    if estimate is None:
        return None
    interval = estimate.interval
    if interval is None or estimate.value <= 0 or interval.high <= 0:
        return Sample(estimate.value)
    return Sample(estimate.value, math.log(interval.high / estimate.value) / NORMAL)


def _ruling(
    case: tuple[LevelPair, Change, Tolerance],
    test: LoadTest | None,
    comparison: Comparison,
    noise: HostNoise,
    *,
    fails: bool,
) -> Ruling:
    pair, change, tolerance = case
    outcome: Outcome = "inconclusive"
    reason = change.reason
    if not comparison.timing_comparable:
        outcome = "not comparable"
    elif test is not None:
        outcome, reason = _outcome(pair, change, tolerance, test, noise, fails=fails)
    worse = change.change if change.better == "lower" or change.change is None else -change.change
    runs = None if test is None else test.runs
    return Ruling(
        metric=change.metric, outcome=outcome, how=change.how, unit=change.unit,
        baseline=change.baseline if runs is None else runs.baseline, current=change.current,
        change=worse if test is None else test.change,
        interval=None if test is None else test.interval, tolerance=tolerance, reason=reason,
        method=change.method if runs is None else runs.method, shape=change.shape,
    )  # fmt: skip


def _outcome(
    pair: LevelPair,
    change: Change,
    tolerance: Tolerance,
    test: LoadTest,
    noise: HostNoise,
    *,
    fails: bool,
) -> tuple[Outcome, str]:
    if fails:
        return "fail", f"significantly worse than {signed(tolerance.accepted)}"
    if test.interval.high < tolerance.refused:
        return "pass", f"significantly below {signed(tolerance.refused)}"
    if test.runs is not None:
        return "inconclusive", test.runs.reason
    name = estimate_name(METRICS[change.metric], pair.current)
    reach = session_reach(noise, pair.growth(name))
    if reach < test.up / 2:
        return "inconclusive", "the interval is wide: more requests, or --for longer, narrow it"
    differ = units.percent(math.expm1(reach)) if reach < ANY_AMOUNT else "any amount"
    return (
        "inconclusive",
        f"two sessions of one server differ by up to {differ} at this load, assumed: "
        "a tolerance such as 10%:60% at a lower rate can be decided",
    )


def _absent(
    tolerances: Sequence[Tolerance], judged: Collection[str], usual: Collection[str]
) -> list[Ruling]:
    """Return rulings on requested metrics that no load of both sides has."""
    return [
        Ruling(
            metric=tolerance.metric, outcome="inconclusive", how="measured", unit="", current=None,
            tolerance=tolerance, reason="no load of both runs has it",
        )
        for tolerance in tolerances
        if tolerance.metric not in usual and tolerance.metric not in judged
    ]  # fmt: skip


def limited(limits: Sequence[Limit], pairs: Sequence[LevelPair]) -> list[Ruling]:
    """Return the rulings on limits: of the capacity once, of the others at each current load."""
    rulings = []
    for limit in limits:
        for pair in pairs:
            is_whole = pair.name == ""
            if is_whole != (limit.metric == "capacity"):
                continue
            if is_whole or (pair.current.serving is not None and pair.current.serving.count):
                ruling = judge_limit(limit, pair.current)
                rulings.append(msgspec.structs.replace(ruling, shape=pair.name))
    return rulings


def judged_levels(
    limits: Sequence[Limit], serving: Serving, *, up_to: float | None = None
) -> Verdict:
    """Return the verdict on a record under limits alone: the capacity's once, others at each load.

    A search for the capacity overloads the server on purpose: loads above `up_to` are left out, and
    levels that it does not count.
    """
    rulings = []
    names = {
        name: level
        for name, level in serving.named_levels
        if up_to is None or (not level.left_out and (level.arrivals.rate or 0.0) <= up_to)
    }
    for limit in limits:
        if limit.metric == "capacity" or not names:
            rulings.append(judge_limit(limit, serving.profile()))
            continue
        for name, level in names.items():
            ruling = judge_limit(limit, serving.profile(level))
            rulings.append(msgspec.structs.replace(ruling, shape=name))
    return Verdict(outcome=overall(tuple(rulings)), rulings=tuple(rulings))
