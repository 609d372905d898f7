"""Allocation events and blocks known by name → what was alive when, and what for.

Every event has a position in the order of events; a block lives from the position of its
allocation up to, and without, the one of its free. Sums over positions are exact: no clock is in
them. Times only place the marks among the events, and operators around allocations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from torchgauge.analyze.alive_tensors import Alive
from torchgauge.model.alive_tensor import Part
from torchgauge.model.memory import PARTS, MemoryPoint
from torchgauge.trace.allocations import Allocations, Column, Ranges

MAX_POINTS = 2000
_NEVER = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class Known:
    """A storage of which the program could say what it is: alive at `time`, `size` in bytes.

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

    address: Column
    size: Column
    thread: Column
    born: Column
    died: Column
    born_at: Column
    died_at: Column
    times: Column
    lost: int

    def position(self, time: int) -> int:
        """Return the position of the last event that is not after `time` (ns)."""
        return int(np.searchsorted(self.times, time, side="right")) - 1

    def alive(self, position: int) -> NDArray[np.bool_]:
        """Return which blocks are alive once the event at `position` has happened."""
        return (self.born <= position) & (self.died > position)


@dataclasses.dataclass(frozen=True)
class StepMemory:
    """What a step needs, in bytes; `parts` are those alive at the peak and add up to `peak`.

    `alive` are the storages that make them up; `before` and `after` are alive at the step's ends.
    """

    peak: int
    average: float
    parts: dict[Part, int]
    alive: tuple[Alive, ...]
    before: int
    after: int
    retained: int
    timeline: tuple[MemoryPoint, ...]


def pair(events: Allocations) -> Blocks:
    """Return the blocks of one device's events; a free of a block made before them is ignored."""
    rows: list[int] = []
    died = np.full(len(events.time), _NEVER)
    died_at = np.full(len(events.time), _NEVER)
    current: dict[int, int] = {}
    lost = 0
    columns = (events.size, events.address, events.time)
    for i, (size, address, time) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        previous = current.pop(address, None)
        if previous is not None:
            died[previous], died_at[previous] = i, time
            lost += size > 0
        if size > 0:
            current[address] = i
            rows.append(i)
    born = np.array(rows, dtype=np.int64)
    return Blocks(
        address=events.address[born],
        size=events.size[born],
        thread=events.thread[born],
        born=born,
        died=died[born],
        born_at=events.time[born],
        died_at=died_at[born],
        times=events.time,
        lost=lost,
    )


def step_memory(
    blocks: Blocks,
    operators: Ranges,
    known: Sequence[Known],
    step: StepTimes,
    *,
    held: int | None = None,
    outputs: Sequence[Known] = (),
) -> StepMemory:
    """Return what one step of a recording needs.

    `outputs` are storages that layers returned; they only tell the shapes of what the step made.

    Storages known at the start and not allocated in the recording are the baseline: they count
    once each, with their own size, all through the step. `held` is what the allocator itself says
    it had given out at the start; what of it is neither recorded nor known (workspaces of
    libraries, rounding) is workspace all through the step.
    """
    first, last = blocks.position(step.start), blocks.position(step.end)
    named = _named(blocks, known)
    alive = _baseline(blocks, known, step.start)
    live = _live(blocks, first, last)
    if held is not None:
        unknown = held - int(live[0]) - sum(one.size for one in alive)
        alive += [Alive("workspace", unknown)] if unknown > 0 else []
    live += sum(one.size for one in alive)
    highest = int(np.argmax(live))
    labels = _labels(blocks, operators, named, step)
    shapes = _named(blocks, outputs)
    for row in np.flatnonzero(blocks.alive(first + highest)).tolist():
        alive.append(_alive(blocks, row, labels[row], named.get(row), shapes.get(row), step))
    parts: dict[Part, int] = dict.fromkeys(PARTS, 0)
    for one in alive:
        parts[one.part] += one.size
    times = np.concatenate(([step.start], blocks.times[first + 1 : last + 1])) - step.start
    return StepMemory(
        peak=int(live[highest]),
        average=_average(times, live, step.end - step.start),
        parts=parts,
        alive=tuple(alive),
        before=int(live[0]),
        after=int(live[-1]),
        retained=_retained(blocks, named, step),
        timeline=_timeline(times, live),
    )


def _alive(
    blocks: Blocks,
    row: int,
    part: Part,
    known: Known | None,
    output: Known | None,
    step: StepTimes,
) -> Alive:
    """Return what is known of a block that was recorded."""
    born, shown = int(blocks.born_at[row]), known or output
    return Alive(
        part=part,
        size=int(blocks.size[row]),
        name="" if known is None else known.name,
        shape=None if shown is None else shown.shape,
        dtype="" if shown is None else shown.dtype,
        born=born if born >= step.start else None,
        thread=int(blocks.thread[row]),
    )


def _named(blocks: Blocks, known: Iterable[Known]) -> dict[int, Known]:
    """Return which block is which known storage; the first name counts."""
    by_address: dict[int, list[int]] = {}
    for row, address in enumerate(blocks.address.tolist()):
        by_address.setdefault(address, []).append(row)
    found: dict[int, Known] = {}
    for item in known:
        if item.part == "workspace":  # what has no other name
            continue
        position = blocks.position(item.time)
        for row in by_address.get(item.address, ()):
            if blocks.born[row] <= position < blocks.died[row]:
                found.setdefault(row, item)
    return found


def _baseline(blocks: Blocks, known: Iterable[Known], start: int) -> list[Alive]:
    """Return the storages that are older than the recording, each once."""
    alive = blocks.alive(blocks.position(start))
    counted = set(blocks.address[alive].tolist())
    base = []
    for item in known:
        if item.time == start and item.address not in counted:
            counted.add(item.address)
            base.append(Alive(item.part, item.size, item.name, item.shape, item.dtype))
    return base


def _live(blocks: Blocks, first: int, last: int) -> Column:
    """Return the bytes of recorded blocks alive after each of the events first … last."""
    change = np.zeros(len(blocks.times) + 1, dtype=np.int64)
    np.add.at(change, blocks.born + 1, blocks.size)
    freed = blocks.died != _NEVER
    np.subtract.at(change, blocks.died[freed] + 1, blocks.size[freed])
    return np.cumsum(change)[first + 1 : last + 2]


def _labels(
    blocks: Blocks, operators: Ranges, named: dict[int, Known], step: StepTimes
) -> NDArray[np.object_]:
    labels = np.full(len(blocks.size), "workspace", dtype=object)
    until = _NEVER if step.optimizer is None else step.optimizer
    made = (blocks.born_at >= step.start) & (blocks.born_at < until)
    labels[made & (blocks.died_at > _operator_end(blocks, operators))] = "activations"
    for row, known in named.items():
        labels[row] = known.part
    return labels


def _operator_end(blocks: Blocks, operators: Ranges) -> Column:
    """Return until when each block belongs to the operator that made it, in ns.

    That is where the outermost operator around its allocation ends. One made outside of any, such
    as the tensor for a Python number, is made for the operator that follows: it belongs to that one
    until the next starts.
    """
    end = np.full(len(blocks.born), _NEVER - 1)
    for thread in np.unique(blocks.thread):
        mine = np.flatnonzero(blocks.thread == thread)
        here = operators.thread == thread
        starts = np.append(operators.start[here], [_NEVER - 1] * 2)
        ends = np.concatenate(([-1], operators.end[here]))
        born = blocks.born_at[mine]
        at = np.searchsorted(operators.start[here], born, side="right")
        end[mine] = np.where(ends[at] >= born, ends[at], starts[at + 1])
    return end


def _retained(blocks: Blocks, named: dict[int, Known], step: StepTimes) -> int:
    """Return what the forward left alive, without its outputs."""
    before, after = blocks.position(step.forward), blocks.position(step.forward_end)
    was, now = blocks.alive(before), blocks.alive(after)
    outputs = np.zeros(len(blocks.size), dtype=bool)
    outputs[[row for row, known in named.items() if known.part == "outputs"]] = True
    new_outputs = now & ~was & outputs
    return int(blocks.size[now].sum() - blocks.size[was].sum() - blocks.size[new_outputs].sum())


def _average(times: Column, live: Column, duration: int) -> float:
    """Return the mean of the live bytes, each weighted by how long it lasted."""
    if duration <= 0:
        return float(live[-1])
    lasted = np.diff(np.concatenate((times, [duration])))
    return float(np.dot(live.astype(np.float64), lasted) / duration)


def _timeline(times: Column, live: Column) -> tuple[MemoryPoint, ...]:
    """Return the curve, beyond MAX_POINTS the lowest and the highest point of equal stretches.

    So every peak and valley stays at its place, and the highest point is the peak.
    """
    chosen = np.arange(len(live))
    if len(live) > MAX_POINTS:
        stretches = np.array_split(chosen, MAX_POINTS // 2 - 1)
        extremes = [(s[np.argmin(live[s])], s[np.argmax(live[s])]) for s in stretches]
        chosen = np.unique([0, len(live) - 1, *np.ravel(extremes)])
    return tuple(MemoryPoint(time=int(times[i]), live=int(live[i])) for i in chosen)
