"""The decisions of a gate on blocks of both builds, and the number of blocks needed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

from torchgauge import units
from torchgauge.analyze.latency.noise import CONFIDENCE, POWER
from torchgauge.analyze.statistics.permuted_blocks import BlockTest, FourLogs, four_of
from torchgauge.imports import imported
from torchgauge.records.metric import Metric
from torchgauge.records.record import How, Interval
from torchgauge.records.verdict import Outcome, Ruling, Tolerance


class Estimate(NamedTuple):
    """The mean of d with its one-sided 97.5 % bounds, and the standard deviation of one d."""

    mean: float
    low: float
    high: float
    deviation: float
    blocks: int

    @property
    def interval(self) -> Interval:
        """The bounds as a relative change; both together hold 95 %."""
        return Interval(low=math.expm1(self.low), high=math.expm1(self.high))


def estimate(differences: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Return mean and one-sided t bounds of the differences of two blocks or more."""
    t = imported("scipy.stats").t

    n = len(differences)
    mean, deviation = statistics.fmean(differences), statistics.stdev(differences)
    reach = float(t.ppf(confidence, n - 1)) * deviation / math.sqrt(n)
    return Estimate(mean, mean - reach, mean + reach, deviation, n)


def p_value(differences: Sequence[float], bound: float) -> float:
    """Return p of a one-sided t test that the true mean is above `bound`."""
    t = imported("scipy.stats").t

    estimated = estimate(differences)
    if estimated.deviation == 0:
        return 0.0 if estimated.mean > bound else 1.0
    statistic = (estimated.mean - bound) * math.sqrt(estimated.blocks) / estimated.deviation
    return float(t.sf(statistic, estimated.blocks - 1))


def holm(p: Sequence[float], alpha: float) -> list[bool]:
    """Return which of several hypotheses are rejected at a family-wise error of `alpha`.

    The smallest p is held against α ÷ m, the next against α ÷ (m − 1), until one holds.

    Source: Holm (1979).
    """
    fallen = [False] * len(p)
    for rank, number in enumerate(sorted(range(len(p)), key=lambda n: p[n])):
        if p[number] > alpha / (len(p) - rank):
            break
        fallen[number] = True
    return fallen


ALPHA = 0.005
"""Of a false alarm at one look: there are two, so that 1 % of gates of one build fail at most."""
FEWEST_BLOCKS = 6
ESTIMATING_BLOCKS = 3
"""Blocks after which the number that will be needed is estimated."""
HOPELESS = 8.0
"""A gate ends early where this multiple of the blocks allowed would not be enough."""

Decision = Literal["fail", "pass", "undecided"]
_ENDS: dict[Decision, Outcome] = {"fail": "fail", "pass": "pass", "undecided": "inconclusive"}


class Paired(NamedTuple):
    """One metric's log times by block of its processes A, B, B, A, and both sides' typical values.

    `undisturbed`: the values are not of the typical calls, but of what no other process disturbed.
    """

    metric: Metric
    unit: str
    logs: tuple[FourLogs, ...]
    tolerance: Tolerance
    baseline: float | None = None
    current: float | None = None
    undisturbed: bool = False

    @property
    def how(self) -> How:
        """What no other process disturbs is estimated from the fastest of what was measured."""
        return "estimated" if self.undisturbed else "measured"

    @property
    def worse(self) -> BlockTest:
        """The test of a change for the worse: of a throughput the signs are turned."""
        sign = 1 if self.metric.better == "lower" else -1
        return BlockTest([four_of(sign * log for log in four) for four in self.logs])


def decide(metrics: Sequence[Paired]) -> list[Decision]:
    """Return the decision on each metric, in the order of the rule.

    "fail" where the change is surely above δ0 (Holm over the metrics), else "pass" where it is
    surely below δ1, else "undecided".
    """
    tests = [paired.worse for paired in metrics]
    p = [t.p_above(math.log1p(m.tolerance.accepted)) for t, m in zip(tests, metrics, strict=True)]
    return [
        "fail"
        if fails
        else "pass"
        if test.bounds(CONFIDENCE)[1] < math.log1p(paired.tolerance.refused)
        else "undecided"
        for paired, test, fails in zip(metrics, tests, holm(p, ALPHA), strict=True)
    ]


def blocks_for(s_d: float, tolerance: Tolerance) -> int:
    """Return the blocks that a gate needs: ((z₁₋α + z₁₋β)·s_d ÷ width)² rounded up, and 2.

    The width is ln(1 + δ1) − ln(1 + δ0); α is 2.5 % and 1 − β is 90 %.
    """
    return _blocks(s_d, math.log1p(tolerance.refused) - math.log1p(tolerance.accepted))


def blocks_to_decide(test: BlockTest, tolerance: Tolerance) -> int:
    """Return the blocks that would decide if mean and deviation stay what they are."""
    above = test.mean - math.log1p(tolerance.accepted)
    below = math.log1p(tolerance.refused) - test.mean
    return max(_blocks(test.deviation, max(above, below)), test.blocks + 1)


def hopeless(metrics: Sequence[Paired], allowed: int) -> bool:
    """Tell whether some metric would stay undecided with far more blocks than are allowed."""
    return any(
        decision == "undecided"
        and blocks_to_decide(paired.worse, paired.tolerance) > HOPELESS * allowed
        for paired, decision in zip(metrics, decide(metrics), strict=True)
    )


def _blocks(s_d: float, width: float) -> int:
    return math.ceil((_quantiles() * s_d / width) ** 2) + 2


def _quantiles() -> float:
    norm = imported("scipy.stats").norm

    return float(norm.ppf(CONFIDENCE) + norm.ppf(POWER))


def rulings(metrics: Sequence[Paired], allowed: int) -> tuple[Ruling, ...]:
    """Return the rulings at the last look: what is undecided then is inconclusive."""
    return tuple(
        _ruling(paired, decision, len(metrics), allowed)
        for paired, decision in zip(metrics, decide(metrics), strict=True)
    )


def _ruling(paired: Paired, decision: Decision, family: int, allowed: int) -> Ruling:
    test = paired.worse
    among = f", Holm over {family} metrics" if family > 1 else ""
    needed = blocks_to_decide(test, paired.tolerance) if decision == "undecided" else None
    p = test.p_above(math.log1p(paired.tolerance.accepted))
    return Ruling(
        metric=paired.metric.name,
        outcome=_ENDS[decision],
        how=paired.how,
        unit=paired.unit,
        baseline=paired.baseline,
        current=paired.current,
        change=test.change,
        interval=test.interval(),
        undisturbed=paired.undisturbed,
        tolerance=paired.tolerance,
        needed=needed,
        reason=_reason(test, paired.tolerance, decision, needed, allowed),
        method=f"{test.blocks} ABBA blocks of fresh processes, permutations within blocks at "
        f"{units.percent(ALPHA)}{among}: p = {p:.2g}",
    )


def _reason(
    test: BlockTest, tolerance: Tolerance, decision: Decision, needed: int | None, allowed: int
) -> str:
    interval = test.interval()
    if interval is None:
        return f"{test.blocks} blocks are too few for an interval"
    low, high = signed(interval.low), signed(interval.high)
    if decision == "fail":
        return f"significantly worse than {signed(tolerance.accepted)}: by at least {low}"
    if decision == "pass":
        return f"significantly below {signed(tolerance.refused)}: at most {high}"
    open_end = f"between {low} and {high}"
    if needed is None or needed <= allowed:
        return open_end
    accepted, refused = (
        f"{100 * share:.3g}%"
        for share in (tolerance.accepted, _decidable(test, tolerance, allowed))
    )
    return f"{open_end}; {allowed} blocks could decide {tolerance.metric}:{accepted}:{refused}"


def _decidable(test: BlockTest, tolerance: Tolerance, blocks: int) -> float:
    """Return the δ1 that a number of blocks would tell from the accepted change."""
    width = _quantiles() * test.deviation / math.sqrt(blocks - 2)
    return (1 + tolerance.accepted) * math.exp(width) - 1


def signed(change: float) -> str:
    """Return a relative change with its sign: '+1.2 %'."""
    return f"{'−' if change < 0 else '+'}{units.percent(abs(change))}"
