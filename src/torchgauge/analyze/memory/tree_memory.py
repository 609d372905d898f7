"""Merge the figures of the memory pass into the layers, operators and ranges of the recording."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from torchgauge.records.memory.memory import AliveTensor, Part
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.events import Events, Integers

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


_ADDITIVE = ("allocations", "allocated", "retained", "parameters")


def with_memory(tree: Tree, memory: Tree) -> Tree:
    """Return the tree with the memory figures of another one of the same step.

    A row is found by its name, kind, phase and shapes, below the same parent. What only the
    memory pass saw is its parent's own, so that the sums of both are equal; what it did not see
    stays unknown. Its passes and warnings are added.
    """
    numbers: dict[tuple[object, ...], int] = {}
    for number, row in enumerate(tree.rows):
        numbers.setdefault(_key(row, row.parent), number)
    figures_by_row: dict[int, dict[str, int]] = {}
    target_rows: list[int] = []
    for row in memory.rows:
        around = target_rows[row.parent] if row.parent >= 0 else -1
        number_in_tree = numbers.get(_key(row, around))
        target_rows.append(max(around, 0) if number_in_tree is None else number_in_tree)
        figures = figures_by_row.setdefault(target_rows[-1], {})
        for name in _ADDITIVE:
            value = getattr(row, name)
            if value is not None:
                figures[name] = figures.get(name, 0) + value
        if number_in_tree is not None and row.peak is not None:
            figures["peak"] = row.peak
    rows = tuple(
        msgspec.structs.replace(row, **figures_by_row[number]) if number in figures_by_row else row
        for number, row in enumerate(tree.rows)
    )
    passes = memory.passes
    if tree.passes:
        bare_times = {name: getattr(tree.passes[0], name) for name in ("bare", "bare_interval")}
        passes = tuple(msgspec.structs.replace(tree_pass, **bare_times) for tree_pass in passes)
    return msgspec.structs.replace(
        tree,
        rows=rows,
        passes=(*tree.passes, *passes),
        allocator=memory.allocator,
        warnings=(*tree.warnings, *memory.warnings),
    )


def _key(row: TreeRow, parent: int) -> tuple[object, ...]:
    return parent, row.kind, row.name, row.path, row.phase, row.shapes


@dataclasses.dataclass(frozen=True, eq=False)
class Ranges:
    """Stretches of one thread's time, sorted by start, the longer first.

    Attributes:
        name: What the recording calls each.
        start: When it begins, in ns from the earliest timestamp of the recording.
        end: When it ends, in the same.
        thread: An index into `Events.thread.values`.
    """

    name: tuple[str, ...]
    start: Integers
    end: Integers
    thread: Integers

    def take(self, entries: NDArray[np.bool_] | NDArray[np.intp]) -> Ranges:
        """Return the ranges of these entries (indices or a mask)."""
        chosen = np.arange(len(self.name))[entries]
        return Ranges(
            name=tuple(self.name[i] for i in chosen.tolist()),
            start=self.start[chosen],
            end=self.end[chosen],
            thread=self.thread[chosen],
        )

    def innermost(self, time: int, thread: int) -> str:
        """Return the name of the last range of a thread to begin before a time and end after it."""
        around = (self.thread == thread) & (self.start <= time) & (self.end >= time)
        enclosing = np.flatnonzero(around)
        return self.name[enclosing[-1]] if len(enclosing) else ""


def named_ranges(events: Events, prefix: str) -> Ranges:
    """Return the spans whose names start with the prefix."""
    return _ranges(events, events.name.where(lambda name: name.startswith(prefix)))


def outermost_operators(events: Events, without: tuple[str, ...] = ()) -> Ranges:
    """Return the operators of each thread that no earlier one still covers at their start.

    Args:
        events: The recording.
        without: Prefixes of names of ranges, which the profiler records as operators.
    """
    operators = events.category.where(lambda category: category == "cpu_op")
    ranges = _ranges(events, operators & ~events.name.where(lambda name: name.startswith(without)))
    outermost = np.zeros(len(ranges.start), dtype=bool)
    for thread in np.unique(ranges.thread):
        rows = np.flatnonzero(ranges.thread == thread)
        covered = np.maximum.accumulate(ranges.end[rows])
        outermost[rows[:1]] = True
        outermost[rows[1:]] = ranges.start[rows[1:]] >= covered[:-1]
    return ranges.take(outermost)


def _ranges(events: Events, chosen: NDArray[np.bool_]) -> Ranges:
    rows = np.flatnonzero(chosen)
    rows = rows[np.lexsort((-events.duration[rows], events.start[rows]))]
    names = events.name.take(rows)
    return Ranges(
        name=tuple(names.values[code] for code in names.codes.tolist()),
        start=events.start[rows],
        end=events.start[rows] + events.duration[rows],
        thread=events.thread.codes[rows],
    )
