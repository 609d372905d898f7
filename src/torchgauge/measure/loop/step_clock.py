"""What the stepping thread does in steps without a profiler, by a few clock readings a step.

Who enters something inside something else stops the clock of the outer one, so that the times of a
step add up to it.
"""

from __future__ import annotations

import array
import contextlib
import functools
import gc
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader

from torchgauge import torch_private
from torchgauge.measure.loop.mark import mark
from torchgauge.measure.recording.scope import Call, wrapped
from torchgauge.measure.work.internals import never_compiled, never_traced
from torchgauge.records.timeline.loop import STEP_KINDS, StepKind, StepTimes
from torchgauge.signals import replaced, restoring

# A loop of weeks must not fill the memory with its own times: beyond so many every other is left.
MOST_STEPS = 2000
# Of a step: its number, the time without a core (−1: unknown) and the times of its kinds.
_COLUMNS = 2 + len(STEP_KINDS)
_OUTSIDE: StepKind = "outside"
# The bucket of what an optimizer's closure does beside calls of the model and backward passes.
CLOSURE = "closure"
# ns for which a thread stood still before it is asked how long it had no core, which takes 1 µs.
SHORTEST_PAUSE = 20_000


class StepClock:
    """The times of the steps between `begin` and `end`, on the thread that calls these.

    `backward_ended` is called on every thread after each call that makes autograd run.
    """

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now, self._computed = now, time.thread_time_ns
        self._thread: int | None = None
        self.backward_ended: Callable[[], object] = lambda: None
        self._roots: set[type[nn.Module]] = set()
        self._watching = contextlib.ExitStack()
        self._delay = _RunDelay()
        self.forget()

    def forget(self) -> None:
        """Take times from now on."""
        self.number = self._stride = 1
        self._steps = array.array("q")  # kept objects make Python collect garbage
        self._stack: list[StepKind] = []
        self._times: dict[StepKind, int] = dict.fromkeys(STEP_KINDS, 0)
        self._since = self._computed_until = self._preempted = 0
        self._begin()

    def begin(self) -> None:
        """Take note that a step begins."""
        self.number += 1
        if self._thread != threading.get_ident():
            self._thread = threading.get_ident()
            self._delay.open()
        self._begin()

    def _begin(self) -> None:
        self._stack[:] = (_OUTSIDE,)
        self._switch()  # what was lost before is not the step's
        self._times, self._preempted = dict.fromkeys(STEP_KINDS, 0), 0

    def end(self) -> None:
        """Take note that a step that counts has ended."""
        self._switch()
        if self.number % self._stride:
            return
        preempted = -1 if self._delay.file is None else self._preempted
        self._steps.extend((self.number, preempted, *self._times.values()))
        if len(self._steps) > MOST_STEPS * _COLUMNS:
            self._stride *= 2
            steps = zip(*[iter(self._steps)] * _COLUMNS, strict=True)
            remaining = (step for step in steps if step[0] % self._stride == 0)
            self._steps = array.array("q", itertools.chain.from_iterable(remaining))

    def times(self) -> StepTimes | None:
        """Return the times of the steps that counted; None without any."""
        if not self._steps:
            return None
        numbers, delays, *times = (self._steps[n::_COLUMNS] for n in range(_COLUMNS))
        return StepTimes(
            steps=tuple(numbers),
            preempted=tuple(delay * 1e-9 for delay in delays) if min(delays) >= 0 else None,
            **{
                kind: tuple(time * 1e-9 for time in spent)
                for kind, spent in zip(STEP_KINDS, times, strict=True)
            },
        )

    def kind(self) -> StepKind:
        """Return what the loop does at this moment."""
        return self._stack[-1]

    def enter(self, kind: StepKind) -> int:
        """Begin something of a kind and return what `leave` takes; 0 on another thread.

        What a loader's iterator runs is loading, a module and an optimizer too.
        """
        if threading.get_ident() != self._thread:
            return 0
        if self._stack[-1] == "loading" and kind != "collecting":
            return 0
        self._switch()
        self._stack.append(kind)
        return len(self._stack) - 1

    def leave(self, depth: int) -> None:
        """End what was begun, and what was begun inside of it and not ended."""
        if 0 < depth < len(self._stack):
            self._switch()
            del self._stack[depth:]

    def _leave_last(self, kind: StepKind) -> None:
        """End the last of a kind that was begun; hooks have nowhere to keep what `enter` gave."""
        if threading.get_ident() == self._thread and kind in self._stack:
            self.leave(len(self._stack) - 1 - self._stack[::-1].index(kind))

    def _switch(self) -> None:
        now, computed = self._now(), self._computed()
        took, preempted = now - self._since, 0
        if took - (computed - self._computed_until) > SHORTEST_PAUSE:
            preempted, before = self._delay.new_delay(), now
            now, computed = self._now(), self._computed()
            if now - before > SHORTEST_PAUSE:  # it lost the core just then
                preempted += self._delay.new_delay()
            took = now - self._since
            preempted = min(preempted, took - (computed - self._computed_until))
        self._preempted += preempted
        self._times[self._stack[-1]] += took - preempted
        self._since, self._computed_until = now, computed

    def stop(self) -> None:
        """Count nothing any more, as in a forked process."""
        self._thread = None

    def pause(self) -> None:
        """Time nothing, and have modules called as without, until `resume` and the next `begin`."""
        self._watching.close()
        self.stop()

    def resume(self) -> None:
        """Have modules timed again."""
        self._watching.close()
        self._watching.enter_context(wrapped(self._forward, only=self._roots))

    def calls(self, module: nn.Module) -> None:
        """Take note of a module that the loop itself calls: its class is timed from now on."""
        kind = type(module)
        if kind not in self._roots:
            self._roots.add(kind)
            self._watching.enter_context(wrapped(self._forward, only=(kind,)))

    @restoring
    def watching(self) -> Iterator[None]:
        """Be told what the loop does, until the block ends; then torch is as it was."""
        with self._watching:
            hooks = [
                register_optimizer_step_pre_hook(self._optimizer_begins),
                register_optimizer_step_post_hook(self._optimizer_ends),
            ]
            gc.callbacks.append(self._collected)
            try:
                timed = (
                    (owner, name, self._timed(vars(owner)[name], kind))
                    for owner, name, kind in _watched()
                )
                with replaced(timed, keep_others=True):
                    yield
            finally:
                gc.callbacks.remove(self._collected)
                for hook in hooks:
                    hook.remove()
                self.stop()
                self._delay.close()

    def _timed(self, original: Callable[..., Any], kind: StepKind) -> Callable[..., Any]:
        backward = kind == "backward"

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            depth = self.enter(kind)
            at_end = self._before_waiting(args[0]) if backward and depth else None
            try:
                return original(*args, **kwargs)
            finally:
                self.leave(depth)
                if at_end is not None:
                    at_end.remove()
                if backward:
                    self.backward_ended()

        never_compiled(timed)
        return timed

    def _forward(self, original: Call, inner: frozenset[type[nn.Module]]) -> Call:
        compiling, enter, leave = torch.compiler.is_compiling, self.enter, self.leave

        def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if compiling() or type(self) in inner:
                return original(self, *args, **kwargs)
            depth = enter("forward")
            try:
                return original(self, *args, **kwargs)
            finally:
                leave(depth)

        return __call__

    def _before_waiting(self, outputs: Any) -> Any:
        """Note when this process has all gradients: what waits for those of others comes later.

        torch calls what is queued at the end of a backward pass in this order, and
        DistributedDataParallel queues its waiting when it has seen all gradients.
        """
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if not distributed or not isinstance(outputs, tuple | list):
            return None
        node = getattr(outputs[0], "grad_fn", None) if outputs else None
        if node is None:
            return None
        engine = torch_private.autograd_engine

        def all_ready() -> None:
            self.enter("waiting")

        def begun(_gradients: object) -> None:
            engine.queue_callback(all_ready)

        return node.register_prehook(begun)

    def _optimizer_begins(
        self, _optimizer: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Begin the optimizer's step, and return its arguments if its closure is among them."""
        self.enter("optimizer")
        if args[1:] and callable(args[1]):
            return (args[0], self._closure(args[1]), *args[2:]), kwargs
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._closure(kwargs["closure"])}
        return None

    def _closure(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def timed() -> Any:
            depth = self.enter(_OUTSIDE)
            try:
                with mark(CLOSURE):
                    return closure()
            finally:
                self.leave(depth)

        return timed

    def _optimizer_ends(self, *_: object) -> None:
        self._leave_last("optimizer")

    def _collected(self, phase: str, _details: dict[str, Any]) -> None:
        if phase == "start":
            self.enter("collecting")
        else:
            self._leave_last("collecting")


never_traced(StepClock._optimizer_begins)  # noqa: SLF001
never_traced(StepClock._optimizer_ends)  # noqa: SLF001


def _watched() -> Iterator[tuple[Any, str, StepKind]]:
    """Yield what is timed: where it is, its name and its kind."""
    yield torch.autograd, "_engine_run_backward", "backward"
    yield DataLoader, "__iter__", "loading"
    yield torch_private.LoaderIterator, "__next__", "loading"
    if torch.distributed.is_available():
        yield DistributedDataParallel, "_sync_buffers", "waiting"
        yield torch.distributed.Work, "wait", "waiting"


class _RunDelay:
    """How long a thread has waited for a core, as Linux counts it."""

    def __init__(self) -> None:
        self.file: int | None = None  # None where the system does not tell
        self._total = 0

    def open(self) -> None:
        """Count for the calling thread, from now on."""
        self.close()
        with contextlib.suppress(OSError):
            self.file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self.new_delay()

    def new_delay(self) -> int:
        """Return the ns since the last call."""
        before = self._total
        try:
            self._total = 0 if self.file is None else int(os.pread(self.file, 100, 0).split()[1])
        except (OSError, IndexError, ValueError):
            self.close()
        return self._total - before

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            os.close(self.file)
        self.file, self._total = None, 0
