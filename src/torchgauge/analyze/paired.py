"""The paired test of a gate: what the differences of ABBA blocks say, and how many are needed."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

from torchgauge import units
from torchgauge.analyze.holm import holm
from torchgauge.analyze.noise import CONFIDENCE, POWER
from torchgauge.imports import imported
from torchgauge.model.metric import Metric
from torchgauge.model.record import Interval
from torchgauge.model.verdict import Outcome, Ruling, Tolerance

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

    found = estimate(differences)
    if found.deviation == 0:
        return 0.0 if found.mean > bound else 1.0
    statistic = (found.mean - bound) * math.sqrt(found.blocks) / found.deviation
    return float(t.sf(statistic, found.blocks - 1))


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
    """Return what the blocks say of each metric, in the order of the rule.

    "fail" where d is surely above ln(1 + δ0) (Holm over the metrics), else "pass" where it is
    surely below ln(1 + δ1), else "undecided".
    """
    failed = holm(
        [p_value(one.worse, math.log1p(one.tolerance.accepted)) for one in metrics], ALPHA
    )
    return [
        "fail"
        if fails
        else "pass"
        if estimate(one.worse).high < math.log1p(one.tolerance.refused)
        else "undecided"
        for one, fails in zip(metrics, failed, strict=True)
    ]


def blocks_for(s_d: float, tolerance: Tolerance, power: float = POWER) -> int:
    """Return the blocks that a gate needs: ((z₁₋α + z₁₋β)·s_d ÷ width)² rounded up, and 2.

    The width is ln(1 + δ1) − ln(1 + δ0); α is 2.5 % and 1 − β is `power`.
    """
    return _blocks(s_d, math.log1p(tolerance.refused) - math.log1p(tolerance.accepted), power)


def blocks_to_decide(found: Estimate, tolerance: Tolerance) -> int:
    """Return the blocks that would decide if mean and deviation stay what they are."""
    above = found.mean - math.log1p(tolerance.accepted)
    below = math.log1p(tolerance.refused) - found.mean
    return max(_blocks(found.deviation, max(above, below), POWER), found.blocks + 1)


def _blocks(s_d: float, width: float, power: float) -> int:
    norm = imported("scipy.stats").norm

    z = float(norm.ppf(CONFIDENCE) + norm.ppf(power))
    return math.ceil((z * s_d / width) ** 2) + 2


def rulings(metrics: Sequence[Paired]) -> tuple[Ruling, ...]:
    """Return the rulings at the last look: what is undecided then is inconclusive."""
    return tuple(
        _ruling(one, decision, len(metrics))
        for one, decision in zip(metrics, decide(metrics), strict=True)
    )


def _ruling(one: Paired, decision: Decision, family: int) -> Ruling:
    found = estimate(one.worse)
    p = sign_flip_p(one.worse, math.log1p(one.tolerance.accepted))
    among = f", Holm over {family} metrics" if family > 1 else ""
    needed = blocks_to_decide(found, one.tolerance) if decision == "undecided" else None
    return Ruling(
        metric=one.metric.name,
        outcome=_ENDS[decision],
        how="measured",
        unit=one.unit,
        baseline=one.baseline,
        current=one.current,
        change=math.expm1(found.mean),
        interval=found.interval,
        tolerance=one.tolerance,
        needed=needed,
        reason=_reason(found, one.tolerance, decision, needed),
        method=f"{found.blocks} ABBA blocks of fresh processes, one-sided t bounds at "
        f"{units.percent(CONFIDENCE, 3)}{among}; sign-flip p = {p:.2g}",
    )


def _reason(found: Estimate, tolerance: Tolerance, decision: Decision, needed: int | None) -> str:
    low, high = (signed(math.expm1(end)) for end in (found.low, found.high))
    accepted, refused = signed(tolerance.accepted), signed(tolerance.refused)
    if decision == "fail":
        return f"surely worse than {accepted}: by {low} at least"
    if decision == "pass":
        return f"surely not worse by {refused}: by {high} at most"
    return f"between {low} and {high}; {needed} blocks would most likely decide"


def signed(change: float) -> str:
    """Return a relative change with its sign: '+1.2 %'."""
    return f"{'−' if change < 0 else '+'}{units.percent(abs(change))}"
