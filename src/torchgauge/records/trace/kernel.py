"""A kernel or copy: its launch configuration, occupancy and durations."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import Record

Work = Literal["kernel", "copy", "memory set"]
Limiter = Literal["warps", "blocks", "registers", "shared memory", "grid"]
Triple = tuple[int, int, int]


class Collective(Record, frozen=True, kw_only=True):
    """What a kernel communicated in each call: `elements` of `dtype` given, `group_size` ranks."""

    name: str
    dtype: str | None = None
    elements: int | None = None
    group_size: int | None = None


class Kernel(Record, frozen=True, kw_only=True):
    """The calls of one kernel by one node of the tree with one launch configuration, or copies.

    `durations` are ns of every recorded call in all recorded steps, ascending. `grid` is counted in
    blocks, `block` in threads; `registers` per thread, `shared_memory` in bytes per block.
    `occupancy` is the share of the device's warps that the launch can keep resident, `limiter` what
    keeps it from more: a resource of the multiprocessor, or too small a `grid`; "warps" where it is
    full. `bytes` are those of all calls. `pageable`: a copy from or to memory of the host that is
    not pinned. `launched`: whether the recording has its launch; `graph`: a CUDA graph ran it.
    """

    durations: tuple[int, ...]
    work: Work = "kernel"
    device: int | None = None
    streams: tuple[int, ...] = ()
    grid: Triple | None = None
    block: Triple | None = None
    registers: int | None = None
    shared_memory: int | None = None
    occupancy: float | None = None
    limiter: Limiter | None = None
    launched: bool = True
    graph: bool = False
    bytes: int | None = None
    pageable: bool | None = None
    collective: Collective | None = None

    @property
    def calls(self) -> int:
        """How many calls were recorded."""
        return len(self.durations)

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second that copies achieved while they ran; None for kernels."""
        time = sum(self.durations)
        return self.bytes / time * 1e9 if self.bytes is not None and time else None

    def quantile(self, share: float) -> float:
        """Return the seconds that this share of the calls took at most: 0.5 for the median."""
        return quantile(self.durations, share) * 1e-9


def quantile(ascending: tuple[int, ...] | list[int], share: float) -> float:
    """Return the value at this share of ascending ones: 0 the first, 1 the last, between linear."""
    place = (len(ascending) - 1) * share
    low = int(place)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (ascending[high] - ascending[low]) * (place - low)
