"""How far the parts of a tree are from the step as it runs undisturbed."""

from __future__ import annotations

from torchgauge import units
from torchgauge.model.record import MeasurementWarning

# Between runs of one model on a quiet machine it is 1–3 %.
TOLERATED = 0.1


def residual_warnings(residual: float | None, bare: float | None) -> tuple[MeasurementWarning, ...]:
    """Return what is to be said where the parts' sum is far from the bare step (both in s)."""
    if residual is None or not bare or abs(residual) <= TOLERATED * bare:
        return ()
    side = "above" if residual > 0 else "below"
    return (
        MeasurementWarning(
            id="tree-residual",
            message=f"The tree's times add up to {units.percent(abs(residual) / bare)} {side} the "
            "step without instruments.",
            probe="timeline",
            cause="Threads of the model worked side by side, something else ran on the machine "
            "meanwhile, or the instruments cost that much.",
            remedy="Read the tree's shares, not its times; repeat it on a quiet machine.",
        ),
    )
