"""Exact metrics under a tolerance: they need no statistics and no quiet machine."""

from __future__ import annotations

from torchgauge import units
from torchgauge.analyze.statistics.paired import signed
from torchgauge.records.comparison import Change
from torchgauge.records.verdict import Outcome, Ruling, Tolerance


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
    increase = f"more by {units.amount(new - old, change.unit, change.metric)}"
    if change.judgement == "same":
        return "pass", f"{increase}: {change.reason}"
    if change.change is None or old <= 0 or change.change > tolerance.accepted:
        accepted = signed(tolerance.accepted) if tolerance.accepted else "none"
        return "fail", f"{increase}; {accepted} is accepted"
    return "pass", f"{increase}, which is accepted"
