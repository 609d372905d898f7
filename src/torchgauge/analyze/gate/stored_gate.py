"""A gate against a stored baseline, whose build cannot be run again."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from torchgauge import units
from torchgauge.analyze.compare.compare import compare
from torchgauge.analyze.gate.evidence import Sides, disturbed, few_samples
from torchgauge.analyze.gate.limits import judge_limit
from torchgauge.analyze.gate.regressed_layers import regressed_layers
from torchgauge.analyze.gate.repeated_runs import RunsTest, against_runs
from torchgauge.analyze.gate.stored import (
    HostNoise,
    Welch,
    corrected,
    min_repeats,
    uncalibrated,
    welch,
)
from torchgauge.analyze.latency.metrics_by_process import by_process
from torchgauge.analyze.statistics.paired import holm, signed
from torchgauge.records.comparison import Change, Comparison
from torchgauge.records.metric import METRICS, Metric
from torchgauge.records.profile import Profile
from torchgauge.records.record import Interval
from torchgauge.records.verdict import Limit, Outcome, Ruling, Tolerance, Verdict, overall


def exact_ruling(change: Change, tolerance: Tolerance) -> Ruling:
    """Return the ruling on an exact metric: fail above δ0, inconclusive where it is unknown."""
    outcome, reason = _exact_metrics_judged(change, tolerance)
    return Ruling(
        metric=change.metric,
        outcome=outcome,
        how=change.how,
        unit=change.unit,
        baseline=change.baseline,
        current=change.current,
        change=change.change,
        tolerance=tolerance,
        at_least=change.reason.startswith("at least"),
        reason=reason,
        method="exact",
    )


def _exact_metrics_judged(change: Change, tolerance: Tolerance) -> tuple[Outcome, str]:
    old, new = change.baseline, change.current
    if change.judgement == "unknown" and old is not None and new is not None:
        return "not comparable", change.reason
    if old is None or new is None:
        return "inconclusive", change.reason or "it is not known on both sides"
    if new == old:
        return "pass", "the same" if not change.reason else f"the same, {change.reason}"
    if new < old:
        return "pass", "less"
    increase = f"more by {units.amount(new - old, change.unit, change.metric)}"
    if change.judgement == "same":
        return "pass", f"{increase}: {change.reason}"
    if change.change is None or old <= 0 or change.change > tolerance.accepted:
        accepted = signed(tolerance.accepted) if tolerance.accepted else "none"
        return "fail", f"{increase}; {accepted} is accepted"
    return "pass", f"{increase}, which is accepted"


ALPHA = 0.025  # one-sided, as the intervals of 95 % have it on either side


class _Test(NamedTuple):
    """The test of one metric over both sides' processes or runs, positive where it got worse."""

    welch: Welch
    tolerance: Tolerance
    runs: RunsTest | None = None

    @property
    def p(self) -> float:
        """The probability of such a difference without a change above δ0."""
        return self.welch.p_above(self.tolerance.accepted)

    @property
    def interval(self) -> Interval:
        """The relative change for the worse."""
        return self.welch.interval()


def gate(
    baseline: Profile,
    current: Profile,
    tolerances: Sequence[Tolerance],
    *,
    limits: Sequence[Limit] = (),
    usual: Container[str] = (),
    noise: HostNoise | None = None,
    labels: tuple[str, str] = ("baseline", "current"),
    alpha: float = ALPHA,
    runs: Sequence[Profile] = (),
    doubt: str = "",
) -> Verdict:
    """Return the verdict on whether the current run is worse than the stored one.

    Exact metrics come first. Times are judged between the same machine, software and settings
    alone, and from six processes on each side; `noise` says by what the host's sessions differ, of
    a host never calibrated a floor of 20 % is assumed. A metric fails where it is surely above δ0,
    passes where it is surely below δ1, and is inconclusive else. One that neither run has is left
    out where it is merely among the `usual`. Of generations `runs` may be several of the baseline,
    whose spread is then the noise. `doubt` is why a worse time would not prove anything.
    """
    noise = noise or uncalibrated()
    comparison = compare(baseline, current, labels=labels, noise=noise)
    sides = baseline.latency, current.latency
    tests = _tests(baseline, current, comparison, tolerances, noise, runs)
    fallen = dict(zip(tests, holm([test.p for test in tests.values()], alpha), strict=True))
    rulings = []
    for tolerance in tolerances:
        name = tolerance.metric
        change = comparison.change_of(name)
        if change is None and name in usual:
            continue
        if change is None:
            rulings.append(_absent(METRICS[name], tolerance))
        elif change.exact:
            rulings.append(exact_ruling(change, tolerance))
        elif name in tests:
            judgement = _stored_gate_judged(change, tests[name], sides, noise, fails=fallen[name])
            if judgement[0] == "fail" and doubt:
                judgement = "inconclusive", doubt
            rulings.append(_tested(change, tests[name], judgement, len(tests)))
        else:
            rulings.append(_untested(change, tolerance, comparison, sides))
    all_rulings = (*rulings, *(judge_limit(limit, current) for limit in limits))
    return Verdict(
        outcome=overall(all_rulings),
        rulings=all_rulings,
        comparison=comparison,
        regressed_layers=regressed_layers(comparison, all_rulings),
    )


def _tests(
    baseline: Profile,
    current: Profile,
    comparison: Comparison,
    tolerances: Sequence[Tolerance],
    noise: HostNoise,
    runs: Sequence[Profile],
) -> dict[str, _Test]:
    if not comparison.timing_comparable:
        return {}
    tests = {}
    for tolerance in tolerances:
        metric = METRICS[tolerance.metric]
        if metric.kind != "timing":
            continue
        old, new = by_process(baseline, metric), by_process(current, metric)
        change = comparison.change_of(metric.name)
        if change is None or few_samples(metric, (baseline.latency, current.latency)):
            continue
        if metric.of_calls and (repeated := against_runs(runs, current, metric)):
            tests[metric.name] = _Test(repeated.welch, tolerance, repeated)
            continue
        if metric.better == "higher":
            old, new = new, old  # less of it is worse
        if noise.correction is not None and change.corrected is not None:
            test = corrected(old, new, noise.correction)
        else:
            is_enough = min(len(old), len(new)) >= min_repeats(metric)
            test = welch(old, new, noise) if is_enough else None
        if test is not None:
            tests[metric.name] = _Test(test, tolerance)
    return tests


def _stored_gate_judged(
    change: Change, test: _Test, sides: Sides, noise: HostNoise, *, fails: bool
) -> tuple[Outcome, str]:
    """Return the outcome of a tested metric and the reason; a disturbed run never fails."""
    if change.corrected is not None:
        return _by_interval(test, noise.corrected, fails=fails)
    against = disturbed(METRICS[change.metric], sides, noise, few_processes=False)
    if fails and against is not None:
        return "inconclusive", against
    return _by_interval(test, noise, fails=fails)


def _by_interval(test: _Test, noise: HostNoise, *, fails: bool) -> tuple[Outcome, str]:
    tolerance, interval = test.tolerance, test.interval
    if fails:
        return "fail", f"significantly worse than {signed(tolerance.accepted)}"
    if interval.high < tolerance.refused:
        return "pass", f"significantly below {signed(tolerance.refused)}"
    if test.runs is not None:
        return "inconclusive", test.runs.reason
    floor = f"two sessions of one build differ by up to {units.percent(noise.floor)} here"
    if METRICS[tolerance.metric].of_calls:
        return "inconclusive", f"{floor}, assumed: give several runs as --baseline"
    if noise.calibrated:
        return "inconclusive", f"{floor}: gate with --base-ref, which runs both builds in turn"
    advice = "`torchgauge gate --calibrate TARGET`, or gate with --base-ref"
    return "inconclusive", f"{floor} (assumed): {advice}"


def _tested(change: Change, test: _Test, judgement: tuple[Outcome, str], family: int) -> Ruling:
    outcome, reason = judgement
    runs = test.runs
    method = change.method if runs is None else runs.method
    return Ruling(
        metric=change.metric,
        outcome=outcome,
        how=change.how,
        unit=change.unit,
        baseline=change.baseline if runs is None else runs.baseline,
        current=change.current,
        change=test.welch.change if change.corrected is None else _worse(change),
        interval=test.interval if change.corrected is None else None,
        corrected=None if change.corrected is None else test.welch.change,
        corrected_interval=None if change.corrected is None else test.interval,
        tolerance=test.tolerance,
        reason=reason,
        method=method + (f", Holm over {family} metrics" if family > 1 else ""),
    )


def _untested(change: Change, tolerance: Tolerance, comparison: Comparison, sides: Sides) -> Ruling:
    outcome: Outcome = "inconclusive"
    reason = change.reason
    both_known = change.baseline is not None and change.current is not None
    if both_known and not comparison.timing_comparable:
        outcome = "not comparable"
    elif both_known and not few_samples(METRICS[change.metric], sides):
        reason = "fewer than 6 processes on a side: re-record both with --processes 10"
        if METRICS[change.metric].of_calls:
            reason = "fewer than 3 calls on a side: re-record both"
    return Ruling(
        metric=change.metric,
        outcome=outcome,
        how=change.how,
        unit=change.unit,
        baseline=change.baseline,
        current=change.current,
        change=_worse(change),
        tolerance=tolerance,
        reason=reason,
    )


def _worse(change: Change) -> float | None:
    if change.change is None:
        return None
    return change.change if change.better == "lower" else -change.change


def _absent(metric: Metric, tolerance: Tolerance) -> Ruling:
    return Ruling(
        metric=metric.name,
        outcome="inconclusive",
        how="measured" if metric.kind in ("timing", "memory") else "counted",
        unit="",
        current=None,
        tolerance=tolerance,
        reason="neither run has it",
    )
