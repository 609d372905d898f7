"""The layers' times of single calls, by timers that exist only while such a call runs."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchgauge.monitoring.module_calls import SLOT, leave_uncompiled, without_ended

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
        self._replaced: Any = layer.__dict__.get(SLOT)
        inner = self._replaced or layer._call_impl  # noqa: SLF001 - what torch calls otherwise
        clock, own, thread = time.perf_counter, threading.get_ident(), threading.get_ident

        def timed(*args: Any, **kwargs: Any) -> Any:
            if call.ended or thread() != own:
                return inner(*args, **kwargs)
            begin = clock()
            output = inner(*args, **kwargs)
            append(clock() - begin)
            return output

        call: Any = timed
        call.monitored, call.ended = self._replaced, False
        self._call = call
        leave_uncompiled(call)
        layer.__dict__[SLOT] = call

    def end(self) -> None:
        """Put back what stood there, unless the program has put something else there."""
        self._call.ended = True
        places = self._layer.__dict__
        if places.get(SLOT) is self._call:
            replaced = without_ended(self._replaced)
            if replaced is None:
                del places[SLOT]
            else:
                places[SLOT] = replaced


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
