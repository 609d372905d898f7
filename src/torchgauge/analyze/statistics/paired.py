"""The paired test of a gate on differences of ABBA blocks, and the number of blocks needed."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

from torchgauge import units
from torchgauge.analyze.latency.noise import CONFIDENCE, POWER
from torchgauge.analyze.statistics.holm import holm
from torchgauge.imports import imported
from torchgauge.records.metric import Metric
from torchgauge.records.record import Interval
from torchgauge.records.verdict import Outcome, Ruling, Tolerance

ALPHA = 1 - CONFIDENCE
FEWEST_BLOCKS = 6
USUAL_BLOCKS = 8
EXACT_FLIPS = 14  # blocks up to which every pattern of signs is counted
FLIPS = 20_000

Decision = Literal["fail", "pass", "undecided"]
_ENDS: dict[Decision, Outcome] = {"fail": "fail", "pass": "pass", "undecided": "inconclusive"}


class Paired(NamedTuple):
    """One metric's d = ln(B ÷ A) by block, and the typical value of both sides in its unit."""

    metric: Metric
    unit: str
    differences: tuple[float, ...]
    tolerance: Tolerance
    baseline: float | None = None
    current: float | None = None

    @property
    def worse(self) -> tuple[float, ...]:
        """The differences, positive where B is worse: of a throughput their signs are turned."""
        return worse(self.differences, self.metric.better)


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


def worse(differences: Sequence[float], better: Literal["lower", "higher"]) -> tuple[float, ...]:
    """Return the differences with the sign that makes a change for the worse positive."""
    return tuple(differences) if better == "lower" else tuple(-d for d in differences)


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


def sign_flip_p(differences: Sequence[float], bound: float) -> float:
    """Return the share of sign patterns of d − `bound` whose sum is at least the observed one.

    Up to 14 blocks all patterns are counted, beyond 20,000 random ones and the observed.
    """
    import numpy as np

    centred = np.asarray(differences) - bound
    n = len(centred)
    if n <= EXACT_FLIPS:
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=n)))
    else:
        signs = np.random.default_rng(n).choice((1.0, -1.0), size=(FLIPS, n))
        signs = np.vstack([np.ones(n), signs])
    sums = signs @ centred
    return float(np.mean(sums >= sums[0] - 1e-12))


def decide(metrics: Sequence[Paired]) -> list[Decision]:
    """Return the decision on each metric, in the order of the rule.

    "fail" where d is surely above ln(1 + δ0) (Holm over the metrics), else "pass" where it is
    surely below ln(1 + δ1), else "undecided".
    """
    failed = holm(
        [p_value(paired.worse, math.log1p(paired.tolerance.accepted)) for paired in metrics], ALPHA
    )
    return [
        "fail"
        if fails
        else "pass"
        if estimate(paired.worse).high < math.log1p(paired.tolerance.refused)
        else "undecided"
        for paired, fails in zip(metrics, failed, strict=True)
    ]


def blocks_for(s_d: float, tolerance: Tolerance, power: float = POWER) -> int:
    """Return the blocks that a gate needs: ((z₁₋α + z₁₋β)·s_d ÷ width)² rounded up, and 2.

    The width is ln(1 + δ1) − ln(1 + δ0); α is 2.5 % and 1 − β is `power`.
    """
    return _blocks(s_d, math.log1p(tolerance.refused) - math.log1p(tolerance.accepted), power)


def blocks_to_decide(estimated: Estimate, tolerance: Tolerance) -> int:
    """Return the blocks that would decide if mean and deviation stay what they are."""
    above = estimated.mean - math.log1p(tolerance.accepted)
    below = math.log1p(tolerance.refused) - estimated.mean
    return max(_blocks(estimated.deviation, max(above, below), POWER), estimated.blocks + 1)


def _blocks(s_d: float, width: float, power: float) -> int:
    norm = imported("scipy.stats").norm

    z = float(norm.ppf(CONFIDENCE) + norm.ppf(power))
    return math.ceil((z * s_d / width) ** 2) + 2


def rulings(metrics: Sequence[Paired]) -> tuple[Ruling, ...]:
    """Return the rulings at the last look: what is undecided then is inconclusive."""
    return tuple(
        _ruling(paired, decision, len(metrics))
        for paired, decision in zip(metrics, decide(metrics), strict=True)
    )


def _ruling(paired: Paired, decision: Decision, family: int) -> Ruling:
    estimated = estimate(paired.worse)
    p = sign_flip_p(paired.worse, math.log1p(paired.tolerance.accepted))
    among = f", Holm over {family} metrics" if family > 1 else ""
    needed = blocks_to_decide(estimated, paired.tolerance) if decision == "undecided" else None
    return Ruling(
        metric=paired.metric.name,
        outcome=_ENDS[decision],
        how="measured",
        unit=paired.unit,
        baseline=paired.baseline,
        current=paired.current,
        change=math.expm1(estimated.mean),
        interval=estimated.interval,
        tolerance=paired.tolerance,
        needed=needed,
        reason=_reason(estimated, paired.tolerance, decision, needed),
        method=f"{estimated.blocks} ABBA blocks of fresh processes, one-sided t bounds at "
        f"{units.percent(CONFIDENCE, 3)}{among}; sign-flip p = {p:.2g}",
    )


def _reason(
    estimated: Estimate, tolerance: Tolerance, decision: Decision, needed: int | None
) -> str:
    low, high = (signed(math.expm1(end)) for end in (estimated.low, estimated.high))
    accepted, refused = signed(tolerance.accepted), signed(tolerance.refused)
    if decision == "fail":
        return f"significantly worse than {accepted}: by at least {low}"
    if decision == "pass":
        return f"significantly below {refused}: at most {high}"
    return f"between {low} and {high}; {needed} blocks would most likely decide"


def signed(change: float) -> str:
    """Return a relative change with its sign: '+1.2 %'."""
    return f"{'−' if change < 0 else '+'}{units.percent(abs(change))}"
