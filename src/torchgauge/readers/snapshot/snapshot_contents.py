"""Contents of a memory snapshot, as columns and small tuples: sizes in bytes, times in µs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

ENDS = ("free_completed", "free_requested")
SEGMENTS = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


class RecordedFrame(NamedTuple):
    """One frame of a stack, as it was recorded."""

    name: str
    file: str
    line: int


class RecordedBlock(NamedTuple):
    """A block of a segment; `requested` is None in files of old versions, as is `stack`.

    `state` is "allocated", "pending" (freed, and waiting for another stream) or "inactive".
    """

    address: int
    size: int
    requested: int | None
    state: str
    stack: int | None


class RecordedSegment(NamedTuple):
    """Memory that the allocator took from the device, and the blocks that it is cut into."""

    device: int
    address: int
    size: int
    stream: int
    kind: str
    pool: str
    expandable: bool
    blocks: tuple[RecordedBlock, ...]


@dataclass
class Events:
    """Actions of a device's allocator, in order; `size` is the requested size.

    `time` is µs since 1970, or None; `free` is what the device had left, at an "oom" alone.
    """

    action: list[str] = field(default_factory=list)
    address: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    stream: list[int] = field(default_factory=list)
    time: list[int | None] = field(default_factory=list)
    stack: list[int | None] = field(default_factory=list)
    free: list[int | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.action)


class Annotation(NamedTuple):
    """A range or a moment that the program marked; `time` is µs since 1970, or None."""

    name: str
    stage: str
    device: int | None
    time: int | None


@dataclass
class Recording:
    """A whole file: `stacks` are what blocks and events count by number, innermost frame first."""

    segments: list[RecordedSegment]
    events: dict[int, Events]
    stacks: list[tuple[RecordedFrame, ...]]
    settings: dict[str, str]
    annotations: list[Annotation]
