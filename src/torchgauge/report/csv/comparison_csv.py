"""A verdict's rulings or a comparison's changes as rows, and the places of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgauge.records import rendering
from torchgauge.records.comparison import Change, Comparison, Place
from torchgauge.records.exported import Csv
from torchgauge.records.verdict import Ruling, Verdict

Rows = tuple[Sequence[str], list[list[Any]]]
RULING = (
    "metric,outcome,how,unit,baseline,current,change,interval,corrected,accepted,refused,limit,at_least,"
    "borderline,needed,reason,method,shape"
)
CHANGE = (
    "metric,judgement,how,unit,better,exact,baseline,current,change,interval,corrected,reason,"
    "method,shape"
)
PLACE = (
    "kind,name,type,baseline,current,contribution,change,interval,significant,baseline_flops,"
    "current_flops,baseline_bytes,current_bytes,baseline_calls,current_calls,stage"
)


def table(record: Verdict | Comparison, name: Csv) -> Rows:
    """Return the names of the columns and the rows; an interval becomes its two ends.

    Raises InputError `format-unfit` for the places of a verdict without a comparison.
    """
    if name == "figures":
        if isinstance(record, Verdict):
            rulings = [_cells(RULING, ruling, _bounds(ruling)) for ruling in record.rulings]
            return _named(RULING), rulings
        return _named(CHANGE), [_cells(CHANGE, change, {}) for change in record.changes]
    comparison = record.comparison if isinstance(record, Verdict) else record
    if comparison is None:
        raise rendering.unfit("verdict on one run", name)
    if name == "categories":
        raise rendering.unfit(type(record).__name__, name)
    places: list[tuple[Place, str]] = [
        (place, getattr(compared, "stage", ""))
        for compared in comparison.compared_trees
        for place in getattr(compared, name)
    ]
    return _named(PLACE), [_cells(PLACE, place, {"stage": stage}) for place, stage in places]


def _bounds(ruling: Ruling) -> dict[str, Any]:
    tolerance, limit = ruling.tolerance, ruling.limit
    return {
        "accepted": None if tolerance is None else tolerance.accepted,
        "refused": None if tolerance is None else tolerance.refused,
        "limit": None if limit is None else limit.value,
    }


def _named(columns: str) -> list[str]:
    return columns.replace("interval", "low,high").split(",")


def _cells(columns: str, record: Ruling | Change | Place, overrides: dict[str, Any]) -> list[Any]:
    cells: list[Any] = []
    for name in columns.split(","):
        value = overrides[name] if name in overrides else getattr(record, name)
        if name == "interval":
            cells += [None, None] if value is None else [value.low, value.high]
        else:
            cells.append(value)
    return cells
