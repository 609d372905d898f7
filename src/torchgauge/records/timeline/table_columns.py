"""The quantity in a column of a flat table, by the column's name."""

from __future__ import annotations

from typing import Literal

Quantity = Literal["time", "bytes", "count", "percent", "share", "rate", "number", "text"]

_BY_NAME: dict[Quantity, tuple[str, ...]] = {
    "time": (
        *("host_time", "host_time_self", "device_time", "device_time_self"),
        *("avg", "min", "median", "max"),
    ),
    "bytes": (
        *("bytes", "allocated", "allocations", "peak", "retained_for_backward"),
        "shared_memory",
    ),
    "count": ("flops", "parameters", "calls", "# of Calls", "registers"),
    "share": ("share", "efficiency", "occupancy"),
    "rate": ("flops_per_second", "bytes_per_second", "bandwidth"),
    "number": ("intensity",),
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
_QUANTITY_BY_NAME = {name: quantity for quantity, names in _BY_NAME.items() for name in names}


def quantity_of(column: str) -> Quantity:
    """Return what a column holds: seconds, bytes, percent, a share of 1; text where not known."""
    if column in _QUANTITY_BY_NAME:
        return _QUANTITY_BY_NAME[column]
    endings = (quantity for ending, quantity in _BY_ENDING.items() if column.endswith(ending))
    return next(endings, "text")
