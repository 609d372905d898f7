"""How much a recording may take: users have lost hundreds of gigabytes to a profiler left on."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torchgauge.device.counters import memory_available
from torchgauge.measure.work.internals import never_compiled

BUDGET = 1 << 30
# Of what is free, a recording takes no more than this part.
SHARE_OF_FREE = 4
# Of memory for each byte of an exported file: the profiler holds some 2.9 kB for an event that
# takes 0.41 kB in the file (torch 2.13; benchmarks/loop_memory.py measures it).
MEMORY_PER_FILE_BYTE = 9


def budget() -> int:
    """Return the bytes of memory that a recording may take by default."""
    free = memory_available()
    return BUDGET if free is None else min(BUDGET, free // SHARE_OF_FREE)


def memory_of(file: int) -> int:
    """Return the bytes of memory that recording and exporting a file of this size takes."""
    return file * MEMORY_PER_FILE_BYTE


@dataclasses.dataclass
class StepNeeds:
    """What recording one step takes: events, and bytes of a file and of memory."""

    events: int
    file: int

    @property
    def memory(self) -> int:
        """Bytes of memory while a step is recorded and exported."""
        return memory_of(self.file)


def step_needs(path: Path) -> StepNeeds:
    """Return what the step in a recording took."""
    events = 0
    with path.open("rb") as file:
        overlap = b""
        while chunk := file.read(1 << 20):
            events += (overlap + chunk).count(b'"ph": "X"')
            overlap = chunk[-8:]
    return StepNeeds(events=events, file=path.stat().st_size)


class OwnThreads:
    """Tells the threads of a measured call from those of the program around it.

    Own are the thread that makes this and, while `tracking`, those that own threads start, and
    those of a ThreadPoolExecutor while they do what own threads have handed to it. Not among them
    are autograd's threads, which work for whoever calls backward.
    """

    def __init__(self) -> None:
        self._home = threading.get_ident()
        self._started: list[threading.Thread] = []  # that live, or are about to
        self._names: dict[str, None] = {}
        self._ended: set[int] = set()
        self._pooled: set[int] = set()
        self._local = threading.local()
        self._follows = False

    def owns_current(self) -> bool:
        """Return whether the thread that asks is one of them."""
        ident = threading.get_ident()
        # The number of a thread that has ended is given to another.
        return (
            ident == self._home
            or any(thread.ident == ident and thread.is_alive() for thread in list(self._started))
            or getattr(self._local, "works", False)
        )

    def owns_current_beside_first(self) -> bool:
        """Return whether the thread that asks is one of them, but not the first one."""
        return threading.get_ident() != self._home and self.owns_current()

    def idents(self) -> set[int]:
        """Return the numbers of all that were own, as `threading.get_ident` tells them."""
        started = (thread.ident for thread in self._started if thread.ident is not None)
        return {self._home, *started, *self._ended, *self._pooled}

    def names(self) -> list[str]:
        """Return the names of those that were put to use since `forget_names`, in that order."""
        return list(self._names)

    def forget_names(self) -> None:
        """Forget the names: each step may start threads of its own."""
        self._names.clear()

    @contextlib.contextmanager
    def tracking(self) -> Iterator[None]:
        """Follow work to other threads until the block ends.

        What other threads start, before and meanwhile, is none of ours.
        """
        if self._follows:
            yield
            return
        start, submit = threading.Thread.start, ThreadPoolExecutor.submit
        follow, working = self._follow, self._working

        def started(thread: threading.Thread) -> None:
            follow(thread)
            start(thread)

        def submitted(pool: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            return submit(pool, working(function), *args, **kwargs)

        self._follows = True
        _patch(started, submitted)
        try:
            yield
        finally:
            self._follows = False
            # Where another has put its own around ours meanwhile, ours stays below and passes on.
            if threading.Thread.start is started and ThreadPoolExecutor.submit is submitted:
                _patch(start, submit)

    def _follow(self, thread: threading.Thread) -> None:
        if not (self._follows and self.owns_current()):
            return
        for started_thread in list(self._started):
            if started_thread.ident is not None and not started_thread.is_alive():
                self._ended.add(started_thread.ident)
                with contextlib.suppress(ValueError):  # another of ours has just done so
                    self._started.remove(started_thread)
        self._started.append(thread)
        self._names[thread.name] = None

    def _working(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as it is run by the pool's thread: for us, where we hand it over."""
        if not (self._follows and self.owns_current()):
            return function

        def work(*args: Any, **kwargs: Any) -> Any:
            if self.owns_current():
                return function(*args, **kwargs)
            self._pooled.add(threading.get_ident())
            self._names[threading.current_thread().name] = None
            self._local.works = True
            try:
                return function(*args, **kwargs)
            finally:
                self._local.works = False

        return work


# Asked by what is around the calls of modules, inside of what is compiled but skipped too.
never_compiled(OwnThreads.owns_current, below=True)


def _patch(start: Callable[..., Any], submit: Callable[..., Any]) -> None:
    type.__setattr__(threading.Thread, "start", start)
    type.__setattr__(ThreadPoolExecutor, "submit", submit)
