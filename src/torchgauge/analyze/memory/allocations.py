"""The memory of a step from allocation events: what was alive when, and for which part.

Every event has a position in the order of events; a block lives from the position of its
allocation up to, and without, the one of its free. Sums over positions are exact: no clock is in
them. Times only place the marks among the events, and operators around allocations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from torchgauge.analyze.memory.tree_memory import AliveStorage, Ranges
from torchgauge.records.memory.memory import PARTS, MemoryPoint, Part
from torchgauge.records.trace.events import Integers, MemoryEvents

MAX_POINTS = 2000
_NEVER = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class NamedStorage:
    """A storage whose purpose the program knows: alive at `time`, `size` in bytes.

    `shape` and `dtype` are of a tensor in it.
    """

    part: Part
    address: int
    size: int
    time: int
    name: str = ""
    shape: tuple[int, ...] | None = None
    dtype: str = ""


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """The marks of one step in ns of the recording.

    Made after `optimizer` starts, a block is no activation. None: the step has no such phase.
    """

    start: int
    forward: int
    forward_end: int
    end: int
    optimizer: int | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Blocks:
    """Every block allocated in the recording: positions of its first and past its last event.

    `lost` counts blocks whose address was allocated again though no free was recorded.
    """

    address: Integers
    size: Integers
    thread: Integers
    allocation_position: Integers
    free_position: Integers
    allocation_time: Integers
    free_time: Integers
    times: Integers
    lost: int

    def position(self, time: int) -> int:
        """Return the position of the last event that is not after `time` (ns)."""
        return int(np.searchsorted(self.times, time, side="right")) - 1

    def alive(self, position: int) -> NDArray[np.bool_]:
        """Return which blocks are alive once the event at `position` has happened."""
        return (self.allocation_position <= position) & (self.free_position > position)


@dataclasses.dataclass(frozen=True)
class StepMemory:
    """What a step needs, in bytes; `parts` are those alive at the peak and add up to `peak`.

    `alive` are the storages that make them up; `before` and `after` are alive at the step's ends.
    `peak_at` is the time (ns of the recording) and the thread of the allocation that made the peak;
    None where the step began with it.
    """

    peak: int
    peak_at: tuple[int, int] | None
    average: float
    parts: dict[Part, int]
    alive: tuple[AliveStorage, ...]
    before: int
    after: int
    retained: int
    timeline: tuple[MemoryPoint, ...]


def pair(events: MemoryEvents) -> Blocks:
    """Return the blocks of one device's events; a free of a block made before them is ignored."""
    rows: list[int] = []
    freed = np.full(len(events.time), _NEVER)
    freed_at = np.full(len(events.time), _NEVER)
    current: dict[int, int] = {}
    lost = 0
    columns = (events.size, events.address, events.time)
    for i, (size, address, time) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        previous = current.pop(address, None)
        if previous is not None:
            freed[previous], freed_at[previous] = i, time
            lost += size > 0
        if size > 0:
            current[address] = i
            rows.append(i)
    allocated = np.array(rows, dtype=np.int64)
    return Blocks(
        address=events.address[allocated],
        size=events.size[allocated],
        thread=events.thread[allocated],
        allocation_position=allocated,
        free_position=freed[allocated],
        allocation_time=events.time[allocated],
        free_time=freed_at[allocated],
        times=events.time,
        lost=lost,
    )


def step_memory(
    blocks: Blocks,
    operators: Ranges,
    named_storages: Sequence[NamedStorage],
    step: StepTimes,
    *,
    held: int | None = None,
    outputs: Sequence[NamedStorage] = (),
) -> StepMemory:
    """Return the memory that one step of a recording needs.

    `outputs` are storages that layers returned; they only tell the shapes of what the step made.

    Storages known at the start and not allocated in the recording are the baseline: they count
    once each, with their own size, all through the step. `held` is what the allocator itself says
    it had given out at the start; what of it is neither recorded nor known (workspaces of
    libraries, rounding) is workspace all through the step.
    """
    first, last = blocks.position(step.start), blocks.position(step.end)
    named = _named(blocks, named_storages)
    alive = _baseline(blocks, named_storages, step.start)
    labels = _labels(blocks, operators, named, step)
    by_part = np.stack([_live(blocks, labels == part, first, last) for part in PARTS])
    if held is not None:
        known_bytes = int(by_part[:, 0].sum()) + sum(storage.size for storage in alive)
        alive += [AliveStorage("workspace", held - known_bytes)] if held > known_bytes else []
    for storage in alive:
        by_part[PARTS.index(storage.part)] += storage.size
    live = by_part.sum(axis=0)
    highest = int(np.argmax(live))
    shapes = _named(blocks, outputs)
    for row in np.flatnonzero(blocks.alive(first + highest)).tolist():
        alive.append(_alive(blocks, row, labels[row], named.get(row), shapes.get(row), step))
    parts: dict[Part, int] = dict.fromkeys(PARTS, 0)
    for storage in alive:
        parts[storage.part] += storage.size
    times = np.concatenate(([step.start], blocks.times[first + 1 : last + 1])) - step.start
    return StepMemory(
        peak=int(live[highest]),
        peak_at=_peak_at(blocks, first + highest) if highest else None,
        average=_average(times, live, step.end - step.start),
        parts=parts,
        alive=tuple(alive),
        before=int(live[0]),
        after=int(live[-1]),
        retained=_retained(blocks, named, step),
        timeline=_timeline(times, by_part),
    )


def _alive(
    blocks: Blocks,
    row: int,
    part: Part,
    storage: NamedStorage | None,
    output: NamedStorage | None,
    step: StepTimes,
) -> AliveStorage:
    """Return a recorded block as a storage, with its name where it has one."""
    allocated_at, described = int(blocks.allocation_time[row]), storage or output
    return AliveStorage(
        part=part,
        size=int(blocks.size[row]),
        name="" if storage is None else storage.name,
        shape=None if described is None else described.shape,
        dtype="" if described is None else described.dtype,
        allocated_at=allocated_at if allocated_at >= step.start else None,
        thread=int(blocks.thread[row]),
    )


def _named(blocks: Blocks, storages: Iterable[NamedStorage]) -> dict[int, NamedStorage]:
    """Return the named storage of each block that has one, by row; the first name counts."""
    by_address: dict[int, list[int]] = {}
    for row, address in enumerate(blocks.address.tolist()):
        by_address.setdefault(address, []).append(row)
    named: dict[int, NamedStorage] = {}
    for storage in storages:
        if storage.part == "workspace":  # what has no other name
            continue
        position = blocks.position(storage.time)
        for row in by_address.get(storage.address, ()):
            if blocks.allocation_position[row] <= position < blocks.free_position[row]:
                named.setdefault(row, storage)
    return named


def _baseline(blocks: Blocks, storages: Iterable[NamedStorage], start: int) -> list[AliveStorage]:
    """Return the storages that are older than the recording, each once."""
    alive = blocks.alive(blocks.position(start))
    counted = set(blocks.address[alive].tolist())
    base = []
    for storage in storages:
        if storage.time == start and storage.address not in counted:
            counted.add(storage.address)
            base.append(
                AliveStorage(storage.part, storage.size, storage.name, storage.shape, storage.dtype)
            )
    return base


def _peak_at(blocks: Blocks, position: int) -> tuple[int, int] | None:
    (rows,) = np.nonzero(blocks.allocation_position == position)
    return (int(blocks.times[position]), int(blocks.thread[rows[0]])) if len(rows) else None


def _live(blocks: Blocks, chosen: NDArray[np.bool_], first: int, last: int) -> Integers:
    """Return the bytes of the chosen blocks alive after each of the events first … last."""
    change = np.zeros(len(blocks.times) + 1, dtype=np.int64)
    np.add.at(change, blocks.allocation_position[chosen] + 1, blocks.size[chosen])
    freed = chosen & (blocks.free_position != _NEVER)
    np.subtract.at(change, blocks.free_position[freed] + 1, blocks.size[freed])
    return np.cumsum(change)[first + 1 : last + 2]


def _labels(
    blocks: Blocks, operators: Ranges, named: dict[int, NamedStorage], step: StepTimes
) -> NDArray[np.object_]:
    labels = np.full(len(blocks.size), "workspace", dtype=object)
    until = _NEVER if step.optimizer is None else step.optimizer
    made_in_step = (blocks.allocation_time >= step.start) & (blocks.allocation_time < until)
    labels[made_in_step & (blocks.free_time > _operator_end(blocks, operators))] = "activations"
    for row, storage in named.items():
        labels[row] = storage.part
    return labels


def _operator_end(blocks: Blocks, operators: Ranges) -> Integers:
    """Return when the operator ends that each block belongs to, in ns.

    That is where the outermost operator around its allocation ends. One made outside of any, such
    as the tensor for a Python number, is made for the operator that follows: it belongs to that one
    until the next starts.
    """
    end = np.full(len(blocks.allocation_position), _NEVER - 1)
    for thread in np.unique(blocks.thread):
        rows = np.flatnonzero(blocks.thread == thread)
        on_thread = operators.thread == thread
        starts = np.append(operators.start[on_thread], [_NEVER - 1] * 2)
        ends = np.concatenate(([-1], operators.end[on_thread]))
        times = blocks.allocation_time[rows]
        next_operators = np.searchsorted(operators.start[on_thread], times, side="right")
        end[rows] = np.where(
            ends[next_operators] >= times, ends[next_operators], starts[next_operators + 1]
        )
    return end


def _retained(blocks: Blocks, named: dict[int, NamedStorage], step: StepTimes) -> int:
    """Return the bytes that the forward pass left alive, without its outputs."""
    before, after = blocks.position(step.forward), blocks.position(step.forward_end)
    was, now = blocks.alive(before), blocks.alive(after)
    outputs = np.zeros(len(blocks.size), dtype=bool)
    outputs[[row for row, storage in named.items() if storage.part == "outputs"]] = True
    new_outputs = now & ~was & outputs
    return int(blocks.size[now].sum() - blocks.size[was].sum() - blocks.size[new_outputs].sum())


def _average(times: Integers, live: Integers, duration: int) -> float:
    """Return the mean of the live bytes, each weighted by how long it lasted."""
    if duration <= 0:
        return float(live[-1])
    lasted = np.diff(np.concatenate((times, [duration])))
    return float(np.dot(live.astype(np.float64), lasted) / duration)


def _timeline(times: Integers, by_part: Integers) -> tuple[MemoryPoint, ...]:
    """Return the curve by part; beyond MAX_POINTS the lowest and highest point of equal stretches.

    So every peak and valley stays at its place, and the highest point is the peak.
    """
    live = by_part.sum(axis=0)
    chosen = np.arange(len(live))
    if len(live) > MAX_POINTS:
        stretches = np.array_split(chosen, MAX_POINTS // 2 - 1)
        extremes = [(s[np.argmin(live[s])], s[np.argmax(live[s])]) for s in stretches]
        chosen = np.unique([0, len(live) - 1, *np.ravel(extremes)])
    return tuple(
        MemoryPoint(time=time, live=sum(parts), parts=tuple(parts))
        for time, parts in zip(times[chosen].tolist(), by_part[:, chosen].T.tolist(), strict=True)
    )
