"""A verdict's rulings or a comparison's changes as rows, and the places of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torchgauge.model import rendering
from torchgauge.model.comparison import Change, Comparison, Place
from torchgauge.model.exported import Csv
from torchgauge.model.record import Interval
from torchgauge.model.verdict import Ruling, Verdict

Rows = tuple[Sequence[str], list[list[Any]]]
RULING = (
    "metric,outcome,how,unit,baseline,current,change,interval,corrected,accepted,refused,limit,at_least,"
    "borderline,needed,reason,method"
)
CHANGE = (
    "metric,judgement,how,unit,better,exact,baseline,current,change,interval,corrected,reason,"
    "method"
)
PLACE = (
    "kind,name,type,baseline,current,contribution,change,interval,significant,baseline_flops,"
    "current_flops,baseline_bytes,current_bytes,baseline_calls,current_calls"
)


def rows(record: Verdict | Comparison, table: Csv) -> Rows:
    """Return the names of the columns and the rows; an interval becomes its two ends.

    Raises InputError `format-unfit` for the places of a verdict without a comparison.
    """
    if table == "figures":
        if isinstance(record, Verdict):
            return _named(RULING), [_cells(RULING, one, _bounds(one)) for one in record.rulings]
        return _named(CHANGE), [_cells(CHANGE, one, {}) for one in record.changes]
    found = record.comparison if isinstance(record, Verdict) else record
    if found is None:
        raise rendering.unfit("verdict on one run", table)
    places: Iterable[Place] = getattr(found, table)
    return _named(PLACE), [_cells(PLACE, one, {}) for one in places]


def _bounds(ruling: Ruling) -> dict[str, Any]:
    known, limit = ruling.tolerance, ruling.limit
    return {
        "accepted": None if known is None else known.accepted,
        "refused": None if known is None else known.refused,
        "limit": None if limit is None else limit.value,
    }


def _named(columns: str) -> list[str]:
    return columns.replace("interval", "low,high").split(",")


def _cells(columns: str, one: Ruling | Change | Place, known: dict[str, Any]) -> list[Any]:
    cells: list[Any] = []
    for name in columns.split(","):
        value = known[name] if name in known else getattr(one, name)
        if name == "interval":
            cells += [None, None] if value is None else _ends(value)
        else:
            cells.append(value)
    return cells


def _ends(interval: Interval) -> list[float]:
    return [interval.low, interval.high]
