"""The layers' times of single calls, by hooks that exist only while such a call runs."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from torchgauge.monitoring.module_calls import SLOT, leave_uncompiled

MOST_LAYERS = 100
Append = Callable[[float], object]


class LayerTimes:
    """Times the layers of a module, down to the deepest level with at most 100 of them in all.

    Times include those of inner layers. They are the host's: of a GPU, when it was given the work.
    """

    def __init__(self, module: nn.Module, append_of: Callable[[str], Append]) -> None:
        self._module = weakref.ref(module)
        self._append_of = append_of
        self._turn = threading.Lock()
        leave_uncompiled(self.begin, calls_too=True)

    def begin(self) -> Callable[[], None] | None:
        """Start timing in this thread and return what ends it; None where it is not possible.

        Models with compiled parts have layers that cannot be timed, and hooks would compile these
        again. One thread at a time has its layers timed.
        """
        module = self._module()
        if module is None or any(map(_is_compiled, module.modules())):
            return None
        # The layers of now: the program may have replaced some.
        paths = layer_paths(module)
        if not paths or not self._turn.acquire(blocking=False):
            return None
        before, after = self._hooks(paths)
        handles = register_module_forward_pre_hook(before), register_module_forward_hook(after)

        def end() -> None:
            for handle in handles:
                handle.remove()
            self._turn.release()

        leave_uncompiled(end, calls_too=True)
        return end

    def _hooks(self, paths: dict[int, str]) -> tuple[Callable[..., None], Callable[..., None]]:
        """Return the hooks before and after a layer, which note what this thread runs."""
        clock, own, thread = time.perf_counter, threading.get_ident(), threading.get_ident
        began: list[tuple[nn.Module, float]] = []

        def before(layer: nn.Module, _: Any) -> None:
            if id(layer) in paths and thread() == own:
                began.append((layer, clock()))

        def after(layer: nn.Module, _: Any, __: Any) -> None:
            end = clock()
            if id(layer) in paths and thread() == own:
                while began:  # those above it raised, and the model went on
                    earlier, begin = began.pop()
                    if earlier is layer:
                        self._append_of(paths[id(layer)])(end - begin)
                        return

        return before, after

    def after_fork(self) -> None:
        """Replace the lock, which another thread of the parent may hold."""
        self._turn = threading.Lock()


def _is_compiled(module: nn.Module) -> bool:
    if hasattr(module, "_orig_mod") or isinstance(module, torch.jit.ScriptModule):
        return True
    call: Any = module.__dict__.get(SLOT)
    while hasattr(call, "monitored"):  # a monitor's timer
        call = call.monitored
    return call is not None


def layer_paths(module: nn.Module, maximum: int = MOST_LAYERS) -> dict[int, str]:
    """Return the paths of the layers to time by the identities of their modules."""
    paths = {id(layer): path for path, layer in module.named_modules() if path}
    depths = sorted(path.count(".") for path in paths.values())
    if len(depths) <= maximum:
        return paths
    # The level that the first layer too many is on has too many.
    return {key: path for key, path in paths.items() if path.count(".") < depths[maximum]}
