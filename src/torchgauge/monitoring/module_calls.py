"""A timer around the calls of a module, which stays what it was.

torch calls `_compiled_call_impl` of a module, where it is set, in place of the module's own call,
and leaves it out of copies and pickles. Compiled code does not see it: torch compiles the frames
that the timer calls.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchgauge.monitoring.meter import Call, Meter

SLOT = "_compiled_call_impl"


class ModuleCalls:
    """Times the calls of a module from now until `detach`; the module may end before that."""

    def __init__(self, module: nn.Module, meter: Meter) -> None:
        self._module = weakref.ref(module)
        self._meter = meter
        self._call: weakref.ref[Any] | None = None  # it holds the module
        _replicas.watch()
        self._attach(module)

    def _attach(self, module: nn.Module) -> None:
        replaced = module.__dict__.get(SLOT)
        call = self._meter.wrap(replaced or module._call_impl)  # noqa: SLF001 - what torch calls
        _mark(call, self._meter, replaced)
        module.__dict__[SLOT] = call
        self._call = weakref.ref(call)

    def attach_again(self) -> None:
        """Wrap what the program has put in place of the timer: `module.compile()` does."""
        module, timer = self._module(), self._call and self._call()
        if module is None or self._call is None:
            return
        call = module.__dict__.get(SLOT)
        while call is not None and call is not timer:
            call = getattr(call, "monitored", None)
        if call is None:
            self._attach(module)

    def detach(self) -> None:
        """Give the module its own call back; within a later monitor's timer this one stays."""
        module, call = self._module(), self._call and self._call()
        self._call = None
        if module is None or call is None:
            return
        call.ended = True
        outermost = replaced = module.__dict__.get(SLOT)
        while getattr(replaced, "ended", False):
            replaced = replaced.monitored
        if replaced is None:
            module.__dict__.pop(SLOT, None)
        elif replaced is not outermost:
            module.__dict__[SLOT] = replaced


def _mark(call: Any, meter: Meter, replaced: Call | None) -> None:
    call.monitored, call.monitor_meter, call.ended = replaced, meter, False
    leave_uncompiled(call, *meter.frames)


def leave_uncompiled(*functions: Any, calls_too: bool = False) -> None:
    """Let torch.compile pass over the functions' own frames; with `calls_too` over all in them.

    What they call is compiled as if it were called without them: no graph breaks there.
    """
    # The names are torch's own: there is no public one that costs a call nothing.
    frames = torch._C._dynamo.eval_frame  # noqa: SLF001
    skip = frames._FrameAction.SKIP  # noqa: SLF001
    inner = skip if calls_too else frames._FrameAction.DEFAULT  # noqa: SLF001
    for function in functions:
        strategy = frames._FrameExecStrategy(skip, inner)  # noqa: SLF001
        frames.set_code_exec_strategy(function.__code__, strategy)


def compiling() -> Callable[[], object]:
    """Return what returns None unless torch.compile looks at the frames that are called now.

    It is of use in a frame that torch.compile passes over, and not in one with all its calls.
    """
    callback: Callable[[], object] = torch._C._dynamo.eval_frame.get_eval_frame_callback  # noqa: SLF001
    return callback


class _Replicas:
    """Lets the replicas that `nn.DataParallel` makes of a monitored module call themselves.

    They get a copy of the module's attributes, whose timer calls the original.
    """

    def __init__(self) -> None:
        self._watching = False

    def watch(self) -> None:
        """Wrap `nn.Module._replicate_for_data_parallel`, once a process."""
        if self._watching:
            return
        self._watching = True
        replicate = nn.Module._replicate_for_data_parallel  # noqa: SLF001 - no public name

        def replicated(module: nn.Module) -> Any:
            replica = replicate(module)  # type: ignore[no-untyped-call]
            call = replica.__dict__.pop(SLOT, None)
            meter = getattr(call, "monitor_meter", None)
            if meter is not None:
                replica.__dict__[SLOT] = meter.wrap(replica._call_impl)  # noqa: SLF001
            elif call is not None:
                replica.__dict__[SLOT] = call
            return replica

        nn.Module._replicate_for_data_parallel = replicated  # type: ignore[method-assign] # noqa: SLF001


_replicas = _Replicas()
