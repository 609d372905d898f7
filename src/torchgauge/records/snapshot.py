"""The record of a CUDA memory snapshot: what each device's allocator held, when, and for whom."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from torchgauge.records import rendering
from torchgauge.records.exported import Csv, Exported
from torchgauge.records.finding import Finding
from torchgauge.records.record import MeasurementWarning, Record

SCHEMA = "torchgauge.snapshot/1"
GROWTH = "torchgauge.growth/1"
Category = Literal["parameters", "gradients", "optimizer", "activations", "unknown"]
OomCause = Literal["fragmentation", "full", "elsewhere", "limit", "unknown"]
SnapshotTable = Literal["figures", "stacks", "segments", "timeline", "ooms"]
TimelinePoint = tuple[float, int, int | None]
"""Seconds after the first event (without times: events so far), bytes alive, bytes reserved."""


class Frame(Record, frozen=True, kw_only=True):
    """A frame of a stack as it was recorded; `line` 0 is unknown."""

    name: str
    file: str
    line: int


class Stack(Record, frozen=True, kw_only=True):
    """Who allocated: the innermost frames, at most four, the innermost first.

    `own` where they are of the user's code; else there was none of it, and they are torch's or
    C++'s. None at all: no stack was recorded. `category` is estimated from the whole stack.
    """

    frames: tuple[Frame, ...] = ()
    own: bool = False
    category: Category = "unknown"


class Holding(Record, frozen=True, kw_only=True):
    """What allocations of one stack hold together.

    `stack` is a row of the snapshot's stacks, None for memory that was allocated before the
    recorded window and freed in it: its stack is nowhere in the file.
    """

    stack: int | None
    bytes: int
    blocks: int


class Fragmentation(Record, frozen=True, kw_only=True):
    """Bytes that are held and not used, by three definitions, as there is no agreed one.

    `internal`: blocks in use less what was asked for, None where a file does not say. `split`: free
    blocks of segments that are in use elsewhere, which cannot go back to the device (of expandable
    segments they can). `cached`: reserved less active, all free blocks. `largest` is the largest
    free block, over all streams and pools.
    """

    internal: int | None
    split: int
    cached: int
    largest: int


class Segment(Record, frozen=True, kw_only=True):
    """One piece of memory taken from the device: bytes by state of its blocks, and their count.

    `runs` are the bytes of neighbours of one state together, by address: in use or pending, and
    negative where they are free.
    """

    address: int
    size: int
    stream: int
    kind: str
    pool: str
    expandable: bool
    allocated: int
    pending: int
    free: int
    blocks: int
    largest_free: int
    runs: tuple[int, ...] = ()

    @property
    def fill(self) -> float | None:
        """The share of it that is in use."""
        return (self.allocated + self.pending) / self.size if self.size else None


class Peak(Record, frozen=True, kw_only=True):
    """The moment of the window at which most was alive: `bytes` as requested, without rounding.

    `time` is seconds after the first event, None without times; `event` its number, -1 where it was
    before the first. `held` adds up to
    `bytes`. `reserved` is None where the events contradict the segments.
    """

    bytes: int
    time: float | None
    event: int
    reserved: int | None
    held: tuple[Holding, ...]


class HeldOverTime(Record, frozen=True, kw_only=True):
    """What allocations of one stack held over the window.

    Attributes:
        stack: A row of the snapshot's stacks; None as in `Holding`.
        bytes: Bytes alive at each point of the device's timeline.
    """

    stack: int | None
    bytes: tuple[int, ...]


class Oom(Record, frozen=True, kw_only=True):
    """An allocation that failed: `requested` bytes against what was free.

    `time` is seconds after the first event, None without times. `device_free` is what the
    device had left. `cached` were free bytes in segments, `largest` the largest such block,
    `usable` the largest of the stream and pool that asked; these three are estimated, by undoing
    the events since, and None where that cannot be done.
    """

    time: float | None
    event: int
    requested: int
    device_free: int | None
    alive: int
    reserved: int | None
    cached: int | None
    largest: int | None
    usable: int | None
    cause: OomCause
    stack: int | None


class PossibleLeak(Record, frozen=True, kw_only=True):
    """A stack that allocated all through the window and freed almost nothing.

    `blocks` with `bytes` are still alive of its `allocations`. It may leak, or fill a cache.
    """

    stack: int
    bytes: int
    blocks: int
    allocations: int


class Window(Record, frozen=True, kw_only=True):
    """The recorded events: how many of each kind, how long, and what was there before.

    `length` in seconds, None without times. `before` are bytes of `before_blocks` allocations that
    were alive when the events begin: the model, or what a ring buffer forgot. `lost` counts events
    that contradict each other or the blocks.
    """

    events: dict[str, int]
    length: float | None
    before: int
    before_blocks: int
    lost: int


class DeviceMemory(Record, frozen=True, kw_only=True):
    """One device's allocator at the moment of the snapshot, and over the window where recorded.

    `reserved` = `allocated` + `pending` + `fragmentation.cached` + `unlisted`, in bytes; `unlisted`
    is what segments have beyond their blocks, 0 in files of torch. `pending` is freed and waits for
    another stream. `requested` is what the active blocks were asked for as, None where not known.
    `alive` adds up to allocated and pending. `held_over_time` are the stacks that hold most at the
    peak, the most first: at most seven.
    """

    device: int
    reserved: int
    allocated: int
    pending: int
    unlisted: int
    requested: int | None
    blocks: int
    fragmentation: Fragmentation
    segments: tuple[Segment, ...]
    alive: tuple[Holding, ...]
    window: Window | None = None
    peak: Peak | None = None
    timeline: tuple[TimelinePoint, ...] = ()
    held_over_time: tuple[HeldOverTime, ...] = ()
    ooms: tuple[Oom, ...] = ()
    possible_leaks: tuple[PossibleLeak, ...] = ()


class Mark(Record, frozen=True, kw_only=True):
    """A range's begin or end that the program marked, `time` seconds after its device's window."""

    name: str
    stage: str
    device: int | None
    time: float | None


class Snapshot(Exported, frozen=True, kw_only=True):
    """What a memory snapshot says; devices in order of number.

    `settings` are the allocator's, where the file has them.
    """

    schema: str = SCHEMA
    name: str
    devices: tuple[DeviceMemory, ...]
    stacks: tuple[Stack, ...]
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    marks: tuple[Mark, ...] = ()
    findings: tuple[Finding, ...] = ()
    warnings: tuple[MeasurementWarning, ...] = ()

    def to_csv(self, path: str | Path | None = None, table: Csv | SnapshotTable = "figures") -> str:
        """Return devices, or stacks, segments, the timeline, or OOMs as CSV, in SI units.

        Raises InputError `no-tree` for layers, operators and kernels.
        """
        return rendering.text(self, "csv", path, table=table)


class StackGrowth(Record, frozen=True, kw_only=True):
    """What allocations of one stack on one device held before and after, in bytes and blocks."""

    device: int
    stack: Stack
    before: int
    after: int
    before_blocks: int
    after_blocks: int

    @property
    def growth(self) -> int:
        """Bytes more."""
        return self.after - self.before


class Growth(Exported, frozen=True, kw_only=True):
    """What two snapshots of one program differ in, the most growth first; bytes.

    `before` and `after` are what was active in all: their difference is the sum of `stacks`, of
    which those that hold the same are left out.
    """

    schema: str = GROWTH
    baseline: str
    current: str
    before: int
    after: int
    reserved_before: int
    reserved_after: int
    stacks: tuple[StackGrowth, ...]
    warnings: tuple[MeasurementWarning, ...] = ()
