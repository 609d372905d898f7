"""Watch a model while a program generates with it, and make records of its calls."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
from torch import nn

from torchgauge.forks import Owner, after_fork_in_child
from torchgauge.measure.generation import watched_modules
from torchgauge.measure.generation.call_records import generate_record, loop_record
from torchgauge.measure.generation.forwards import Ongoing, ThreadForwards, timed
from torchgauge.measure.generation.generate_calls import GenerateCall, compiled_calls_timed, watched
from torchgauge.measure.generation.loops import LoopCaches, loops
from torchgauge.records.generation.call import GenerationCall
from torchgauge.signals import HeldBack, restoring, uninterrupted


class CallWatch:
    """A context manager; `calls` are those of `generate()` and of decode loops within its block.

    The model, its caches and its outputs are as they would be without it. In a forked process
    nothing is recorded. The last cache of a loop is kept until the next call or the block's end.
    """

    def __init__(self, model: Any, assistant: Any = None) -> None:
        self.model = watched_modules.model_of(model)
        self.assistant = None if assistant is None else watched_modules.model_of(assistant)
        self._threads: list[LoopCaches] = []
        self._of_thread = ThreadForwards(self._begin_thread)
        self._assistants = _Assistants(self._of_thread)
        self._generated: list[GenerateCall] = []
        self._interrupted = False
        self._open = contextlib.ExitStack()
        self._owner = Owner()
        models = watched_modules.nested_models(self.model)
        self._models, self._config = models, getattr(models[-1], "config", None)
        parameter = next(self.model.parameters(), None)
        self.device = "cpu" if parameter is None else str(parameter.device)

    def __enter__(self) -> CallWatch:
        """Begin to watch."""
        self._owner = Owner()
        try:
            with HeldBack():
                self._watch()
                _open_watches.add(self)
        except BaseException:  # also of a signal that came meanwhile: the model must be as it was
            uninterrupted(self._leave)
            raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Put the model back as it was, and let its caches go."""
        if self._owner.in_fork:
            return
        self._interrupted = isinstance(error, KeyboardInterrupt)
        uninterrupted(self._leave)

    def _leave(self) -> None:
        _open_watches.discard(self)
        self._open.close()
        for thread in self._threads:
            thread.close()

    @property
    def calls(self) -> tuple[GenerationCall, ...]:
        """The calls in the order in which they began; waits for what a GPU has not finished.

        Within the block these are the ended calls of `generate()`, and loops as far as they went.
        """
        if self._owner.in_fork:
            return ()
        calls = [
            (call.begin, generate_record(call, self.device, self._config))
            for call in tuple(self._generated)
        ]
        for thread in tuple(self._threads):
            calls += self._loops(thread)
        calls.sort(key=lambda call: call[0])
        if self._interrupted and calls and calls[-1][1].by == "loop":
            begin, call = calls[-1]
            error = KeyboardInterrupt.__name__
            calls[-1] = begin, msgspec.structs.replace(call, error=error, interrupted=True)
        return tuple(call for _, call in calls)

    @property
    def packed_forwards(self) -> int:
        """How many forwards computed tokens of several requests at once; they are in no call."""
        return sum(len(thread.packed_forwards) for thread in tuple(self._threads))

    def _loops(self, thread: LoopCaches) -> Iterator[tuple[int, GenerationCall]]:
        calls = loops(thread.own_forwards)
        last_of_cache = {loop.last.timed.cache: loop for loop in calls}
        for loop in calls:
            cache = loop.last.timed.cache
            layout = thread.layout(cache) if last_of_cache[cache] is loop else None
            record = loop_record(loop, self.device, self._config, layout)
            yield loop.forwards[0].timed.begin, record

    def _watch(self) -> None:
        enter, of_thread, models = self._open.enter_context, self._of_thread, self._models
        encoders = watched_modules.encoders_of(models)
        for depth, model in enumerate(models):
            inner = (*models[depth + 1 :], *encoders) if watched_modules.is_compiled(model) else ()
            enter(timed(model, "model", of_thread, inner))
            if callable(getattr(type(model), "generate", None)) or "generate" in model.__dict__:
                enter(watched(model, of_thread, self._note, self._assistants.timed))
            if hasattr(type(model), "get_compiled_call"):
                enter(compiled_calls_timed(model, of_thread, (model, *encoders)))
        for encoder in encoders:
            enter(timed(encoder, "encoder", of_thread))
        if self.assistant is not None:
            enter(self._assistants.timed(self.assistant))

    def _note(self, call: GenerateCall) -> None:
        if not self._owner.in_fork:
            self._generated.append(call)

    def _begin_thread(self) -> Ongoing:
        thread = LoopCaches()
        self._threads.append(thread)
        return thread.ongoing

    def _forget(self) -> None:
        self._assistants = _Assistants(self._of_thread)
        self._open.close()


class _Assistants:
    """Draft models that are timed, with how many calls use each: threads may share one."""

    def __init__(self, of_thread: ThreadForwards) -> None:
        self._of_thread = of_thread
        self._users: dict[int, int] = {}
        self._timers: dict[int, contextlib.ExitStack] = {}
        self._lock = threading.Lock()

    @restoring
    def timed(self, assistant: Any) -> Iterator[None]:
        """Time a draft model until the block ends; None, or what is not a module, is left alone."""
        if not isinstance(assistant, nn.Module):
            yield
            return
        self._begin(assistant)
        try:
            yield
        finally:
            self._end(id(assistant))

    def _begin(self, assistant: nn.Module) -> None:
        key = id(assistant)
        with self._lock:
            self._users[key] = self._users.get(key, 0) + 1
            if self._users[key] == 1:
                timer = self._timers[key] = contextlib.ExitStack()
                timer.enter_context(timed(assistant, "assistant", self._of_thread))

    def _end(self, key: int) -> None:
        with self._lock:
            self._users[key] -= 1
            if not self._users[key]:
                self._timers.pop(key).close()
                del self._users[key]


_open_watches: set[CallWatch] = set()


def _forget_in_child() -> None:
    """Put the models back as they were in a forked process, which is the program's alone."""
    while _open_watches:
        _open_watches.pop()._forget()  # noqa: SLF001 - the same file


after_fork_in_child(_forget_in_child)
