"""The page of a gate's verdict: the rulings, and behind them the comparison."""

from __future__ import annotations

from typing import Any

from torchgauge.model.verdict import Ruling, Verdict
from torchgauge.report import page_comparison, rulings
from torchgauge.report.comparison import said
from torchgauge.report.page_overview import warnings


def overview(verdict: Verdict) -> dict[str, Any]:
    """Return the first screen of a verdict."""
    compared = verdict.comparison
    sides = rulings.sides(compared) if compared is not None else ()
    guilty = [
        {"title": name, "text": "", "view": "contributions", "node": None, "search": ""}
        for name in verdict.guilty
    ]
    return {
        "facts": [[name.strip(), side.label, said(side)] for name, side in sides],
        "created": compared.current.created if compared is not None else "",
        "figures": [_card(one) for one in verdict.rulings],
        "bound": None,
        "phases": None,
        "findings": guilty,
        "warnings": warnings(verdict.all_warnings),
        "complete": True,
        "interrupted": False,
    }


def _card(one: Ruling) -> dict[str, str]:
    parts = [one.outcome, rulings.change(one), rulings.allowed(one)]
    figure = rulings.figure(one).rpartition("→")[2].strip()
    note = ", ".join(part for part in parts if part)
    return {"label": one.metric, "value": figure, "note": note, "how": one.how, "view": "changes"}


def changes(verdict: Verdict) -> dict[str, Any]:
    """Return the rulings as rows of a table, and what differs around the runs."""
    compared = verdict.comparison
    around = page_comparison.changes(compared) if compared is not None else {"differences": []}
    return {
        "rows": [_row(one) for one in verdict.rulings],
        "differences": around["differences"],
        "paired": bool(verdict.blocks),
    }


def _row(one: Ruling) -> dict[str, Any]:
    old, arrow, new = rulings.figure(one).rpartition("→")
    tolerance = one.tolerance
    relative = one.interval if one.limit is None else None
    return {
        "metric": one.metric,
        "baseline": old.strip() if arrow else "",
        "current": new.strip(),
        "change": one.change,
        "text": rulings.change(one),
        "interval": None if relative is None else [relative.low, relative.high],
        "range": rulings.interval(one),
        "judgement": one.outcome,
        "how": one.how,
        "note": "; ".join(part for part in (rulings.allowed(one), rulings.why(one)) if part),
        "bounds": [tolerance.accepted, tolerance.refused]
        if tolerance is not None and tolerance.refused
        else [],
    }


def contributions(verdict: Verdict) -> list[dict[str, Any]] | None:
    """Return what adds up to the step's change, as of the comparison."""
    compared = verdict.comparison
    return None if compared is None else page_comparison.contributions(compared)


def tables(verdict: Verdict) -> list[dict[str, Any]] | None:
    """Return the comparison's tables of places."""
    return None if verdict.comparison is None else page_comparison.tables(verdict.comparison)
