"""Time the iteration of a trainer's loader, and see each batch as the trainer gets it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from torchgauge.signals import restoring


class FetchWatcher(Protocol):
    """Is told of each batch that a loader gives."""

    def fetching(self) -> None:
        """Take note that the loop wants the next batch."""

    def fetched(self, batch: Any, duration: int, /) -> None:
        """Take note of a batch, and of the ns it took."""

    def exhausted(self) -> None:
        """Take note that there is no further batch."""


class _TimedFetches:
    """A loader's iterator that tells of each batch; whatever else it has is the iterator's."""

    def __init__(self, iterator: Iterator[Any], watcher: FetchWatcher) -> None:
        self._iterator = iterator
        self._watcher = watcher

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._watcher.fetching()
        began = time.perf_counter_ns()
        try:
            batch = next(self._iterator)
        except StopIteration:
            self._watcher.exhausted()
            raise
        self._watcher.fetched(batch, time.perf_counter_ns() - began)
        return batch

    def __len__(self) -> int:
        return len(self._iterator)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


@restoring
def watched_loader(
    kind: type, watcher: FetchWatcher, selects: Callable[[Any], bool] = lambda _: True
) -> Iterator[None]:
    """Tell `watcher` of the batches of selected loaders of a class, until the block ends."""

    def around(original: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
        @functools.wraps(original)
        def __iter__(self: Any) -> Any:  # noqa: N807
            iterator = original(self)
            return _TimedFetches(iterator, watcher) if selects(self) else iterator

        return __iter__

    with _replaced(kind, "__iter__", around):
        yield


@restoring
def watched_next(
    kind: type, watcher: FetchWatcher, selects: Callable[[Any], bool]
) -> Iterator[None]:
    """Tell `watcher` of what selected iterators of a class return, until the block ends."""

    def around(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def __next__(self: Any) -> Any:  # noqa: N807
            if not selects(self):
                return original(self)
            watcher.fetching()
            began = time.perf_counter_ns()
            try:
                batch = original(self)
            except StopIteration:
                watcher.exhausted()
                raise
            watcher.fetched(batch, time.perf_counter_ns() - began)
            return batch

        return __next__

    with _replaced(kind, "__next__", around):
        yield


@contextmanager
def _replaced(kind: type, name: str, around: Callable[[Any], Any]) -> Iterator[None]:
    """Put something around a method of the class that defines it."""
    owner: Any = next(base for base in kind.__mro__ if name in vars(base))
    original = vars(owner)[name]
    replacement = around(original)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if vars(owner).get(name) is replacement:
            setattr(owner, name, original)
