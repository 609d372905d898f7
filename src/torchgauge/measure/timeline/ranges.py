"""Ranges: every module call as a named span of a recording, or of Nsight Systems."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import nn

from torchgauge import torch_private
from torchgauge.analyze.timeline.attribution import RECOMPUTE_END
from torchgauge.errors import MeasurementError
from torchgauge.measure.recording.capture_limit import OwnThreads
from torchgauge.measure.recording.modules import Modules, identity
from torchgauge.measure.recording.scope import observed, wrapped
from torchgauge.measure.step import prepared
from torchgauge.measure.work.internals import EARLY_STOP, graph_task, never_compiled
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.placement import Placement
from torchgauge.targets.training.training import Training

# A quote in a name would break the whole exported file: a number and nothing else.
LAYER = "tg#"
STEP = "tg@"
STEPS = 10


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
                with torch_private.RecordFunction(RECOMPUTE_END):
                    raise
            finally:
                mark.__exit__(None, None, None)
                free[key].append(mark)

        return __call__

    def _new(self, module: nn.Module, key: int) -> Any:
        if key not in self._names:
            self._names[key] = f"{LAYER}{self._modules.number(module)}"
            self._free.setdefault(key, [])
        return torch_private.RecordFunction(self._names[key])

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
    span: contextlib.AbstractContextManager[object] = torch_private.RecordFunction(
        f"{STEP}{number}"
    )
    return span


class Markers(Protocol):
    """What torch.cuda.nvtx offers."""

    def range_push(self, msg: str) -> object:
        """Begin a range on this thread, inside of those that have begun."""

    def range_pop(self) -> object:
        """End the innermost."""


@contextlib.contextmanager
def nvtx(model: Callable[..., Any], markers: Markers | None = None) -> Iterator[None]:
    """Mark every call of the model's layers by an NVTX range until the block ends.

    A range has the layer's qualified name and class. What autograd runs in the backward pass has
    none: add `torch.autograd.profiler.emit_nvtx()` for it. Raises MeasurementError
    `nvtx-unavailable`.
    """
    if markers is None:
        check_available()
        markers = torch.cuda.nvtx
    module = module_of(model)
    with observed(_Ranges(model, markers), () if module is None else module.modules()):
        yield


def check_available() -> None:
    """Raise MeasurementError `nvtx-unavailable` where this torch has no NVTX."""
    try:
        torch.cuda.nvtx.mark("torchgauge")  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise MeasurementError(
            "NVTX ranges cannot be made here.",
            id="nvtx-unavailable",
            cause=str(error),
            remedy="Use a torch with CUDA, under Nsight Systems: "
            "nsys profile torchgauge profile TARGET --nvtx",
        ) from error


def run(placement: Placement, *, train: Training | None = None) -> None:
    """Run some steps with layers marked, in a range of their own each; nothing is measured."""
    markers: Markers = torch.cuda.nvtx
    with prepared(placement, train) as step, nvtx(placement.model):
        for number in range(STEPS):
            markers.range_push(f"step {number}")
            try:
                step()
            finally:
                markers.range_pop()


class _Ranges:
    """Pushes a range when a call begins, and pops it when that ends, however it ends."""

    def __init__(self, model: Callable[..., Any], markers: Markers) -> None:
        self._modules = Modules(model)
        self._markers = markers
        self._running = threading.local()

    def enter(self, module: nn.Module, _arguments: Any) -> None:
        paths = vars(self._running).setdefault("paths", [""])
        named = self._modules.table[self._modules.number(module)]
        path = named.path_in(paths[-1])
        paths.append(path)
        text = f"{path} ({named.kind})" if path else named.kind
        self._markers.range_push(text.encode("ascii", "backslashreplace").decode())

    def leave(self, _token: None, _outputs: Any) -> None:
        self._markers.range_pop()
        self._running.paths.pop()
