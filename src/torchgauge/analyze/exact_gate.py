"""Figures that need no statistics: one run of each side decides."""

from __future__ import annotations

from torchgauge import units
from torchgauge.model.comparison import Change
from torchgauge.model.verdict import Outcome, Ruling, Tolerance


def ruling(change: Change, tolerance: Tolerance) -> Ruling:
    """Return whether an exact metric got worse by more than δ0."""
    outcome: Outcome
    reason = change.reason
    by = worse(change)
    if change.judgement == "unknown":
        absent = change.baseline is None or change.current is None
        outcome = "inconclusive" if absent else "not comparable"
    elif by is None:
        outcome = "fail" if change.judgement == "worse" else "pass"
    else:
        outcome = "fail" if by > tolerance.accepted else "pass"
    if outcome == "fail" and not reason:
        reason = f"Exact, and beyond the {units.percent(tolerance.accepted)} that is accepted."
    return Ruling(
        metric=change.metric,
        outcome=outcome,
        how=change.how,
        unit=change.unit,
        baseline=change.baseline,
        current=change.current,
        change=by,
        tolerance=tolerance,
        at_least=reason.startswith("at least"),
        reason=reason,
        method="exact",
    )


def worse(change: Change) -> float | None:
    """Return the relative change for the worse; None where the baseline is 0."""
    if change.change is None:
        return None
    return change.change if change.better == "lower" else -change.change
