"""A timer around the calls of a module, which stays what it was.

torch calls `_compiled_call_impl` of a module, where it is set, in place of the module's own call,
and leaves it out of copies and pickles. Compiled code does not see it: torch compiles the frames
that the timer calls.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchgauge import torch_private
from torchgauge.monitoring.meter import Call, Meter

SLOT = "_compiled_call_impl"
# The names of torch's own call, up to the forward of a module without hooks: of another torch's, a
# timer is put around it.
_CALL_IMPL = (
    "torch", "_C", "_get_tracing_state", "_slow_forward", "forward",
    "_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks",
    "_global_backward_pre_hooks", "_global_backward_hooks",
    "_global_forward_hooks", "_global_forward_pre_hooks",
)  # fmt: skip
_GLOBAL_HOOKS = tuple(getattr(torch.nn.modules.module, name, {}) for name in _CALL_IMPL[-4:])


class ModuleCalls:
    """Times the calls of a module from now until `detach`; the module may end before that."""

    def __init__(self, module: nn.Module, meter: Meter) -> None:
        self._module = weakref.ref(module)
        self._meter = meter
        self._call: weakref.ref[Any] | None = None  # it holds the module
        _watch_replicas()
        self._attach(module)

    def _attach(self, module: nn.Module) -> None:
        replaced = module.__dict__.get(SLOT)
        call = self._meter.wrap(replaced) if replaced else module_call(module, self._meter)
        _mark(call, self._meter, replaced)
        module.__dict__[SLOT] = call
        self._call = weakref.ref(call)

    def attach_again(self) -> None:
        """Wrap what the program has put in place of the timer: `module.compile()` does."""
        module = self._module()
        timer = None if self._call is None else self._call()
        if module is None or self._call is None:
            return
        call = module.__dict__.get(SLOT)
        while call is not None and call is not timer:
            call = getattr(call, "monitored", None)
        if call is None:
            self._attach(module)

    def detach(self) -> None:
        """Give the module its own call back; within a later monitor's timer this one stays."""
        module = self._module()
        call = None if self._call is None else self._call()
        self._call = None
        if module is None or call is None:
            return
        call.ended = True
        _remove_ended(module)


def _remove_ended(module: nn.Module) -> None:
    """Take timers that have ended out of a module's place for its call."""
    call: Any = module.__dict__.get(SLOT)
    while getattr(call, "ended", False):
        call = call.monitored
    if call is None:
        module.__dict__.pop(SLOT, None)
    else:
        module.__dict__[SLOT] = call


def module_call(module: nn.Module, meter: Meter) -> Call:
    """Return a module's own call with a timer around it.

    A module without hooks, while nothing traces, calls its forward alone. The timer does so too, as
    torch's `_call_impl` in its place would: this takes less than a function around that one.
    """
    own = type(module)._call_impl
    names = torch_private.module_call.__code__.co_names
    if own is not torch_private.module_call or names[: len(_CALL_IMPL)] != _CALL_IMPL:
        return meter.wrap(module._call_impl)
    return _timed_call(module, meter) if meter.times_all else _counted_call(module, meter)


# What the inner functions need are variables of theirs: attributes would cost 0.1 µs.
def _timed_call(module: Any, meter: Meter) -> Call:
    countdown, rare, clock, append = meter.countdown, meter.rare, meter.clock, meter.append
    inner, fail, tracing = module._call_impl, meter.fail, torch_private.tracing_state
    backward_pre, backward, forward_pre, forward = _GLOBAL_HOOKS

    def call(*args: Any, **kwargs: Any) -> Any:
        remaining = countdown[0] = countdown[0] - 1
        if remaining < 0:
            return rare(inner, args, kwargs)
        begin = clock()
        try:
            if (
                module._backward_hooks or module._backward_pre_hooks or module._forward_hooks
                or module._forward_pre_hooks or backward_pre or backward or forward_pre or forward
                or tracing()
            ):  # fmt: skip
                output = inner(*args, **kwargs)
            else:
                output = module.forward(*args, **kwargs)
        except BaseException as error:  # Ctrl-C in a call as well is a failed one
            fail(type(error))
            raise
        append(clock() - begin)
        return output

    return call


def _counted_call(module: Any, meter: Meter) -> Call:
    countdown, rare, fail = meter.countdown, meter.rare, meter.fail
    inner, tracing = module._call_impl, torch_private.tracing_state
    backward_pre, backward, forward_pre, forward = _GLOBAL_HOOKS

    def call(*args: Any, **kwargs: Any) -> Any:
        remaining = countdown[0] = countdown[0] - 1
        if remaining < 0:
            return rare(inner, args, kwargs)
        try:
            if (
                module._backward_hooks or module._backward_pre_hooks or module._forward_hooks
                or module._forward_pre_hooks or backward_pre or backward or forward_pre or forward
                or tracing()
            ):  # fmt: skip
                return inner(*args, **kwargs)
            return module.forward(*args, **kwargs)
        except BaseException as error:  # likewise
            fail(type(error))
            raise

    return call


def _mark(call: Any, meter: Meter, replaced: Call | None) -> None:
    call.monitored, call.monitor_meter, call.ended = replaced, meter, False
    leave_uncompiled(call, meter.rare, meter.special)


def leave_uncompiled(*functions: Any, calls_too: bool = False) -> None:
    """Let torch.compile pass over the functions' own frames; with `calls_too` over all in them.

    What they call is compiled as if it were called without them: no graph breaks there.
    """
    # The names are torch's own: there is no public one that costs a call nothing.
    frames = torch_private.frames
    skip = frames._FrameAction.SKIP
    inner = skip if calls_too else frames._FrameAction.DEFAULT
    for function in functions:
        strategy = frames._FrameExecStrategy(skip, inner)
        frames.set_code_exec_strategy(function.__code__, strategy)


def compiling() -> Callable[[], object]:
    """Return what returns None unless torch.compile looks at the frames that are called now.

    It is of use in a frame that torch.compile passes over, and not in one with all its calls.
    """
    callback: Callable[[], object] = torch_private.frames.get_eval_frame_callback
    return callback


@functools.cache
def _watch_replicas() -> None:
    """Let the replicas that `nn.DataParallel` makes of a monitored module call themselves.

    They get a copy of the module's attributes, whose timer calls the original. Once a process, it
    wraps `nn.Module._replicate_for_data_parallel`.
    """
    replicate = torch_private.replicate

    def replicated(module: nn.Module) -> Any:
        replica = replicate(module)
        call: Any = replica.__dict__.pop(SLOT, None)
        while hasattr(call, "monitored") and not hasattr(call, "monitor_meter"):
            call = call.monitored  # a layer's timer, of this call alone
        meter = getattr(call, "monitor_meter", None)
        if meter is not None:
            replica.__dict__[SLOT] = module_call(replica, meter)
        elif call is not None:
            replica.__dict__[SLOT] = call
        return replica

    setattr(nn.Module, replicate.__name__, replicated)


MOST_LAYERS = 100
Append = Callable[[float], object]


class LayerTimes:
    """Times the layers of a module, down to the deepest level with at most 100 of them in all.

    Times include those of inner layers. They are the host's: of a GPU, when it was given the work.
    A layer that is compiled is timed whole: what is inside of it runs as code of its own.
    """

    def __init__(self, module: nn.Module, append_of: Callable[[str], Append]) -> None:
        self._module = weakref.ref(module)
        self._append_of = append_of
        self._turn = threading.Lock()
        leave_uncompiled(self.begin, calls_too=True)

    def begin(self) -> Callable[[], None] | None:
        """Start timing in this thread and return what ends it; None where it is not possible.

        One thread at a time has its layers timed.
        """
        module = self._module()
        # The layers of now: the program may have replaced some.
        layers = [] if module is None else layers_of(module)
        if not layers or not self._turn.acquire(blocking=False):
            return None
        timers = [_LayerTimer(layer, self._append_of(path)) for path, layer in layers]

        def end() -> None:
            for timer in timers:
                timer.end()
            self._turn.release()

        leave_uncompiled(end, calls_too=True)
        return end

    def after_fork(self) -> None:
        """Replace the lock, which another thread of the parent may hold."""
        self._turn = threading.Lock()


class _LayerTimer:
    """Stands where torch calls a layer, as a monitor's timer does, until `end`."""

    def __init__(self, layer: nn.Module, append: Append) -> None:
        self._layer = layer
        replaced: Any = layer.__dict__.get(SLOT)
        inner = replaced or layer._call_impl
        clock, own, thread = time.perf_counter, threading.get_ident(), threading.get_ident

        def timed(*args: Any, **kwargs: Any) -> Any:
            if call.ended or thread() != own:
                return inner(*args, **kwargs)
            begin = clock()
            output = inner(*args, **kwargs)
            append(clock() - begin)
            return output

        call: Any = timed
        call.monitored, call.ended = replaced, False
        self._call = call
        leave_uncompiled(call)
        layer.__dict__[SLOT] = call

    def end(self) -> None:
        """Put back what stood there, unless the program has put something else there."""
        self._call.ended = True
        if self._layer.__dict__.get(SLOT) is self._call:
            _remove_ended(self._layer)


def layers_of(module: nn.Module, maximum: int = MOST_LAYERS) -> list[tuple[str, nn.Module]]:
    """Return the layers to time, level by level, and their paths; none within compiled code."""
    layers: list[tuple[str, nn.Module]] = []
    visited, level = {id(module)}, [("", module)]
    while level:
        below = []
        for path, parent in level:
            for name, child in () if _is_compiled(parent) else parent.named_children():
                if id(child) in visited or isinstance(child, torch.jit.ScriptModule):
                    continue
                visited.add(id(child))
                below.append((f"{path}.{name}" if path else name, child))
        if len(layers) + len(below) > maximum:
            break
        layers += below
        level = below
    return layers


def _is_compiled(module: nn.Module) -> bool:
    if hasattr(module, "_orig_mod") or isinstance(module, torch.jit.ScriptModule):
        return True
    call: Any = module.__dict__.get(SLOT)
    while hasattr(call, "monitored"):  # a monitor's timer
        call = call.monitored
    return call is not None
