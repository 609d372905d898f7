"""Exact metrics under a tolerance: they need no statistics and no quiet machine."""

from __future__ import annotations

from torchgauge.analyze.paired import signed
from torchgauge.model.comparison import Change
from torchgauge.model.verdict import Outcome, Ruling, Tolerance


def exact_ruling(change: Change, tolerance: Tolerance) -> Ruling:
    """Return the ruling on an exact metric: fail above δ0, inconclusive where it is unknown."""
    outcome, reason = _judged(change, tolerance)
    return Ruling(
        metric=change.metric,
        outcome=outcome,
        how=change.how,
        unit=change.unit,
        baseline=change.baseline,
        current=change.current,
        change=change.change,
        tolerance=tolerance,
        at_least=change.reason.startswith("at least"),
        reason=reason,
        method="exact",
    )


def _judged(change: Change, tolerance: Tolerance) -> tuple[Outcome, str]:
    old, new = change.baseline, change.current
    if change.judgement == "unknown" and old is not None and new is not None:
        return "not comparable", change.reason
    if old is None or new is None:
        return "inconclusive", change.reason or "it is not known on both sides"
    if new == old:
        return "pass", "the same" if not change.reason else f"the same, {change.reason}"
    if new < old:
        return "pass", "less"
    if change.change is None or change.change > tolerance.accepted:
        more = "from nothing" if change.change is None else f"by {signed(change.change)}"
        return "fail", f"more {more}; {signed(tolerance.accepted)} is accepted"
    return "pass", f"more by {signed(change.change)}, which is accepted"
