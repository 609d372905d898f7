"""Split a loop's waits for its DataLoaders by what was under way for the batch it waited for.

The iterators of torch are wrapped while a timeline runs; workers started meanwhile send the times
of each batch with its number (`loader_worker.py`).
"""

from __future__ import annotations

import dataclasses
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.utils.data import dataloader

from torchgauge import torch_private
from torchgauge.forks import Owner
from torchgauge.measure.loop import loader_worker
from torchgauge.measure.loop.loader_worker import TimedIndex
from torchgauge.measure.work.internals import never_compiled
from torchgauge.records.timeline.loader_wait import LoaderWait, WaitParts, WorkerLoad
from torchgauge.signals import replaced, restoring

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


Patch = tuple[Any, str, Any]
_local = threading.local()


def in_loader() -> bool:
    """Whether a data loader's iterator runs on this thread, while `LoaderWaits` watches."""
    return getattr(_local, "inside", False)


never_compiled(in_loader)


def _inside(original: Callable[..., Any], owner: Any) -> Any:
    _local.inside = True
    try:
        return original(owner)
    finally:
        _local.inside = False


@dataclasses.dataclass
class _Progress:
    """An iterator's batches that have arrived, and times of the present call."""

    key: Key
    arrived: dict[int, tuple[TimedIndex, int]] = dataclasses.field(default_factory=dict)
    sampling: int = 0
    sampled: int = 0
    began: int | None = None  # where no batch was asked for since


class LoaderWaits:
    """Counts the waits of the steps between `begin` and `end`, on the thread that steps.

    `spans` are the calls of iterators in the present step: thread, begin and end in ns. While
    `paused` it notes the first batches of epochs, and when those of workers arrive.
    """

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now = now
        self._owner = Owner()
        self._on = self.paused = False
        self._progress: weakref.WeakKeyDictionary[Any, _Progress] = weakref.WeakKeyDictionary()
        self._starts: dict[Key, list[int]] = defaultdict(lambda: [0, 0])
        self.forget()

    def forget(self) -> None:
        """Count the steps from now on."""
        self._steps = self._duration = self._began = 0
        self.spans: list[tuple[int, int, int]] = []
        self._step: dict[tuple[int, Key], WaitTotals] = defaultdict(WaitTotals)
        self._totals: dict[Key, WaitTotals] = defaultdict(WaitTotals)

    def begin(self) -> None:
        """Take note that a step begins."""
        self.paused = False
        self._step.clear()
        self.spans.clear()
        self._began = self._now()

    def end(self) -> None:
        """Take note that a step that counts has ended."""
        self._steps += 1
        self._duration += self._now() - self._began
        thread = threading.get_ident()
        for (on_thread, key), waits in list(self._step.items()):
            if on_thread == thread:
                self._totals[key].add(waits)

    def waits(self) -> tuple[LoaderWait, ...]:
        """Return the waits by loader, the longest time first."""
        keys = dict.fromkeys((*self._totals, *self._starts))
        waits = [
            self._totals.get(key, WaitTotals()).record(
                key,
                starts=self._starts.get(key, (0, 0)),
                steps=self._steps,
                duration=self._duration,
            )
            for key in keys
        ]
        return tuple(sorted(waits, key=lambda wait: -wait.time))

    @restoring
    def watching(self) -> Iterator[None]:
        """Watch the iterators of all DataLoaders until the block ends."""
        self._on = True
        with replaced(self._patches(), keep_others=True):
            try:
                yield
            finally:
                self._on = False  # what somebody has wrapped only passes on from now

    def _patches(self) -> list[Patch]:
        base = torch_private.LoaderIterator
        several = torch_private.WorkersIterator
        pinning, worker = torch_private.loader_pinning, torch_private.loader_worker
        patches: list[Patch] = [
            (dataloader.DataLoader, "__iter__", self._iter(dataloader.DataLoader.__iter__)),
            (base, "__next__", self._next(base.__next__)),
            (base, "_next_index", self._next_index(base._next_index)),
            (several, "_try_get_data", self._try_get_data(several._try_get_data)),
            (loader_worker.FETCHER, "collate_fn", loader_worker.COLLATE),
            (pinning, "pin_memory", self._pin(pinning.pin_memory)),
        ]
        # Those of another library stay: a worker that is spawned could not find them.
        if worker._worker_loop is loader_worker._ORIGINAL_WORKER:
            patches.append((worker, "_worker_loop", loader_worker.worker_loop))
        if pinning._pin_memory_loop is loader_worker._ORIGINAL_PINNING:
            patches.append((pinning, "_pin_memory_loop", loader_worker.pinning_loop))
        return patches

    def _iter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __iter__(loader: Any) -> Any:  # noqa: N807
            if not self._watches():
                return original(loader)
            began = self._now()
            iterator = _inside(original, loader)
            progress = self._progress_of(iterator)
            if progress is not None:
                took = self._now() - began
                progress.arrived.clear()  # a persistent iterator numbers its batches anew
                progress.began = began
                self._count(progress).count(took, {"restart": took})
            return iterator

        return __iter__

    def _next(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __next__(iterator: Any) -> Any:  # noqa: N807
            if not self._watches():
                return original(iterator)
            progress = self._progress_of(iterator)
            if self.paused and progress.began is None:
                return _inside(original, iterator)
            progress.sampling = progress.sampled = 0
            _local.pinned, _local.pinning = (0, 0), False
            ended = False
            computed, began = time.thread_time_ns(), self._now()
            try:
                return _inside(original, iterator)
            except StopIteration:
                ended = True
                raise
            finally:
                end = self._now()
                self.spans.append((threading.get_ident(), began, end))
                if not iterator._num_workers:
                    self._count(progress).cpu += time.thread_time_ns() - computed
                self._note(iterator, progress, began, end, ended=ended)

        return __next__

    def _next_index(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _next_index(iterator: Any) -> Any:
            progress = self._progress.get(iterator)
            if progress is None or self.paused:
                return original(iterator)
            began = self._now()
            try:
                return original(iterator)
            finally:
                progress.sampled = self._now()
                progress.sampling += progress.sampled - began

        return _next_index

    def _try_get_data(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _try_get_data(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(iterator, *args, **kwargs)
            progress = self._progress.get(iterator)
            if progress is not None and result[0]:
                index, batch = result[1]
                task = iterator._task_info.get(index)
                if (
                    isinstance(index, TimedIndex)
                    and task
                    and not isinstance(
                        batch, torch_private.loader_worker._IterableDatasetStopIteration
                    )
                ):
                    index.arrived = self._now()
                    progress.arrived[int(index)] = index, task[0]
            return result

        return _try_get_data

    def _pin(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def pin_memory(data: Any, device: Any = None) -> Any:
            # Called by itself for what a batch consists of.
            if getattr(_local, "pinning", True):
                return original(data, device)
            _local.pinning = True
            began = self._now()
            try:
                return original(data, device)
            finally:
                _local.pinning = False
                _local.pinned = began, self._now()

        return pin_memory

    def _watches(self) -> bool:
        """Whether the calling thread's wait counts: not in workers, nor for a loader's loader."""
        return self._on and not in_loader() and not self._owner.in_fork

    def _progress_of(self, iterator: Any) -> Any:
        progress = self._progress.get(iterator)
        if progress is None and isinstance(iterator, torch_private.LoaderIterator):
            workers = iterator._num_workers
            key = (
                type(iterator._dataset).__name__,
                workers,
                getattr(iterator, "_prefetch_factor", None) if workers else None,
                bool(iterator._persistent_workers),
                bool(iterator._pin_memory),
            )
            progress = self._progress[iterator] = _Progress(key)
        return progress

    def _count(self, progress: _Progress) -> WaitTotals:
        return self._step[threading.get_ident(), progress.key]

    def _note(
        self, iterator: Any, progress: _Progress, began: int, end: int, *, ended: bool
    ) -> None:
        if progress.began is not None and not ended:
            start = self._starts[progress.key]
            start[0] += 1
            start[1] += end - progress.began
            progress.began = None
        waits = self._count(progress)
        if not iterator._num_workers:
            waits.calls += not ended
            waits.count(end - began, self._own_parts(progress, began, end))
            return
        if ended:
            waits.count(end - began, {"restart": end - began})
            return
        waits.calls += 1
        task = _timed_batch(iterator, progress)
        if task is None:
            waits.count(end - began, None)
            return
        index, number = task
        later = [other.arrived for other, _ in progress.arrived.values() if other > index]
        waits.behind += max(index.arrived - max(began, min(later)), 0) if later else 0
        waits.count(end - began, worker_parts(index, began, end, progress.sampling))
        waits.add_batch(number, index)

    def _own_parts(self, progress: _Progress, began: int, end: int) -> dict[str, int]:
        """Return the parts of a batch that the loop's own thread made."""
        pinning, pinned = _local.pinned
        task_start = max(progress.sampled, began)
        samples_end = pinning or end
        collating = loader_worker.collating(task_start, samples_end)
        return {
            "sampler": progress.sampling,
            "decode": collating - task_start,
            "collate": samples_end - collating,
            "pin": pinned - pinning,
        }


def _timed_batch(iterator: Any, progress: _Progress) -> tuple[TimedIndex, int] | None:
    """Return the batch that the iterator has just given, and its worker; None if not timed."""
    returned = [number for number in progress.arrived if number not in iterator._task_info]
    tasks = [progress.arrived.pop(number) for number in returned]
    return tasks[-1] if tasks else None
