"""Builds Kineto's categories and tables for traces of other recorders."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgauge.readers.columns import Interned
from torchgauge.readers.kineto.categories import PYTHON
from torchgauge.records.trace.events import ABSENT, Coded, DeviceWork, Integers, Launches, Rows

_NAMES = ("cpu_op", "user_annotation", PYTHON, "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset",
          "gpu_user_annotation", "launch")  # fmt: skip
(HOST, MARK, FUNCTION, CALL, KERNEL, COPY, SET, RANGE, LAUNCH) = range(len(_NAMES))


def with_categories(category: Coded[str], code: Integers) -> Coded[str]:
    """Return the categories, replaced where `code` is one of the numbers above."""
    names: Interned[str | None] = Interned(None)
    original = np.array([names[name] for name in category.values] + [ABSENT], np.int32)
    original = original[category.codes]
    used = set(code.tolist())
    replacement = np.array(
        [names[name] if index in used else ABSENT for index, name in enumerate(_NAMES)] + [ABSENT],
        np.int32,
    )[code]
    return Coded(np.where(code == ABSENT, original, replacement), names.values_by_code())  # type: ignore[arg-type]


def launches(row: Rows, correlation: Integers) -> Launches:
    """Return the table of launches with these rows."""
    return Launches(row=row, correlation=correlation, external_id=np.full(len(row), ABSENT))


def device_work(row: Rows, **known_columns: Any) -> DeviceWork:
    """Return the table of these rows; columns that are not given are absent."""
    count = len(row)
    triple = np.full((count, 3), ABSENT)
    columns: dict[str, Any] = {"grid": triple, "block": triple}
    columns |= {name: np.full(count, np.nan) for name in
                ("blocks_per_sm", "warps_per_sm", "occupancy", "bandwidth")}  # fmt: skip
    columns |= {name: np.full(count, ABSENT) for name in
                ("device", "stream", "correlation", "external_id", "registers", "shared_memory",
                 "graph_node", "size")}  # fmt: skip
    columns["kind"] = Coded[str](np.full(count, ABSENT, np.int32), ())
    return DeviceWork(row=row, **(columns | known_columns))
