"""A gate against a stored baseline: the other build is not here to be run again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torchgauge import units
from torchgauge.analyze import exact_gate
from torchgauge.analyze.by_process import by_process
from torchgauge.analyze.compare import compare
from torchgauge.analyze.guilty import guilty
from torchgauge.analyze.holm import holm
from torchgauge.analyze.limits import judge_limit
from torchgauge.analyze.stored import FEWEST, HostNoise, Welch, uncalibrated, welch
from torchgauge.analyze.tolerances import default_tolerance
from torchgauge.model.comparison import Change, Comparison
from torchgauge.model.metric import METRICS, Metric, metric
from torchgauge.model.profile import Profile
from torchgauge.model.record import Interval
from torchgauge.model.verdict import Limit, Outcome, Ruling, Tolerance, Verdict, overall

GATED = ("params", "flops", "memory", "latency")
ALPHA = 0.025  # one-sided, as the intervals of 95 % have it on either side


class _Test(NamedTuple):
    """What both sides' processes say of one metric, positive where it got worse."""

    welch: Welch
    tolerance: Tolerance

    @property
    def p(self) -> float:
        """The probability of so much without a change above δ0."""
        from scipy.special import stdtr

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
    *,
    metrics: Sequence[str] = (),
    tolerances: Sequence[Tolerance] = (),
    limits: Sequence[Limit] = (),
    noise: HostNoise | None = None,
    labels: tuple[str, str] = ("baseline", "current"),
) -> Verdict:
    """Return whether the current run is worse than the stored one by more than is tolerated.

    Exact metrics come first. Times are judged between the same machine, software and settings
    alone, and from six processes on each side; `noise` says by what the host's sessions differ, of
    a host never calibrated a floor of 20 % is assumed. A metric fails where it is surely above δ0,
    passes where it is surely below δ1, and is inconclusive else. Without `metrics` these are gated:
    params, flops, memory, latency, and what has a tolerance.

    Raises InputError `metric-unknown`.
    """
    noise = noise or uncalibrated()
    comparison = compare(baseline, current, labels=labels, noise=noise)
    known = {one.metric: one for one in tolerances}
    wanted = [metric(name) for name in dict.fromkeys((*(metrics or GATED), *known))]
    wanted = [one for one in wanted if metrics or one.name in known or _there(one, comparison)]
    told = {one.name: known.get(one.name) or default_tolerance(one) for one in wanted}
    tests = _tests(baseline, current, comparison, told, noise)
    fallen = dict(zip(tests, holm([test.p for test in tests.values()], ALPHA), strict=True))
    rulings = []
    for one in wanted:
        change, tolerance = comparison.change_of(one.name), told[one.name]
        if change is None:
            rulings.append(_absent(one, tolerance))
        elif change.exact:
            rulings.append(exact_gate.ruling(change, tolerance))
        elif one.name in tests:
            rulings.append(_tested(change, tests[one.name], fallen[one.name], noise, len(tests)))
        else:
            rulings.append(_untested(change, tolerance, comparison))
    rulings += [judge_limit(limit, current) for limit in limits]
    found = tuple(rulings)
    outcome = overall(found)
    return Verdict(
        outcome=outcome,
        rulings=found,
        comparison=comparison,
        guilty=guilty(comparison) if outcome == "fail" else (),
    )


def _there(one: Metric, comparison: Comparison) -> bool:
    return comparison.change_of(one.name) is not None


def _tests(
    baseline: Profile,
    current: Profile,
    comparison: Comparison,
    told: Mapping[str, Tolerance],
    noise: HostNoise,
) -> dict[str, _Test]:
    if not comparison.timing_comparable:
        return {}
    found = {}
    for name, tolerance in told.items():
        if METRICS[name].kind != "timing":
            continue
        old, new = by_process(baseline, METRICS[name]), by_process(current, METRICS[name])
        if min(len(old), len(new)) < FEWEST:
            continue
        if METRICS[name].better == "higher":
            old, new = new, old  # less of it is worse
        test = welch(old, new, noise)
        if test is not None:
            found[name] = _Test(test, tolerance)
    return found


def _tested(change: Change, test: _Test, fails: bool, noise: HostNoise, family: int) -> Ruling:
    interval, tolerance = test.interval, test.tolerance
    outcome: Outcome
    if fails:
        outcome, reason = "fail", f"Surely worse than {units.percent(tolerance.accepted)}."
    elif interval.high < tolerance.refused:
        outcome, reason = "pass", f"Surely not worse by {units.percent(tolerance.refused)}."
    else:
        outcome = "inconclusive"
        reason = _undecided(noise)
    return Ruling(
        metric=change.metric,
        outcome=outcome,
        how=change.how,
        unit=change.unit,
        baseline=change.baseline,
        current=change.current,
        change=test.welch.change,
        interval=interval,
        tolerance=tolerance,
        reason=reason,
        method=change.method + (f", Holm over {family} metrics" if family > 1 else ""),
    )


def _undecided(noise: HostNoise) -> str:
    floor = f"two sessions of one build differ by up to {units.percent(noise.floor)} here"
    if noise.calibrated:
        return f"{floor}: gate with --base-ref, which runs both builds in turn"
    return f"{floor} (assumed): torchgauge gate --calibrate TARGET, or --base-ref"


def _untested(change: Change, tolerance: Tolerance, comparison: Comparison) -> Ruling:
    outcome: Outcome = "inconclusive"
    reason = change.reason
    known = change.baseline is not None and change.current is not None
    if known and not comparison.timing_comparable:
        outcome = "not comparable"
    elif known:
        reason = "fewer than 6 processes on a side: re-record both with --processes 10"
    return Ruling(
        metric=change.metric,
        outcome=outcome,
        how=change.how,
        unit=change.unit,
        baseline=change.baseline,
        current=change.current,
        change=exact_gate.worse(change),
        tolerance=tolerance,
        reason=reason,
    )


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
