"""The tensors alive at a peak: the largest storages by name, the rest of each part as one row."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from torchgauge.analyze.memory.recorded_ranges import Ranges
from torchgauge.records.memory.alive_tensor import AliveTensor, Part

MAX_ROWS = 100  # per part; smaller storages share a row
OTHERS_NAME = "others"


@dataclasses.dataclass(frozen=True)
class AliveStorage:
    """One storage alive at the peak, with the time and the thread (of the trace) of its allocation.

    `allocated_at` None: it is older than the step.
    """

    part: Part
    size: int
    name: str = ""
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    allocated_at: int | None = None
    thread: int = -1


def alive_tensors(
    alive: Iterable[AliveStorage], operators: Ranges, layers: Ranges, paths: Mapping[str, str]
) -> tuple[AliveTensor, ...]:
    """Return the rows of the alive storages, largest first; sizes add up to those given.

    `paths` are the layers' by the name of their range.
    """
    by_part: dict[Part, list[AliveStorage]] = {}
    for storage in sorted(alive, key=lambda storage: -storage.size):
        by_part.setdefault(storage.part, []).append(storage)
    rows = []
    for part, storages in by_part.items():
        rows += [_row(storage, operators, layers, paths) for storage in storages[:MAX_ROWS]]
        if smaller_storages := storages[MAX_ROWS:]:
            size = sum(storage.size for storage in smaller_storages)
            rows.append(
                AliveTensor(part=part, name=OTHERS_NAME, size=size, count=len(smaller_storages))
            )
    return tuple(sorted(rows, key=lambda row: -row.size))


def _row(
    storage: AliveStorage, operators: Ranges, layers: Ranges, paths: Mapping[str, str]
) -> AliveTensor:
    name, operator = storage.name, ""
    if storage.allocated_at is not None:
        name = name or paths.get(layers.innermost(storage.allocated_at, storage.thread), "")
        operator = operators.innermost(storage.allocated_at, storage.thread)
    return AliveTensor(
        part=storage.part,
        name=name,
        size=storage.size,
        operator=operator,
        shape=storage.shape,
        dtype=storage.dtype,
    )
