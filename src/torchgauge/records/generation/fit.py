"""How the time of a forward grows with tokens and context, and what that says of other shapes."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import How, Interval, Record


class Coefficient(Record, frozen=True, kw_only=True):
    """One coefficient of a fit in seconds per unit, with its 95 % interval."""

    value: float
    interval: Interval | None = None


class StageFit(Record, frozen=True, kw_only=True):
    """Seconds of a forward = fixed + per_token × tokens + per_context × pairs.

    Tokens are the positions that the forward computes, of all sequences; pairs are these times the
    positions that each attends to (of a prefill on average half the prompt). Without a cache a
    decode step computes all positions, as a prefill does.

    Attributes:
        stage: "prefill", or "decode" with its time between forwards.
        cache_kind: That of the cells that it is fitted to.
        fixed: Seconds of any forward.
        per_token: Seconds of a token.
        per_context: Seconds of a pair.
        spread: Relative standard deviation of a cell around the fit, for another measurement.
        interpolated: The same of a cell among others where what these differ from the fit by is
            interpolated; None where that is no nearer than the fit.
        extrapolated: The same of the cells of most sequences or of the longest context, as a fit to
            the other cells says them; None where these are too few.
        quantile: That of Student's t for its 95 % intervals; None where cells are too few.
        covariance: Of the coefficients, in rows; what intervals of predictions are made from.
        cells: Shapes (sequences, context) that it is fitted to, with the seconds measured.
        window: Positions that every layer attends to at most; None where a layer attends to all.
        reason: Why there is no interval, or why the fit should be doubted; empty otherwise.
    """

    stage: Literal["prefill", "decode"]
    cache_kind: str
    fixed: Coefficient
    per_token: Coefficient
    per_context: Coefficient
    spread: float
    interpolated: float | None = None
    extrapolated: float | None = None
    quantile: float | None = None
    covariance: tuple[tuple[float, ...], ...] = ()
    cells: tuple[tuple[int, int, float], ...] = ()
    window: int | None = None
    reason: str = ""
    how: How = "estimated"


class GenerationPrediction(Record, frozen=True, kw_only=True):
    """What the fits say of a shape that was not measured; all times are seconds.

    `interval`s hold one measurement of that shape in 95 % of cases, as it would be in the same run.
    `extrapolated` lies outside of what was measured.
    """

    batch: int
    prompt: int
    new_tokens: int
    cache_kind: str
    ttft: float
    tpot: float
    ttft_interval: Interval | None = None
    tpot_interval: Interval | None = None
    cache_bytes: int | None = None
    extrapolated: bool = False
    how: How = "estimated"
