"""The quantity in a column of a flat table, by the column's name."""

from __future__ import annotations

from torchgauge.records.timeline.layer_columns import PYTHON_COLUMNS
from torchgauge.records.timeline.quantity import Quantity

_BY_NAME: dict[Quantity, tuple[str, ...]] = {
    "time": ("time", "avg", "min", "median", "max"),
    "bytes": ("shared_memory",),
    "count": ("# of Calls", "registers"),
    "share": ("share", "occupancy", "compute_share", "memory_share", "tensor_cores"),
    "bytes/s": ("bandwidth",),
}
# torch.profiler's names hold the clock or the allocator: "Self CUDA %", "CPU Mem".
_BY_ENDING: dict[str, Quantity] = {
    "%": "percent",
    " Mem": "bytes",
    " total": "time",
    " time avg": "time",
    "Self CPU": "time",
    "Self CUDA": "time",
}
_QUANTITY_BY_NAME = {column.key: column.unit for column in PYTHON_COLUMNS} | {
    name: quantity for quantity, names in _BY_NAME.items() for name in names
}


def quantity_of(column: str) -> Quantity:
    """Return what a column holds: seconds, bytes, percent, a share of 1; text where not known."""
    if column in _QUANTITY_BY_NAME:
        return _QUANTITY_BY_NAME[column]
    endings = (quantity for ending, quantity in _BY_ENDING.items() if column.endswith(ending))
    return next(endings, "text")
