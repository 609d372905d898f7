"""A gate against a stored baseline: the other build is not here to be run again."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import NamedTuple

from torchgauge import units
from torchgauge.analyze.by_process import by_process
from torchgauge.analyze.compare import compare
from torchgauge.analyze.evidence import Sides, disturbed, few_samples
from torchgauge.analyze.exact import exact_ruling
from torchgauge.analyze.guilty import guilty
from torchgauge.analyze.holm import holm
from torchgauge.analyze.limits import judge_limit
from torchgauge.analyze.paired import signed
from torchgauge.analyze.stored import (
    FEWEST,
    HostNoise,
    Welch,
    corrected,
    uncalibrated,
    welch,
)
from torchgauge.imports import imported
from torchgauge.model.comparison import Change, Comparison
from torchgauge.model.metric import METRICS, Metric
from torchgauge.model.profile import Profile
from torchgauge.model.record import Interval
from torchgauge.model.verdict import Limit, Outcome, Ruling, Tolerance, Verdict, overall

ALPHA = 0.025  # one-sided, as the intervals of 95 % have it on either side


class _Test(NamedTuple):
    """What both sides' processes say of one metric, positive where it got worse."""

    welch: Welch
    tolerance: Tolerance

    @property
    def p(self) -> float:
        """The probability of so much without a change above δ0."""
        stdtr = imported("scipy.special").stdtr

        above = self.welch.estimate - math.log1p(self.tolerance.accepted)
        if self.welch.error == 0:
            return 0.0 if above > 0 else 1.0
        return float(stdtr(self.welch.freedom, -above / self.welch.error))

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
) -> Verdict:
    """Return whether the current run is worse than the stored one by more than is tolerated.

    Exact metrics come first. Times are judged between the same machine, software and settings
    alone, and from six processes on each side; `noise` says by what the host's sessions differ, of
    a host never calibrated a floor of 20 % is assumed. A metric fails where it is surely above δ0,
    passes where it is surely below δ1, and is inconclusive else. One that neither run has is left
    out where it is merely among the `usual`.
    """
    noise = noise or uncalibrated()
    comparison = compare(baseline, current, labels=labels, noise=noise)
    sides = baseline.latency, current.latency
    tests = _tests(baseline, current, comparison, tolerances, noise)
    fallen = dict(zip(tests, holm([test.p for test in tests.values()], ALPHA), strict=True))
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
            said = _said(change, tests[name], sides, noise, fails=fallen[name])
            rulings.append(_tested(change, tests[name], said, len(tests)))
        else:
            rulings.append(_untested(change, tolerance, comparison, sides))
    found = (*rulings, *(judge_limit(limit, current) for limit in limits))
    return Verdict(
        outcome=overall(found),
        rulings=found,
        comparison=comparison,
        guilty=guilty(comparison, found),
    )


def _tests(
    baseline: Profile,
    current: Profile,
    comparison: Comparison,
    tolerances: Sequence[Tolerance],
    noise: HostNoise,
) -> dict[str, _Test]:
    if not comparison.timing_comparable:
        return {}
    found = {}
    for tolerance in tolerances:
        wanted = METRICS[tolerance.metric]
        if wanted.kind != "timing":
            continue
        old, new = by_process(baseline, wanted), by_process(current, wanted)
        change = comparison.change_of(wanted.name)
        if change is None or few_samples(wanted, (baseline.latency, current.latency)):
            continue
        if wanted.better == "higher":
            old, new = new, old  # less of it is worse
        if noise.correction is not None and change.corrected is not None:
            test = corrected(old, new, noise.correction)
        else:
            test = welch(old, new, noise) if min(len(old), len(new)) >= FEWEST else None
        if test is not None:
            found[wanted.name] = _Test(test, tolerance)
    return found


def _said(
    change: Change, test: _Test, sides: Sides, noise: HostNoise, *, fails: bool
) -> tuple[Outcome, str]:
    """Return the outcome of a tested metric and why; what disturbed a run fails nothing."""
    if change.corrected is not None:
        return _reason(test, noise.corrected, fails=fails)
    against = disturbed(METRICS[change.metric], sides, noise, few=False)
    if fails and against is not None:
        return "inconclusive", against
    return _reason(test, noise, fails=fails)


def _reason(test: _Test, noise: HostNoise, *, fails: bool) -> tuple[Outcome, str]:
    tolerance, interval = test.tolerance, test.interval
    if fails:
        return "fail", f"surely worse than {signed(tolerance.accepted)}"
    if interval.high < tolerance.refused:
        return "pass", f"surely not worse by {signed(tolerance.refused)}"
    floor = f"two sessions of one build differ by up to {units.percent(noise.floor)} here"
    if noise.calibrated:
        return "inconclusive", f"{floor}: gate with --base-ref, which runs both builds in turn"
    advice = "torchgauge gate --calibrate TARGET, or gate with --base-ref"
    return "inconclusive", f"{floor} (assumed): {advice}"


def _tested(change: Change, test: _Test, said: tuple[Outcome, str], family: int) -> Ruling:
    outcome, reason = said
    return Ruling(
        metric=change.metric,
        outcome=outcome,
        how=change.how,
        unit=change.unit,
        baseline=change.baseline,
        current=change.current,
        change=test.welch.change if change.corrected is None else _worse(change),
        interval=test.interval if change.corrected is None else None,
        corrected=None if change.corrected is None else test.welch.change,
        corrected_interval=None if change.corrected is None else test.interval,
        tolerance=test.tolerance,
        reason=reason,
        method=change.method + (f", Holm over {family} metrics" if family > 1 else ""),
    )


def _untested(change: Change, tolerance: Tolerance, comparison: Comparison, sides: Sides) -> Ruling:
    outcome: Outcome = "inconclusive"
    reason = change.reason
    known = change.baseline is not None and change.current is not None
    if known and not comparison.timing_comparable:
        outcome = "not comparable"
    elif known and not few_samples(METRICS[change.metric], sides):
        reason = "fewer than 6 processes on a side: re-record both with --processes 10"
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


def _absent(one: Metric, tolerance: Tolerance) -> Ruling:
    return Ruling(
        metric=one.name,
        outcome="inconclusive",
        how="measured" if one.kind in ("timing", "memory") else "counted",
        unit="",
        current=None,
        tolerance=tolerance,
        reason="neither run has it",
    )
