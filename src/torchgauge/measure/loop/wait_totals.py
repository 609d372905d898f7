"""Sums of waits for one DataLoader, and the parts of a wait for a worker's batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from torchgauge.measure.loop.loader_worker import TimedIndex
from torchgauge.records.timeline.loader_wait import LoaderWait, WaitParts, WorkerLoad

_PARTS = WaitParts.__struct_fields__
# The dataset's class, workers, prefetch factor, persistent, pinned.
Key = tuple[str, int, int | None, bool, bool]


@dataclasses.dataclass
class WaitTotals:
    """Waits for one loader until now, in ns; `parts` in the order of WaitParts."""

    calls: int = 0
    time: int = 0
    longest: int = 0
    behind: int = 0
    unsplit: int = 0
    cpu: int = 0
    parts: list[int] = dataclasses.field(default_factory=lambda: [0] * len(_PARTS))
    # By worker: batches, decode, collate, idle, longest.
    loads: dict[int, list[int]] = dataclasses.field(default_factory=dict)

    def add(self, other: WaitTotals) -> None:
        """Add those of another step."""
        self.calls += other.calls
        self.time += other.time
        self.longest = max(self.longest, other.longest)
        self.behind += other.behind
        self.unsplit += other.unsplit
        self.cpu += other.cpu
        self.parts = [total + added for total, added in zip(self.parts, other.parts, strict=True)]
        for number, load in other.loads.items():
            self._add_load(number, load)

    def count(self, time: int, parts: dict[str, int] | None) -> None:
        """Add a wait; without `parts` it is not is_split what for."""
        self.time += time
        self.longest = max(self.longest, time)
        if parts is None:
            self.unsplit += 1
            return
        parts["other"] = time - sum(parts.values())
        self.parts = [
            total + parts.get(name, 0) for name, total in zip(_PARTS, self.parts, strict=True)
        ]

    def add_batch(self, number: int, index: TimedIndex) -> None:
        """Add what a worker did for a batch."""
        decode, collate = index.collating - index.task_start, index.sent - index.collating
        self.cpu += index.cpu
        self._add_load(number, [1, decode, collate, index.idle, decode + collate])

    def record(self, key: Key, *, starts: Sequence[int], steps: int, duration: int) -> LoaderWait:
        """Return the record; `starts`: epochs begun, and ns to their first batches."""
        dataset, workers, prefetch, persistent, pinned = key
        seconds = [part * 1e-9 for part in self.parts]
        is_split = self.calls > 0 and not self.unsplit
        return LoaderWait(
            dataset=dataset,
            workers=workers,
            prefetch=prefetch,
            persistent=persistent,
            pinned=pinned,
            calls=self.calls,
            time=self.time * 1e-9,
            longest=self.longest * 1e-9,
            parts=WaitParts(**dict(zip(_PARTS, seconds, strict=True))) if is_split else None,
            cpu=self.cpu * 1e-9 if is_split else None,
            behind=self.behind * 1e-9 if workers and is_split else None,
            loads=tuple(_load(number, load) for number, load in sorted(self.loads.items())),
            starts=starts[0],
            start=starts[1] * 1e-9,
            steps=steps,
            duration=duration * 1e-9,
        )

    def _add_load(self, number: int, load: list[int]) -> None:
        total = self.loads.setdefault(number, [0] * len(load))
        longest = max(total[-1], load[-1])
        total[:] = [have + added for have, added in zip(total, load, strict=True)]
        total[-1] = longest


def worker_parts(index: TimedIndex, began: int, end: int, sampling: int) -> dict[str, int]:
    """Return the parts of a wait for a worker's batch, from `began` to `end` (ns).

    What was done for the batch before the loop asked for it is no part of the wait.
    """
    received = index.received or index.arrived
    pinned = index.pinned or received
    times = (began, index.task_start, index.collating, index.sent, received, pinned)
    marks = [min(max(time, began), end) for time in times]
    names = ("restart" if index.first else "queued", "decode", "collate", "transfer", "pin")
    parts = {name: marks[n + 1] - marks[n] for n, name in enumerate(names)}
    return {**parts, "sampler": min(sampling, end - marks[-1])}


def _load(number: int, load: list[int]) -> WorkerLoad:
    batches, *times = load
    decode, collate, idle, longest = (nanoseconds * 1e-9 for nanoseconds in times)
    return WorkerLoad(
        number=number, batches=batches, decode=decode, collate=collate, idle=idle, longest=longest
    )
