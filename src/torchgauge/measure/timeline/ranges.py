"""Ranges: every module call as a named span of a recording, `tg#` and the module's number."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._C._profiler import _RecordFunctionFast

from torchgauge.analyze.timeline.attribution import RECOMPUTE_END
from torchgauge.measure.recording.capture_limit import OwnThreads
from torchgauge.measure.recording.modules import Modules, identity
from torchgauge.measure.recording.scope import wrapped
from torchgauge.measure.work.internals import EARLY_STOP, graph_task, never_compiled
from torchgauge.targets.hygiene import module_of

# A quote in a name would break the whole exported file: a number and nothing else.
LAYER = "tg#"
STEP = "tg@"


class Ranges:
    """Marks the calls of a target's modules, and of others that they call, while `marking`.

    With `threads` on those alone, and on autograd's.
    """

    def __init__(
        self, model: Callable[..., Any], modules: Modules, threads: OwnThreads | None = None
    ) -> None:
        self._model = model
        self._modules = modules
        self._own = _everywhere if threads is None else threads.owns_current
        self._names: dict[int, str] = {}
        # A range cannot be entered twice at once, as recursion and threads would.
        self._free: dict[int, list[Any]] = {}
        modules.on_forget(self._forget)

    def marking(self) -> contextlib.AbstractContextManager[None]:
        """Mark module calls until the block ends; the recording must begin and end inside it."""
        module = module_of(self._model)
        return wrapped(self._wrap, () if module is None else module.modules())

    def _wrap(self, original: Callable[..., Any], inner: frozenset[type]) -> Callable[..., Any]:
        compiling, free, new = torch.compiler.is_compiling, self._free, self._new
        own = self._own

        def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if compiling() or type(self) in inner or not (own() or graph_task() != -1):
                return original(self, *args, **kwargs)
            key = identity(self)
            pool = free.get(key)
            mark = pool.pop() if pool else new(self, key)
            mark.__enter__()
            try:
                return original(self, *args, **kwargs)
            except EARLY_STOP:
                # The operator that is stopped by it has an event, and may never have run.
                with _RecordFunctionFast(RECOMPUTE_END):
                    raise
            finally:
                mark.__exit__(None, None, None)
                free[key].append(mark)

        return __call__

    def _new(self, module: nn.Module, key: int) -> Any:
        if key not in self._names:
            self._names[key] = f"{LAYER}{self._modules.number(module)}"
            self._free.setdefault(key, [])
        return _RecordFunctionFast(self._names[key])

    def _forget(self, key: int) -> None:
        self._names.pop(key, None)
        self._free.pop(key, None)


# Inside of what is compiled but skipped, as a module whose `compile` was called may be, Dynamo
# compiles each function that it meets: ours it must not.
never_compiled(Ranges._new, below=True)  # noqa: SLF001
never_compiled(identity)


def _everywhere() -> bool:
    return True


never_compiled(_everywhere)


def step_range(number: int) -> contextlib.AbstractContextManager[object]:
    """Return the range of one step of a recording."""
    return _RecordFunctionFast(f"{STEP}{number}")
