"""The memory of a loop's steps: each storage from the operator that makes it to its end."""

from __future__ import annotations

import functools
import gc
import itertools
import sys
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import torch
from torch import nn

from torchgauge.analyze.memory.loop_memory import LiveBlock, LiveBlocks, Site, with_step
from torchgauge.errors import MeasurementError
from torchgauge.formulas.operand import tensors
from torchgauge.imports import modules_with_files
from torchgauge.measure.lines.line_samples import kind_of
from torchgauge.measure.loop.loader_waits import in_loader
from torchgauge.measure.loop.loop_modules import LoopModules
from torchgauge.measure.memory.live_tensors import held_tensors, locals_of, saved_for_backward
from torchgauge.measure.memory.process_memory import allocated
from torchgauge.measure.recording.scope import observed
from torchgauge.measure.work import internals
from torchgauge.records.memory.loop_memory import STATES, LoopMemory, WatchedStep
from torchgauge.records.memory.memory import Part
from torchgauge.records.record import MeasurementWarning
from torchgauge.signals import restoring
from torchgauge.targets.contents.walk import Walk, attributes_of
from torchgauge.targets.inputs.tensors import strided

_PARTS: dict[str, Part] = {
    "forward": "activations",
    "recompute": "activations",
    "loading": "inputs",
}
_NONE: dict[str, Any] = {}


class LoopMemoryWatch(internals.DispatchMode):
    """Follows the storages that a loop's thread, and autograd's, make while it watches.

    They are those of the current GPU, where CUDA is in use, or else of the CPU. `kind` returns what
    the loop does at a moment. What other threads make is found as a step ends.
    """

    def __init__(self, modules: LoopModules, kind: Callable[[], str]) -> None:
        super().__init__()
        self._modules = modules
        self._kind = kind
        self._thread = threading.get_ident()
        self._stacks: dict[int, list[str]] = defaultdict(list)
        self._numbers = itertools.count()
        self.on = False
        self.forget()

    def forget(self) -> None:
        """Take what comes next for the first that is watched."""
        self.memory: LoopMemory | None = None
        self._step = 0
        self._alive: dict[int, LiveBlock] = {}
        self._blocks = LiveBlocks()
        self._begin_step()

    def _begin_step(self) -> None:
        self._blocks.restart()
        self._node_origins: dict[int, tuple[str, str]] = {}  # layer and line of autograd's nodes
        self._segments: Counter[int] = Counter()
        self._layers: set[str] = set()

    @restoring
    def watching(self, ended: int) -> Iterator[None]:
        """Follow storages until the block ends, which begins after `ended` steps.

        Raises MeasurementError `memory-unwatched`.
        """
        if internals.modes() or threading.get_ident() != self._thread:
            raise MeasurementError(
                "The memory of steps was not watched.",
                id="memory-unwatched",
                cause="The loop runs inside a dispatch mode, or not on its timeline's thread.",
                remedy="Begin the timeline where the loop runs, and end the mode before.",
            )
        self._device = torch.device("cpu")
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            self._device = torch.device("cuda", torch.cuda.current_device())
        self._take_stock()
        self._step = ended
        self._begin_step()
        with observed(self):
            self.__enter__()
            self.on = True
            try:
                yield
            finally:
                self.on = False
                internals.without_mode(self)

    def enter(self, module: nn.Module, _arguments: Any) -> None:
        """Take note that a module begins."""
        layer, in_backward = type(module).__name__, internals.graph_task() != -1
        if in_loader():
            layer = ""
        elif not in_backward or self._modules.has(module):  # or a part would be met as a whole
            layer = self._modules.table[self._modules.number(module)].paths[0] or layer
        self._stacks[threading.get_ident()].append(layer)
        if in_backward:
            self._layers.add(layer)

    def leave(self, _token: None, _outputs: Any) -> None:
        """Take note that it has ended."""
        self._stacks[threading.get_ident()].pop()

    def end_step(self, number: int) -> None:
        """Note the memory of the step that has this number."""
        self._take_stock()
        self._step = number
        blocks, used = self._blocks, allocated(self._device)
        step = WatchedStep(number=number, peak=blocks.peak, after=blocks.total, allocated=used)
        memory = self.memory or LoopMemory(device=str(self._device))
        self.memory = with_step(memory, blocks, step, self._segments, self._layers)
        self._begin_step()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and note what it allocates."""
        outputs = func(*args, **(kwargs or _NONE))
        if self.on:
            self._note(getattr(func, "_schema", func), args, outputs)
        return outputs

    def _note(self, operator: Any, args: Any, outputs: Any) -> None:
        recomputes = internals.graph_task() != -1 and internals.in_checkpoint()
        site, segment = None, 0
        for values, name in ((args, ""), (outputs, getattr(operator, "name", str(operator)))):
            for plain in itertools.chain.from_iterable(map(strided, tensors(values))):
                block = self._alive.get(internals.storage_key(plain))
                if block is not None:
                    block.is_input |= recomputes and not name
                    continue
                if site is None:
                    site, segment = self._origin(recomputes)
                self._follow(plain, site._replace(operator=name), segment=segment)

    def _origin(self, recomputes: bool) -> tuple[Site, int]:
        """Return phase, layer and line that run, and the node for which a segment runs again."""
        stack = self._stacks[threading.get_ident()]
        layer, line = stack[-1] if stack else "", program_line()
        if internals.graph_task() == -1:
            phase, number = self._kind(), 0
            # An optimizer's closure, and a module that the clock has not met yet.
            phase = "forward" if stack and phase in ("outside", "optimizer") else phase
        else:
            phase = "recompute" if recomputes else "backward"
            number = internals.node_number(internals.current_node()) or 0
        if phase == "backward":
            layer, line = self._node_origins.get(number, (layer, line))
        else:
            self._node_origins.setdefault(internals.sequence_number() - 1, (layer, line))
        return Site(phase, layer, line), number if recomputes else 0

    def _follow(
        self, tensor: torch.Tensor, site: Site, part: Part = "workspace", segment: int = 0
    ) -> None:
        """Have a storage's end end its block; leave other devices, as "meta", out."""
        key, storage = internals.storage_key(tensor), tensor.untyped_storage()
        if storage.device != self._device or not storage.nbytes():
            return
        alive, blocks = self._alive, self._blocks
        number, step = next(self._numbers), self._step + 1 if self.on else 0
        part = _PARTS.get(site.phase, part)
        block = LiveBlock(number, storage.nbytes(), site, step, part, segment)

        def ended(_: object) -> None:
            if alive.get(key) is block:
                del alive[key]
            blocks.end(block)

        block.reference = weakref.ref(storage, ended)
        alive[key] = block
        # Where it may, the engine adds to what a sum holds already; under a mode it may not.
        in_place = site.phase == "backward" and site.operator == "aten::add"
        blocks.begin(block, may_replace=in_place)
        if segment:
            self._segments[segment] += block.size

    def _take_stock(self) -> None:
        """Follow what was made unseen, and learn what tensors are for and what holds them."""
        with internals.unseen():
            for part, _, _, tensor in held_tensors():
                self._meet(tensor, part)
            holders: dict[int, tuple[str, str, bool]] = {}
            for holder, tensor in held():
                self._meet(tensor, "activations" if holder[2] else "workspace")
                for plain in strided(tensor):
                    holders.setdefault(internals.storage_key(plain), holder)
            for key, block in list(self._alive.items()):
                block.holder = holders.get(key, ("", "", False))

    def _meet(self, tensor: torch.Tensor, part: Part) -> None:
        """Follow a tensor's storage, a resized one from its new size on, and note states."""
        for plain in strided(tensor):
            block = self._alive.get(internals.storage_key(plain))
            if block is not None and block.size != plain.untyped_storage().nbytes():
                self._blocks.end(block)
                block = None
            if block is None:
                self._follow(plain, Site("unseen" if self.on else "before"), part)
            elif part in STATES:
                block.part = part

    def warnings(self) -> Iterator[MeasurementWarning]:
        """Yield what the figures lack."""
        modules = [module for module in self._modules.by_number if module is not None]
        if any(map(internals.is_compiled, modules)):
            yield MeasurementWarning(
                id="compiled-ran-eagerly",
                message="Compiled code ran eagerly while memory was watched, and has its figures.",
                probe="memory",
            )


for _callback in (LoopMemoryWatch.__torch_dispatch__, LoopMemoryWatch.end_step):
    internals.never_compiled(_callback, below=True)


_kind = functools.cache(kind_of)
_CONTAINERS = ("builtins", "collections", "torch")


def held() -> Iterator[tuple[tuple[str, str, bool], torch.Tensor]]:
    """Yield tensors with the variable that holds them, then those that the graphs of these hold.

    A holder is a variable, the function, module or class that has it, and whether by its graph.
    Not found is what C code holds, a library's module or a cache of functools.
    """
    walk = Walk(functions=True)
    named = [
        (_path(entry.path), owner, entry.item)
        for _, owner, name, value in sorted(_variables(), key=lambda variable: variable[0])
        for entry in walk(value, name)
        if issubclass(type(entry.item), torch.Tensor)
    ]
    for name, owner, tensor in named:
        yield (name, owner, False), tensor
    visited: set[Any] = set()
    for name, owner, tensor in named:
        for _, saved in saved_for_backward([tensor], visited):
            yield (name, owner, True), saved


def program_line() -> str:
    """Return the innermost line of the program, "train.py:12"; "" where none runs."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no public way
    while frame is not None and _kind(frame.f_code.co_filename) != "user's":
        frame = frame.f_back
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _path(names: tuple[str, ...]) -> str:
    """Return keys and names as an expression: "model.caches[3]"."""
    first, *inner_names = (name for name in names if name)
    return first + "".join(f"[{name}]" if name.isdecimal() else f".{name}" for name in inner_names)


def _variables() -> Iterator[tuple[tuple[int, int], str, str, Any]]:
    """Yield variables with their order, and the function, module or class that has them.

    First come those of the program's functions that run, then its modules, its classes and their
    objects, then libraries' functions; in each tensors and containers, and last what functions
    close over.
    """

    def variables(rank: int, owner: str, items: Iterable[tuple[str, Any]]) -> Iterator[Any]:
        for name, value in list(items):
            kind = type(value)
            level = 2 if kind is FunctionType else kind.__module__ not in _CONTAINERS
            yield (rank, level), owner, name, value

    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        code, owned_by = frame.f_code, _kind(frame.f_code.co_filename)
        owner = f"{code.co_qualname}, {Path(code.co_filename).name}:{code.co_firstlineno}"
        owner = Path(code.co_filename).name if code.co_name == "<module>" else owner
        if owned_by != "ours":
            yield from variables(2 * (owned_by != "user's"), owner, locals_of(frame))
        frame = frame.f_back
    classes: list[type] = []
    for _, members, file in modules_with_files():
        if _kind(file) == "user's":
            yield from variables(1, members["__name__"], members.items())
            own = (kind for kind in members.values() if issubclass(type(kind), type))
            classes += (kind for kind in own if kind.__module__ == members["__name__"])
    for kind in classes:
        yield from variables(1, kind.__qualname__, vars(kind).items())
    for item in gc.get_referrers(*classes) if classes else ():
        if type(item) in classes:
            yield from variables(1, type(item).__qualname__, (attributes_of(item) or {}).items())
