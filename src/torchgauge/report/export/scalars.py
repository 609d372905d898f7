"""The figures of a record as names and floats, for experiment trackers."""

from __future__ import annotations

from torchgauge.records.exported import Exported

GROUP = "torchgauge"


def scalars(record: Exported) -> dict[str, float]:
    """Return the known figures under the names of `record.summary()`, in one group."""
    return {
        f"{GROUP}/{name}": float(value)
        for name, value in record.summary().items()
        if isinstance(value, int | float)
    }
