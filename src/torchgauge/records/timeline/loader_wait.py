"""What a loop waited for while it asked a DataLoader for batches."""

from __future__ import annotations

import math

from torchgauge.records.record import How, Record


class WorkerLoad(Record, frozen=True, kw_only=True):
    """What one worker did for the batches that counted.

    Attributes:
        number: The worker's number, from 0.
        batches: How many batches it made.
        decode: Seconds in the dataset.
        collate: Seconds in the collate function.
        idle: Seconds in which it had no batch to make.
        longest: Seconds of the batch that took longest.
    """

    number: int
    batches: int
    decode: float
    collate: float
    idle: float
    longest: float

    @property
    def busy(self) -> float:
        """Seconds in which it made batches."""
        return self.decode + self.collate


class WaitParts(Record, frozen=True, kw_only=True):
    """Seconds of waiting by what was under way for the batch that the loop waited for.

    Attributes:
        restart: Workers were being started, or ended after the last batch.
        queued: The batch's worker still worked on earlier batches.
        decode: The dataset made the samples.
        collate: The collate function joined them.
        transfer: The batch went from its worker to the loop's process.
        pin: The batch was copied to pinned memory.
        sampler: The sampler chose the next indices, in the loop's thread.
        other: All else in the loop's thread.
    """

    restart: float = 0.0
    queued: float = 0.0
    decode: float = 0.0
    collate: float = 0.0
    transfer: float = 0.0
    pin: float = 0.0
    sampler: float = 0.0
    other: float = 0.0

    @property
    def by_name(self) -> dict[str, float]:
        """The seconds by the field's name."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class LoaderWait(Record, frozen=True, kw_only=True):
    """The waits for one DataLoader, or for several with the same settings.

    Attributes:
        dataset: The class of the dataset.
        workers: Worker processes; 0: the loop's thread makes the batches.
        prefetch: Batches that each worker makes in advance; None without workers.
        persistent: Whether workers live on after the last batch.
        pinned: Whether batches are copied to pinned memory.
        calls: How often the loop asked for a batch, in the steps that count.
        time: Seconds that it waited, in these steps.
        longest: Seconds of the longest wait.
        parts: `time` by cause; None where workers run that were started before the timeline, or a
            library has an iterator of its own.
        cpu: Seconds that a core computed for these batches, in the workers or in the loop's thread;
            less than they took where they were read from a disk or a network.
        behind: Seconds of `time` in which a later batch was there already; None without workers.
        loads: What each worker did for these batches.
        starts: How often an iterator was begun, in all steps.
        start: Seconds from there to the first batch, of all of these.
        steps: The steps that count: those without a profiler.
        duration: Seconds of these steps.
    """

    dataset: str
    workers: int
    prefetch: int | None = None
    persistent: bool = False
    pinned: bool = False
    calls: int
    time: float
    longest: float
    parts: WaitParts | None = None
    cpu: float | None = None
    behind: float | None = None
    loads: tuple[WorkerLoad, ...] = ()
    starts: int = 0
    start: float = 0.0
    steps: int
    duration: float
    how: How = "measured"

    @property
    def share(self) -> float:
        """The share of the steps' time that the loop waited; 0 where no step counts."""
        return self.time / self.duration if self.duration else 0.0

    @property
    def busy(self) -> float | None:
        """The share of their time in which the workers made batches; None where unknown."""
        busy = sum(load.busy for load in self.loads)
        time = busy + sum(load.idle for load in self.loads)
        return busy / time if time else None

    @property
    def needed_cores(self) -> float | None:
        """How many cores would make the batches in time; None where unknown."""
        batches = sum(load.batches for load in self.loads) if self.workers else self.calls
        return self._of_use(self.cpu, batches)

    @property
    def needed(self) -> int | None:
        """How many workers would keep up, if each worked at its present speed; an estimate.

        Their time for a batch over the time in which the loop uses one. None where unknown.
        """
        batches, work = sum(load.batches for load in self.loads), sum(x.busy for x in self.loads)
        if self.parts is not None and not self.workers:
            batches, work = self.calls, self.parts.decode + self.parts.collate
        workers = self._of_use(work, batches)
        return None if workers is None else max(math.ceil(workers), 1)

    def _of_use(self, work: float | None, batches: int) -> float | None:
        """Return the work for a batch over the time in which the loop uses one."""
        used = self.duration - self.time
        if work is None or not batches or not self.calls or used <= 0:
            return None
        return work / batches / (used / self.calls)
