"""The decisions of a gate on blocks of both builds: their permutation test, and their number."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge import units
from torchgauge.analyze.latency.noise import CONFIDENCE, POWER
from torchgauge.imports import imported
from torchgauge.records.metric import Metric
from torchgauge.records.record import How, Interval
from torchgauge.records.verdict import Outcome, Ruling, Tolerance

Floats = npt.NDArray[np.float64]
FourLogs = tuple[float, float, float, float]


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


"""The logs of a block's four processes, which are A, B, B, A."""

BLOCK_CONFIDENCE = 0.975
EXACT_BLOCKS = 6  # blocks up to which every assignment is counted: 6⁶ = 46,656
DRAWS = 20_000
# What two of the four processes are B's: first the assignment that was run (A, B, B, A).
ASSIGNMENTS = np.array([[-1, 1, 1, -1], [-1, -1, 1, 1], [-1, 1, -1, 1]]) / 2
ASSIGNMENTS = np.concatenate([ASSIGNMENTS, -ASSIGNMENTS])
OVERLAPS = ASSIGNMENTS @ ASSIGNMENTS[0]
FAR = 4.0
"""Blocks whose variance is beyond this multiple of the median one's count for less."""


def four_of(logs: Iterable[float]) -> FourLogs:
    """Return the logs of a block's four processes."""
    a, b, b_again, a_again = logs
    return a, b, b_again, a_again


class BlockTest:
    """The change of B against A over blocks, from the log times of each block's four processes.

    If both builds are alike, the four times of a block could have come in any order: the mean d is
    compared with those under all other assignments of two processes to B. No distribution of the
    noise is assumed; blocks may be noisy in different degrees, and resemble their neighbours. A
    block whose four times are far more scattered than those of the others, whichever build they
    are of, counts for less in the mean.

    Source: Pitman (1937) for the test; Garthwaite (1996) for its interval.
    """

    def __init__(self, logs: Sequence[FourLogs]) -> None:
        values = np.asarray(logs, dtype=np.float64)
        choices = _choices(len(values))
        weights = self._weights = _weights(values)
        means = (values @ ASSIGNMENTS.T)[np.arange(len(values)), choices] @ weights
        overlaps = OVERLAPS[choices] @ weights
        is_different = overlaps < 1 - 1e-9
        self.blocks = len(values)
        self.mean = float(means[0])
        self._count = len(choices)
        self._same_count = self._count - int(is_different.sum())
        self._within_builds = values[:, [0, 1]] - values[:, [3, 2]]
        # The change from which on an assignment's mean is no longer below the observed one.
        self._changes = np.sort((means[0] - means[is_different]) / (1 - overlaps[is_different]))

    def p_above(self, bound: float) -> float:
        """Return p of the hypothesis that the true mean is at most `bound`."""
        reached = np.searchsorted(self._changes, bound + 1e-12, "right")
        return (self._same_count + int(reached)) / self._count

    @property
    def p(self) -> float:
        """The two-sided probability of so large a mean without a change."""
        above = self._same_count + len(self._changes) - int(np.searchsorted(self._changes, -1e-12))
        return min(1.0, 2 * min(self.p_above(0.0), above / self._count))

    def bounds(self, confidence: float) -> tuple[float, float]:
        """Return the one-sided bounds of the mean, infinite where there are too few blocks."""
        rank = math.floor((1 - confidence) * self._count + 1e-9) - self._same_count
        if not 0 <= rank < len(self._changes):
            return -math.inf, math.inf
        return float(self._changes[rank]), float(self._changes[-1 - rank])

    @property
    def deviation(self) -> float:
        """The standard deviation of one block's d, by how far processes of one build differ."""
        return math.sqrt(float(self._weights @ (self._within_builds**2).sum(axis=1)) / 4)

    @property
    def change(self) -> float:
        """The mean as a relative change."""
        return math.expm1(self.mean)

    def interval(self) -> Interval | None:
        """Return the bounds as a relative change; both hold 95 %. None where they are infinite."""
        low, high = self.bounds(BLOCK_CONFIDENCE)
        return None if math.isinf(low) else Interval(low=math.expm1(low), high=math.expm1(high))


def _weights(values: Floats) -> Floats:
    """Return the blocks' shares of the mean: equal, but for those that are far more scattered."""
    variances = values.var(axis=1, ddof=1)
    usual = max(FAR * float(np.median(variances)), 1e-12)
    weights = np.minimum(1.0, usual / np.maximum(variances, usual))
    return np.asarray(weights / weights.sum())


@functools.cache
def _choices(blocks: int) -> npt.NDArray[np.intp]:
    """Return assignments by block, the observed one first: all, or 20,000 random ones and it."""
    if blocks <= EXACT_BLOCKS:
        return np.indices((len(ASSIGNMENTS),) * blocks).reshape(blocks, -1).T
    drawn = np.random.default_rng(blocks).integers(len(ASSIGNMENTS), size=(DRAWS, blocks))
    drawn[0] = 0
    return drawn
