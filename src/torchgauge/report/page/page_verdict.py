"""The page of a gate's verdict: the rulings, and behind them the comparison."""

from __future__ import annotations

from typing import Any

from torchgauge.records.verdict import Ruling, Verdict
from torchgauge.report.content import rulings
from torchgauge.report.content.comparison import side_details
from torchgauge.report.page import page_comparison
from torchgauge.report.page.page_document import figure, finding, first_screen


def overview(verdict: Verdict) -> dict[str, Any]:
    """Return the first screen of a verdict."""
    compared = verdict.comparison
    sides = rulings.sides(compared) if compared is not None else ()
    return first_screen(
        ([name.strip(), side.label, side_details(side)] for name, side in sides),
        map(_card, rulings.failures_first(verdict)),
        (finding(name, "", "contributions") for name in verdict.regressed_layers),
        verdict.all_warnings,
        created=compared.current.created if compared is not None else "",
    )


def _card(ruling: Ruling) -> dict[str, str]:
    parts = [ruling.outcome, rulings.change(ruling), _allowed(ruling)]
    value = rulings.figure(ruling).rpartition("→")[2].strip()
    note = ", ".join(part for part in parts if part)
    return figure(ruling.label, value, note, ruling.how, "changes")


def _allowed(ruling: Ruling) -> str:
    bounds = rulings.allowed(ruling)
    return f"allowed {bounds}" if bounds and bounds[0] in "+≤≥" else bounds


def changes(verdict: Verdict) -> dict[str, Any]:
    """Return the rulings as rows of a table, and the differences of environment."""
    compared = verdict.comparison
    around = page_comparison.changes(compared) if compared is not None else {"differences": []}
    return {
        "rows": [_row(ruling) for ruling in rulings.failures_first(verdict)],
        "differences": around["differences"],
        "paired": bool(verdict.blocks),
    }


def _row(ruling: Ruling) -> dict[str, Any]:
    old, arrow, new = rulings.figure(ruling).rpartition("→")
    tolerance = ruling.tolerance
    relative = ruling.interval if ruling.limit is None else None
    return {
        "metric": ruling.label,
        "baseline": old.strip() if arrow else "",
        "current": new.strip(),
        "change": ruling.change,
        "text": rulings.change(ruling),
        "interval": None if relative is None else [relative.low, relative.high],
        "range": rulings.interval(ruling),
        "judgement": ruling.outcome,
        "how": ruling.how,
        "note": "; ".join(part for part in (_allowed(ruling), rulings.explanation(ruling)) if part),
        "bounds": [tolerance.accepted, tolerance.refused]
        if tolerance is not None and tolerance.refused
        else [],
    }


def contributions(verdict: Verdict) -> list[dict[str, Any]] | None:
    """Return each layer's share of the step's change, from the comparison."""
    compared = verdict.comparison
    return None if compared is None else page_comparison.contributions(compared)


def tables(verdict: Verdict) -> list[dict[str, Any]] | None:
    """Return the comparison's tables of places."""
    return None if verdict.comparison is None else page_comparison.tables(verdict.comparison)


def title(verdict: Verdict) -> str:
    """Return the page's title."""
    compared = verdict.comparison
    suffix = "" if compared is None else f": {compared.current.target.name}"
    return f"{verdict.outcome.upper()}{suffix}"


PARTS = {"overview": overview, "changes": changes, "contributions": contributions, "tables": tables}
