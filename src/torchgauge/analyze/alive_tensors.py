"""The storages alive at a peak → the largest by name, the others of a part together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from torchgauge.model.alive_tensor import AliveTensor, Part
from torchgauge.trace.allocations import Ranges

MOST = 100  # of each part as many; what is smaller is told together
OTHERS = "others"


@dataclasses.dataclass(frozen=True)
class Alive:
    """One storage: what is known of it, and when and on which thread (of the trace) it was made.

    `born` None: it is older than the step.
    """

    part: Part
    size: int
    name: str = ""
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    born: int | None = None
    thread: int = -1


def alive_tensors(
    alive: Iterable[Alive], operators: Ranges, layers: Ranges, paths: Mapping[str, str]
) -> tuple[AliveTensor, ...]:
    """Return what was alive, the largest first; the sizes add up to those given.

    `paths` are the layers' by the name of their range.
    """
    by_part: dict[Part, list[Alive]] = {}
    for one in sorted(alive, key=lambda one: -one.size):
        by_part.setdefault(one.part, []).append(one)
    rows = []
    for part, storages in by_part.items():
        rows += [_row(one, operators, layers, paths) for one in storages[:MOST]]
        if rest := storages[MOST:]:
            size = sum(one.size for one in rest)
            rows.append(AliveTensor(part=part, name=OTHERS, size=size, count=len(rest)))
    return tuple(sorted(rows, key=lambda one: -one.size))


def _row(one: Alive, operators: Ranges, layers: Ranges, paths: Mapping[str, str]) -> AliveTensor:
    name, operator = one.name, ""
    if one.born is not None:
        name = name or paths.get(_innermost(layers, one.born, one.thread), "")
        operator = _innermost(operators, one.born, one.thread)
    return AliveTensor(
        part=one.part,
        name=name,
        size=one.size,
        operator=operator,
        shape=one.shape,
        dtype=one.dtype,
    )


def _innermost(ranges: Ranges, time: int, thread: int) -> str:
    """Return the name of the last range of a thread to begin before a time and end after it."""
    around = (ranges.thread == thread) & (ranges.start <= time) & (ranges.end >= time)
    found = np.flatnonzero(around)
    return ranges.name[found[-1]] if len(found) else ""
