"""The noise floor: how far two measurements of one build lie apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from torchgauge.imports import imported
from torchgauge.records.target import TargetDescription

BLOCKS = 10
POWER = 0.90
CONFIDENCE = 0.975
LEAST_SESSIONS = 3


def difference(a: float, b: float, b_again: float, a_again: float) -> float:
    """Return d = ln(median B / median A) of one ABBA block from its four medians in order."""
    return (math.log(b) + math.log(b_again) - math.log(a) - math.log(a_again)) / 2


def deviation(differences: Sequence[float]) -> tuple[float, float]:
    """Return s_d and its upper 95 % confidence bound.

    Both sides are the same build, so the true mean is 0 and all n differences count:
    s_d² = Σd²/n, with n·s_d²/σ² ~ χ²(n).
    """
    chi2 = imported("scipy.stats").chi2

    n = len(differences)
    squares = math.fsum(d * d for d in differences)
    return math.sqrt(squares / n), math.sqrt(squares / float(chi2.ppf(0.05, n)))


def resolvable(s_d: float) -> float:
    """Return the relative change beyond the tolerance that a gate of ten blocks tells.

    From K = ((z₁₋α + z₁₋β)·s_d / ln(1 + δ))² + 2 at α = 2.5 % and 90 % power.
    """
    norm = imported("scipy.stats").norm

    z = float(norm.ppf(CONFIDENCE) + norm.ppf(POWER))
    return math.expm1(z * s_d / math.sqrt(BLOCKS - 2))


def between(sessions: Sequence[Sequence[float]]) -> float:
    """Return the standard deviation of log medians between sessions, beyond that within them.

    By the method of moments: the variance of the sessions' means less the mean of their own
    variances over their numbers of processes; 0 where that explains all of it.
    """
    logs = [[math.log(median) for median in session] for session in sessions]
    means = statistics.variance(statistics.fmean(session) for session in logs)
    within = statistics.fmean(statistics.variance(session) / len(session) for session in logs)
    return math.sqrt(max(0.0, means - within))


def workload(target: TargetDescription) -> str:
    """Return the name of a timed target in a host's calibration: the same name, the same work."""
    inputs = " ".join(
        f"{tensor.name}={'x'.join(map(str, tensor.shape))}" for tensor in target.inputs
    )
    step = "training" if target.training else "inference"
    return " ".join(filter(None, (target.spec, inputs, target.device, target.precision, step)))
