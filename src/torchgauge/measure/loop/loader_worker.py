"""Time what a DataLoader's worker does, in the worker; the times travel with a batch's number.

Nothing of the user's is wrapped: neither dataset nor collate function, whose errors carry the text
of their traceback, and no batch is changed. A worker that is spawned imports this file.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from torchgauge import torch_private

_now = time.perf_counter_ns  # the same in all processes of a machine
_local = threading.local()
_ORIGINAL_WORKER = torch_private.loader_worker._worker_loop
_ORIGINAL_PINNING = torch_private.loader_pinning._pin_memory_loop


class TimedIndex(int):
    """A batch's number in its loader, with the times (ns) of what was done for it.

    `task_start`: its worker had nothing else to do; `collating`: the samples were there; `sent`:
    the batch was; `received` and `pinned` in the thread that pins memory; `arrived` in the loop's.
    `first`: its worker's first; `idle`: for how long the worker had nothing to do before; `cpu`:
    what the worker's thread computed for it.
    """

    task_start = collating = sent = idle = cpu = arrived = 0
    received = pinned = 0
    first = False


def collating(since: int, until: int) -> int:
    """Return when this thread last began to collate; `until` where that was not after `since`."""
    began = getattr(_local, "began", 0)
    return began if since <= began <= until else until


def _collate_fn(fetcher: Any) -> Any:
    """Take note that a fetcher looks its collate function up, which it does before it calls it."""
    _local.began = _now()
    try:
        return vars(fetcher)["collate_fn"]
    except KeyError:
        raise AttributeError(name="collate_fn", obj=fetcher) from None


def _set_collate_fn(fetcher: Any, function: Any) -> None:
    vars(fetcher)["collate_fn"] = function


COLLATE = property(_collate_fn, _set_collate_fn)
FETCHER = torch_private.loader_fetch._BaseDatasetFetcher


class _Queue:
    """A queue with something done after `get` or before `put`."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _Tasks(_Queue):
    """The worker's tasks: each gets the time at which it is task_start."""

    def __init__(self, queue: Any) -> None:
        super().__init__(queue)
        self._first = True
        self.free = _now()

    def get(self, *args: Any, **kwargs: Any) -> Any:
        task = self._queue.get(*args, **kwargs)
        if type(task) is not tuple or type(task[0]) is not int:
            return task
        index = TimedIndex(task[0])
        index.task_start, index.cpu = _now(), time.thread_time_ns()
        index.first = self._first
        index.idle = 0 if self._first else index.task_start - self.free
        self._first = False
        return (index, *task[1:])


class _Batches(_Queue):
    """The batches that the worker has made: each gets the times of its parts."""

    def __init__(self, queue: Any, tasks: _Tasks) -> None:
        super().__init__(queue)
        self._tasks = tasks

    def put(self, item: Any) -> None:
        index = item[0]
        if isinstance(index, TimedIndex):
            index.sent = self._tasks.free = _now()
            index.cpu = time.thread_time_ns() - index.cpu
            index.collating = collating(index.task_start, index.sent)
        self._queue.put(item)


def worker_loop(kind: Any, dataset: Any, tasks: Any, batches: Any, *worker_args: Any) -> None:
    """Run torch's own loop of a worker, with the times noted."""
    if "collate_fn" not in vars(FETCHER):
        FETCHER.collate_fn = COLLATE  # spawned: torch is as it was
    timed_tasks = _Tasks(tasks)
    _ORIGINAL_WORKER(kind, dataset, timed_tasks, _Batches(batches, timed_tasks), *worker_args)


class _Received(_Queue):
    def get(self, *args: Any, **kwargs: Any) -> Any:
        item = self._queue.get(*args, **kwargs)
        if isinstance(item[0], TimedIndex):
            item[0].received = _now()
        return item


class _Pinned(_Queue):
    def put(self, item: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(item[0], TimedIndex):
            item[0].pinned = _now()
        self._queue.put(item, *args, **kwargs)


def pinning_loop(received: Any, pinned: Any, *worker_args: Any) -> None:
    """Run torch's own loop of the thread that pins memory, with the times noted."""
    _ORIGINAL_PINNING(_Received(received), _Pinned(pinned), *worker_args)
