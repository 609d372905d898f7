"""The memory of a loop's steps: each storage from the operator that makes it to its end."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from torchgauge.analyze.memory.loop_memory import (
    UNSEEN,
    Held,
    Highest,
    LiveBlock,
    Site,
    by_origin,
    fold,
    outliving_tensors,
    part_of,
    recomputation,
)
from torchgauge.errors import text_of
from torchgauge.formulas.touched import tensors
from torchgauge.measure.loop.loop_modules import LoopModules
from torchgauge.measure.memory.allocator import allocated, new_peak
from torchgauge.measure.memory.holders import graph_roots, holders, program_line
from torchgauge.measure.memory.live_bytes import LiveBytes
from torchgauge.measure.memory.live_tensors import held_tensors
from torchgauge.measure.recording.scope import observed
from torchgauge.measure.work.internals import (
    current_node,
    graph_task,
    is_compiled,
    modes,
    never_compiled,
    node_number,
    sequence_number,
    storage_key,
    unseen,
)
from torchgauge.records.memory.alive_tensor import Part
from torchgauge.records.memory.loop_memory import STATES, LoopMemory, WatchedStep
from torchgauge.records.record import MeasurementWarning
from torchgauge.signals import restoring
from torchgauge.targets.inputs.tensors import strided

FOLDED = 200_000  # events, after which those of a step are made one moment
_UNSEEN = Site(UNSEEN, "", "", "")


class _Moment(NamedTuple):
    """A peak: bytes, what was alive, what made the last of it, and what ran again in the step."""

    size: int
    held: list[Held]
    site: Site
    segments: dict[int, int]
    layers: frozenset[str]


class LoopMemoryWatch(LiveBytes):  # type: ignore[no-untyped-call]
    """Follows the storages that a loop's thread, and autograd's, make in some steps.

    These are `steps` after `skip`. `kind` is what the loop does at a moment. With no step to skip
    the program before the loop is followed too. The mode is entered where no other is, and left
    where none is on top of it.
    """

    def __init__(
        self, modules: LoopModules, kind: Callable[[], str], skip: int, steps: int | None
    ) -> None:
        super().__init__((), workspaces=False)
        self._modules = modules
        self._kind = kind
        self._skip = skip
        self._limit = steps
        self._local = threading.local()
        self._on = False
        self._failure = ""
        self._base: set[int] = set()  # the blocks alive before the events of `lives`
        self._moments: dict[str, _Moment] = {}
        self._names: dict[int, tuple[Part, str]] = {}
        self._uses: dict[int, int] = {}  # the last node of autograd's graph that took a block
        self._reset_step()
        self.forget()

    def forget(self) -> None:
        """Take what ends next for the first step; what is alive stays followed."""
        self.ended = 0
        self.lives.blocks = {
            number: block._replace(step=min(block.step, 1))
            for number, block in self.lives.blocks.items()
        }
        self._steps: dict[str, list[WatchedStep]] = defaultdict(list)
        self._records: dict[str, dict[str, Any]] = defaultdict(dict)
        # Of steps that turned out to be none the highest peak is the first's.
        self._forgotten, self._moments = self._moments, {}

    def _reset_step(self) -> None:
        self._peaks: dict[str, Highest] = {}
        self._nodes: dict[int, tuple[str, str]] = {}
        self._segments: dict[int, int] = defaultdict(int)
        self._recomputed_layers: set[str] = set()

    @restoring
    def watching(self) -> Iterator[None]:
        """Follow storages until the block ends or all steps are watched."""
        with observed(self):
            if not self._skip:
                self._start()
            try:
                yield
            finally:
                self._stop()

    def enter(self, module: nn.Module) -> None:
        """Take note that a module begins."""
        self._stack().append(self._modules.number(module))

    def leave(self, _token: None) -> None:
        """Take note that it has ended."""
        self._stack().pop()

    def _stack(self) -> list[int]:
        return self._local.__dict__.setdefault("stack", [])  # type: ignore[no-any-return]

    def begin(self, *, counts: bool) -> None:
        """Take note that a step begins, as other watchers do."""

    def end(self) -> None:
        """Take note that a step has ended."""
        self.ended += 1
        if self._on:
            try:
                self._end_step()
            except Exception as error:  # noqa: BLE001 - the user's loop must not fail by it
                self._failure = text_of(error)
                self._limit = 0
            if self._limit is not None and self.ended >= self._skip + self._limit:
                self._stop()
        elif self.ended == self._skip:
            self._start()

    def _start(self) -> None:
        if modes():  # one of the program's, which would take ours for its own as it ends
            return
        self._on = True
        self._inventory("before")
        self._fold()
        self._reset_step()
        self.__enter__()  # type: ignore[no-untyped-call]

    def _stop(self) -> None:
        if self._on and modes() and modes()[-1] is self:
            self.__exit__(None, None, None)
            self._on = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and note what it allocates and which node may save its inputs."""
        outputs = super().__torch_dispatch__(func, types, args, kwargs)
        if torch.is_grad_enabled() and graph_task() == -1:
            node = sequence_number() - 1
            for tensor in tensors(args):
                if type(tensor) is torch.Tensor and tensor.layout is torch.strided:
                    alive = self._alive.get(storage_key(tensor))
                    if alive is not None:
                        self._uses[alive.block] = node
        return outputs

    def followed(self, outputs: Any) -> Iterator[Any]:
        """Yield the tensors with a storage in memory."""
        for tensor in tensors(outputs):
            if not isinstance(tensor, FakeTensor) and not tensor.is_meta:
                yield from strided(tensor)

    def block(self, operator: str, tensor: Any, size: int, backward: bool, /) -> LiveBlock:
        """Return the block with its origin: phase, layer and line."""
        node = sequence_number() - 1
        number = (node_number(current_node()) or 0) if backward else 0
        # From the first frame on that is not ours: of `_note` and the two dispatches.
        line, recomputed = program_line(sys._getframe(4), backward=backward)  # noqa: SLF001
        stack = self._stack()
        named = self._modules.table[stack[-1]] if stack else None
        layer = "" if named is None else named.paths[0] or named.kind
        segment = number if recomputed else 0
        if not backward:  # of the first step the clock does not know the modules yet
            kind = self._kind()
            phase = "forward" if stack and kind == "outside" else kind
        elif recomputed:
            phase = "recompute"
            self._recomputed_layers.add(layer)
        else:
            phase = "backward"
            layer, line = self._nodes.get(number, (layer, line))
        if phase != "backward":
            self._nodes.setdefault(node, (layer, line))
        block = LiveBlock(
            size,
            str(tensor.device),
            Site(phase, layer, line, operator),
            self.ended + 1,
            node,
            segment,
        )
        if segment:
            self._segments[segment] += size
        if len(self.lives.events) > FOLDED:
            self._fold()
        return block

    def _inventory(self, phase: str = UNSEEN) -> list[torch.Tensor]:
        """Begin what was made unseen, learn the parts of states, and return all other tensors."""
        tensors_found = []
        with unseen():
            for part, name, _, tensor in held_tensors():
                if isinstance(tensor, FakeTensor) or tensor.is_meta:
                    continue
                for plain in strided(tensor):
                    key, storage = storage_key(plain), plain.untyped_storage()
                    alive, size = self._alive.get(key), storage.nbytes()
                    if alive is not None and self.lives.blocks[alive.block].size != size:
                        self.lives.end(alive.block)  # resized
                        old = self.lives.blocks[alive.block]
                        alive.block = self.lives.begin(old._replace(size=size))
                    elif alive is None and size:
                        site = _UNSEEN._replace(phase=phase)
                        block = LiveBlock(size, str(plain.device), site, self.ended, 0)
                        self.follow(key, storage, self.lives.begin(block))
                    if part in STATES and key in self._alive:
                        self._names[self._alive[key].block] = (part, name)
                if part not in STATES:
                    tensors_found.append(tensor)
        return tensors_found

    def _fold(self) -> None:
        self._base = fold(self.lives, self._base, self._peaks)

    def _end_step(self) -> None:
        tensors_found = self._inventory()
        self._fold()
        blocks = self.lives.blocks
        holder_by_site = self._find_holders(tensors_found)
        for device, peak in self._peaks.items():
            alive = [self._held(n) for n in self._base if blocks[n].device == device]
            self._note_step(device, peak, alive)
            self._records[device]["outliving"] = outliving_tensors(
                alive, holder_by_site, self.ended
            )
        self.lives.blocks = {number: blocks[number] for number in self._base}
        self._names = {n: name for n, name in self._names.items() if n in self._base}
        self._uses = {n: node for n, node in self._uses.items() if n in self._base}
        self._reset_step()

    def _held(self, number: int) -> Held:
        block = self.lives.blocks[number]
        part, name = self._names.get(number, (part_of(block.site), ""))
        return Held(block, part, name)

    def _note_step(self, device: str, peak: Highest, alive: list[Held]) -> None:
        parts: dict[str, int] = defaultdict(int)
        for item in alive:
            parts[item.part] += item.block.size
        site = _UNSEEN if peak.last is None else peak.last.site
        held = [self._held(number) for number in peak.blocks]
        moment = _Moment(peak.size, held, site, self._segments, frozenset(self._recomputed_layers))
        moment = max(moment, self._forgotten.pop(device, moment), key=lambda moment: moment.size)
        if not moment.segments:
            layers = frozenset(self._recomputed_layers)
            moment = moment._replace(segments=self._segments, layers=layers)
        steps, record = self._steps[device], self._records[device]
        step = WatchedStep(
            number=self.ended,
            before=steps[-1].after if steps else 0,
            peak=moment.size,
            after=sum(parts.values()),
            earlier=sum(
                held.block.size
                for held in moment.held
                if held.block.step < self.ended and held.part not in STATES
            ),
            parts=dict(parts),
            phase=moment.site.phase,
            layer=moment.site.layer,
            operator=moment.site.operator,
            line=moment.site.line,
            allocated=allocated(torch.device(device)),
            allocator_peak=new_peak(device, [step.allocator_peak for step in steps]),
        )
        steps.append(step)
        if device not in self._moments or moment.size >= self._moments[device].size:
            self._moments[device] = moment
            record["peak_step"], record["at_peak"] = self.ended, by_origin(moment.held)
            record["recomputation"] = recomputation(
                moment.held, moment.segments, moment.layers, step
            )

    def _find_holders(self, tensors_found: list[torch.Tensor]) -> dict[Site, tuple[str, bool]]:
        """Return what holds each origin's oldest tensor, or that whose graph does."""
        by_key = {storage_key(part): id(item) for item in tensors_found for part in strided(item)}
        names = holders(tensors_found)  # type: ignore[arg-type]
        roots = graph_roots(
            [item for item in tensors_found if id(item) in names and item.grad_fn is not None]
        )
        holder_by_site: dict[Site, tuple[str, bool]] = {}
        for key, alive in sorted(self._alive.items(), key=lambda item: item[1].block):
            block = self.lives.blocks[alive.block]
            if block.site in holder_by_site or self._held(alive.block).part in STATES:
                continue
            if name := names.get(by_key.get(key, 0)):
                holder_by_site[block.site] = name, False
            elif name := names.get(roots.get(self._uses.get(alive.block, block.node), 0)):
                holder_by_site[block.site] = name, True
        return holder_by_site

    def record(self) -> LoopMemory | None:
        """Return what was found on the device with most: an accelerator if any."""
        devices = sorted(self._steps, key=lambda name: (name == "cpu", -self._steps[name][-1].peak))
        if not devices:
            return None
        device = devices[0]
        return LoopMemory(device=device, steps=tuple(self._steps[device]), **self._records[device])

    def warnings(self) -> Iterator[MeasurementWarning]:
        """Yield what the figures lack."""
        if any(module is not None and is_compiled(module) for module in self._modules.by_number):
            yield MeasurementWarning(
                id="compiled-ran-eagerly",
                message="Compiled code ran eagerly while memory was watched, and has its figures.",
                probe="memory",
            )
        if self._failure or not self._steps:
            yield MeasurementWarning(
                id="memory-unwatched",
                message="Not every step's memory was watched.",
                probe="memory",
                cause=self._failure
                or f"The loop ended after {self.ended} steps, or a mode of the program was active.",
                remedy="Let it run for more steps than are skipped.",
            )


for _callback in (LoopMemoryWatch.__torch_dispatch__, LoopMemoryWatch.end):
    never_compiled(_callback, below=True)
