"""Find where the steps of a loop end, without a call from the loop itself.

In training a step ends with an optimizer's step, in inference with a call of the model: calls are
taken for steps until an optimizer is seen. `explicit` ends the guessing.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from types import FrameType
from typing import Any, Literal

import torch
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from torchgauge.measure.loop.loader_waits import in_loader
from torchgauge.measure.recording.modules import identity
from torchgauge.measure.recording.scope import wrapped
from torchgauge.measure.work.internals import graph_task, never_compiled, never_traced
from torchgauge.signals import replaced
from torchgauge.targets.inputs.content import batch_of, tokens_of
from torchgauge.targets.inputs.inputs import Inputs

By = Literal["", "call", "optimizer", "explicit"]
NOTED_CALLS = 10


class StepEnds:
    """Calls `ended` after each step, on one thread, outside of backward passes.

    The thread is that of the first step that ends as the later ones do: a model may be called by
    other threads before an optimizer steps. Where it has ended, the next that ends a step is it. A
    step that ends in a backward pass, as a hook's optimizer has it, ends with the pass. `ended` is
    given the nanoseconds at which that began to be looked at.
    `restart` is called where what ended the steps until now turns out not to end a step.
    With `roots` only their calls count, else the outermost calls of modules that have parameters.
    `calls` is given the modules that the loop itself calls, losses with them.
    `batch` is the leading dimension that the tensors of the first calls share, None where these
    differ, as those of a check before the training may; `tokens` are those of a call likewise.
    """

    def __init__(
        self,
        roots: Sequence[nn.Module],
        ended: Callable[[int], None],
        restart: Callable[[], None],
        calls: Callable[[nn.Module], None],
    ) -> None:
        self.by: By = ""
        self.batch: int | None = None
        self.tokens: int | None = None
        self._noted_calls = 0
        self.active = True
        self._roots = frozenset(map(identity, roots))
        self._modules = [module for root in roots for module in root.modules()]
        self._ended = ended
        self._restart = restart
        self._calls = calls
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._leaders = {"call": _Leader(), "optimizer": _Leader()}
        self._due: By = ""
        self._local = threading.local()
        self._hooks, self._watching = contextlib.ExitStack(), contextlib.ExitStack()

    def open(self) -> None:
        """Begin to watch."""
        self._hooks.callback(register_optimizer_step_post_hook(self._optimized).remove)
        scaler = torch.amp.GradScaler
        self._hooks.enter_context(replaced([(scaler, "step", self._scaled(scaler.step))]))
        self.outermost()

    def close(self) -> None:
        """Watch no more; wherever it is called, torch is as it was."""
        self.active = False
        self._watching.close()
        self._hooks.close()

    def outermost(self) -> None:
        """Put the wrapper of module calls around all others, if there is one."""
        self._watching.close()
        if self.active and self.by in ("", "call"):
            self._watching.enter_context(wrapped(self._wrap, self._modules))

    def explicit(self) -> None:
        """Take a step's end from the loop itself, now and from now on."""
        self._reached("explicit")

    def backward_ended(self) -> None:
        """End the step that ended in a backward pass of this thread, once no other is around it."""
        if self._due:
            self._reached(self._due)

    def _reached(self, by: By, leads: Callable[[], bool] = lambda: True) -> None:
        """End a step here; in a backward pass, which may be another thread's, as soon as it may."""
        begin = time.perf_counter_ns()
        if not self.active or graph_task() != -1:
            self._due = by if self.active and leads() else self._due
        elif self._on_step_thread(by) and leads():
            self._due = ""
            self._decide(by)
            self._ended(begin)

    def _decide(self, by: By) -> None:
        if by == self.by:
            return
        if self.by:
            self._restart()
            if self._noted_calls >= NOTED_CALLS:
                self.batch = self.tokens = None  # of these steps no call was noted
        self.by = by
        if by != "call":
            self._watching.close()

    def _on_step_thread(self, by: By) -> bool:
        """Whether steps end on this thread: that of the first which ended by the same."""
        this_thread = threading.current_thread()
        with self._lock:
            if self._thread is None or by != self.by or not self._thread.is_alive():
                self._thread = this_thread
            return self._thread is this_thread

    def _optimized(self, optimizer: Optimizer, *_: object) -> None:
        self._local.stepped = id(optimizer)
        if self.by != "explicit" and not _within_another(sys._getframe(1)):  # noqa: SLF001
            leader = self._leaders["optimizer"]
            self._reached("optimizer", functools.partial(leader.leads, id(optimizer)))

    def _scaled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a scaler's `step` that ends a step also where it leaves the optimizer's out."""

        @functools.wraps(original)
        def step(scaler: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
            self._local.stepped = None
            result = original(scaler, optimizer, *args, **kwargs)
            if self._local.stepped != id(optimizer):
                self._optimized(optimizer)
            return result

        return step

    def _wrap(self, original: Callable[..., Any], inner: frozenset[type]) -> Callable[..., Any]:
        compiling, local = torch.compiler.is_compiling, self._local
        counts, begun, called = self._counts, self._begun, self._called

        def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if (
                compiling()
                or type(self) in inner
                or getattr(local, "inside", False)
                or graph_task() != -1  # a checkpoint's, not the loop's
                or in_loader()
                or not counts(self)
            ):
                return original(self, *args, **kwargs)
            local.inside = True
            begun(self, args, kwargs)
            try:
                result = original(self, *args, **kwargs)
            finally:
                local.inside = False
            called(self)
            return result

        return __call__

    def _counts(self, module: nn.Module) -> bool:
        if not self.active:
            return False
        has_parameters = next(module.parameters(), None) is not None
        counts = identity(module) in self._roots if self._roots else has_parameters
        if counts or not has_parameters:
            self._calls(module)
        return counts

    def _begun(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._noted_calls >= NOTED_CALLS:
            return
        inputs = Inputs(args, kwargs)
        batch, tokens = batch_of(inputs), tokens_of(inputs, module)
        differs = self._noted_calls > 0 and (batch, tokens) != (self.batch, self.tokens)
        self.batch, self.tokens = (None, None) if differs else (batch, tokens)
        self._noted_calls = NOTED_CALLS if differs else self._noted_calls + 1

    def _called(self, module: nn.Module) -> None:
        if self.by in ("", "call"):
            leader = self._leaders["call"]
            self._reached("call", functools.partial(leader.leads, identity(module)))


# A compiled model would compile them with it.
for _callback in (StepEnds._counts, StepEnds._begun, StepEnds._called):  # noqa: SLF001
    never_compiled(_callback, below=True)
never_traced(StepEnds._optimized)  # noqa: SLF001


def _within_another(hooked: FrameType) -> bool:
    """Whether the optimizer's step of this frame is a part of another's, as its base class's is."""
    frame = hooked.f_back
    while frame is not None and frame.f_code is not hooked.f_code:
        frame = frame.f_back
    return frame is not None


class _Leader:
    """The key that ends a step: the first, until another comes twice without it."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._other_keys: set[Hashable] = set()

    def leads(self, key: Hashable) -> bool:
        if self._key is None or key in self._other_keys:
            self._key = key
        if key != self._key:
            self._other_keys.add(key)
            return False
        self._other_keys.clear()
        return True
