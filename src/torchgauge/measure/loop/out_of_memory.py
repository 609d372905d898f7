"""Write down what is alive when a loop's memory runs out, before the process ends.

Autograd runs the nodes of a thread from the last that was made to the first, and frees what each
saved once it has run. So the one that raised is between the last that holds nothing any more and
the first that still does; what can ask for no memory is not it. Where instead a gradient may have
been added to another or to a parameter's, or several nodes may have raised, nothing is said.
"""

from __future__ import annotations

import contextlib
import gc
import math
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import msgspec
import torch
from torch import nn

from torchgauge import torch_private, units
from torchgauge.analyze.loop.loop_verdict import loop_verdict
from torchgauge.device.environment import environment
from torchgauge.device.process_counters import MemoryRoom, memory_rooms
from torchgauge.errors import TorchgaugeError, text_of
from torchgauge.files import write_atomically
from torchgauge.forks import Owner
from torchgauge.imports import imported
from torchgauge.measure import forward
from torchgauge.measure.loop.loop_modules import LoopModules
from torchgauge.measure.loop.loop_record import program, rank
from torchgauge.measure.loop.loop_steps import LoopSteps
from torchgauge.measure.memory.live_tensors import live_tensors, locals_of, outermost, saved_by
from torchgauge.measure.recording.scope import wrapped
from torchgauge.measure.work.internals import backward_code, never_compiled
from torchgauge.records.memory.memory import OutOfMemory
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.loop import Captured, Loop
from torchgauge.signals import restoring
from torchgauge.targets.inputs.tensors import node_of

RECORD = "oom.json"
_RAN_OUT = "memory ran out"
MOST_EVENTS = 5  # a program that tries again may run out any number of times
_HISTORY = 100_000  # allocations and frees that a snapshot of a GPU tells of


class OutOfMemoryWatch:
    """Notes the error of memory that ends the loop; with a folder, while `watching`, further ones.

    These are errors that pass through a module's call, and memory near the limit at which the
    kernel kills the process, seen from a thread. What was
    measured until then is written at once, since the process may not live much longer.
    Nothing of this raises into the user's code.
    """

    def __init__(
        self, folder: Path | None, steps: LoopSteps, modules: LoopModules, budget: int
    ) -> None:
        self.events: tuple[OutOfMemory, ...] = ()
        self.warnings: list[MeasurementWarning] = []
        self.folder = folder
        self._steps = steps
        self._modules = modules
        self._budget = budget
        self._owner = Owner()
        self._on = False
        self._noted: BaseException | None = None
        self._snapshot = ""
        self._thread = threading.get_ident()
        self._lock = threading.RLock()
        # The numbers of events without what autograd alone holds: the next module call adds it.
        self._incomplete: list[int] = []
        self._memory: MemoryWatch | None = None

    @restoring
    def watching(self) -> Iterator[None]:
        """Watch module calls and GPU allocators until the block ends."""
        self._on = True
        self._memory = MemoryWatch(memory_rooms(), self.near)
        imported("scipy.special")  # the verdict needs it, when memory is short
        # Not before CUDA is in use: processes that are forked could not use it any more.
        torch_private.lazy_cuda_call(self._attach)
        try:
            with wrapped(self._wrap), self._memory.watching():
                yield
        finally:
            self._on = False
            self._noted = None
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                torch_private.record_cuda_memory(enabled=None)

    def finish(self, error: BaseException | None) -> None:
        """Take note of how the loop ended: all errors of memory but this one were caught."""
        first = _first_cause(error)
        if first is not None:
            self._note(first)
        if self._memory is not None and (killed := self._memory.kills()):
            self.warnings.append(_killed(killed))
        last, self._noted = self._noted is first and first is not None, None
        self.events = tuple(
            msgspec.structs.replace(event, caught=not (last and event is self.events[-1]))
            for event in self.events
        )

    def raised(self, error: BaseException) -> None:
        """Take note of an error, if it says that memory ran out."""
        if self._on and forward.is_out_of_memory(error, text_of(error)):
            self._note(error)

    def _note(self, error: BaseException) -> None:
        if self._owner.in_fork:
            return
        try:
            if self._noted is not error:
                self._noted = error
                if len(self.events) < MOST_EVENTS:
                    self._add(self._event(error))
            elif self.events:  # on its way outwards: the outermost module knows the layer's name
                *before, last = self.events
                if last.limit is None and last.phase != "backward":
                    named = msgspec.structs.replace(last, layer=forward.raising_layer(error))
                    self.events = (*before, named)
        except Exception as failure:  # noqa: BLE001 - the user's loop must not fail by it
            self._failed(failure)

    def near(self, room: MemoryRoom, used: int) -> None:
        """Take note that little of a limit is left; from the watching thread."""
        if not self._on or self._owner.in_fork or len(self.events) >= MOST_EVENTS:
            return
        try:
            frames = _outermost_first(sys._current_frames().get(self._thread))  # noqa: SLF001
            tensors = live_tensors("cpu", frames, graphs=False)
            event = OutOfMemory(
                device="cpu",
                message=f"{units.percent(used / room.limit)} of {room.name} "
                f"({units.size(room.limit)}) are in use.",
                free=max(room.limit - used, 0),
                step=self._steps.count,
                layer=forward.running_layer(frames),
                phase=forward.running_phase(frames),
                total=sum(tensor.size for tensor in tensors),
                tensors=tensors,
                limit=room.limit,
            )
            with self._lock:
                self._incomplete.append(len(self.events))  # a module call meanwhile waits for it
                self._add(event)
        except Exception as failure:  # noqa: BLE001 - the user's loop must not fail by it
            self._failed(failure)

    def complete(self) -> None:
        """Add what autograd alone holds to events that were noted from another thread."""
        if threading.get_ident() != self._thread or self._owner.in_fork:
            return
        with self._lock:
            number = self._incomplete.pop()
            try:
                tensors = live_tensors("cpu", _outermost_first(sys._getframe(1)))  # noqa: SLF001
                total = sum(tensor.size for tensor in tensors)
                event = msgspec.structs.replace(self.events[number], tensors=tensors, total=total)
                self.events = (*self.events[:number], event, *self.events[number + 1 :])
                self._save()
            except Exception as failure:  # noqa: BLE001 - the user's loop must not fail by it
                self._failed(failure)

    def _add(self, event: OutOfMemory) -> None:
        """Write the record with one event more, then with the verdict too, which takes memory."""
        with self._lock:
            self.events += (event,)
            if self.folder is not None:
                self._partial().save(self.folder / RECORD)
            self._save()

    def _save(self) -> None:
        if self.folder is None:
            return
        loop = msgspec.structs.replace(
            self._partial(), step_times=self._steps.clock.times(), program=program()
        )
        msgspec.structs.replace(loop, verdict=loop_verdict(loop)).save(self.folder / RECORD)

    def _event(self, error: BaseException) -> OutOfMemory:
        text = text_of(error)
        on_gpu = isinstance(error, torch.OutOfMemoryError)
        device = f"cuda:{torch.cuda.current_device()}" if on_gpu else "cpu"
        frames, requested = forward.frames_of(error), forward.requested_bytes(text)
        tensors, phase = live_tensors(device, frames), forward.running_phase(frames)
        failed = failed_backward(frames, requested) if phase == "backward" else Failed()
        total = sum(tensor.size for tensor in tensors)
        snapshot, self._snapshot = self._snapshot, ""
        return OutOfMemory(
            device=device,
            message=text.splitlines()[0] if text else type(error).__name__,
            requested=requested,
            free=forward.free_bytes(device),
            step=self._steps.count,
            layer=failed.layer or forward.running_layer(frames) * (phase != "backward"),
            function=failed.function,
            after=failed.after,
            phase=phase,
            total=torch.cuda.memory_allocated(device) if on_gpu else total,
            tensors=tensors,
            snapshot=snapshot,
        )

    def _partial(self) -> Loop:
        """Return a record of the steps until now, and that memory ran out."""
        return Loop(
            roots=self._modules.roots,
            environment=environment(),
            captured=Captured(requested=None, recorded=0, budget=self._budget, reason=_RAN_OUT),
            count=self._steps.count,
            stretches=self._steps.times(),
            rank=rank(),
            out_of_memory=self.events,
            interrupted=True,
        )

    @property
    def noted(self) -> bool:
        """Whether there is anything to add to the record."""
        return bool(self.events or self.warnings)

    def finished(self, loop: Loop) -> tuple[Loop, tuple[Path, ...]]:
        """Return the record with what was noted, and the files in which it is saved."""
        loop = msgspec.structs.replace(
            loop, out_of_memory=self.events, warnings=(*loop.warnings, *self.warnings)
        )
        if not self.events or self.folder is None:
            return loop, ()
        snapshots = [self.folder / event.snapshot for event in self.events if event.snapshot]
        try:
            return loop, (loop.save(self.folder / RECORD), *snapshots)
        except TorchgaugeError as failure:
            self._failed(failure)
            return msgspec.structs.replace(loop, warnings=(*loop.warnings, self.warnings[-1])), ()

    def _failed(self, failure: BaseException) -> None:
        self.warnings.append(
            MeasurementWarning(
                id="oom-unwritten",
                message=f"What was alive as memory ran out was not noted: {text_of(failure)}",
                probe="timeline",
                remedy="Check that the folder of --on-oom, if given, can be written to.",
            )
        )

    def _wrap(self, original: Callable[..., Any], inner: frozenset[type]) -> Callable[..., Any]:
        compiling, raised = torch.compiler.is_compiling, self.raised
        incomplete, complete = self._incomplete, self.complete

        def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if compiling() or type(self) in inner:
                return original(self, *args, **kwargs)
            if incomplete:
                complete()
            try:
                return original(self, *args, **kwargs)
            except (RuntimeError, MemoryError) as error:
                raised(error)
                raise

        return __call__

    def _attach(self) -> None:
        """Have the allocator keep its history, and call when it has nothing left."""
        if not self._on:
            return
        torch_private.record_cuda_memory(max_entries=_HISTORY)
        torch_private.watch_cuda_memory(self._observed)

    def _observed(self, device: int, *_sizes: int) -> None:
        """Write the allocator's snapshot while what did not fit beside is alive."""
        if not self._on or self._owner.in_fork or len(self.events) >= MOST_EVENTS:
            return
        try:
            folder = self.folder or Path()
            path = folder / f"oom{len(self.events) or ''}.cuda{device}.pickle"
            folder.mkdir(parents=True, exist_ok=True)
            snapshot = torch_private.cuda_snapshot()
            write_atomically(path, pickle.dumps(snapshot))
            self._snapshot = path.name
        except (TorchgaugeError, OSError, RuntimeError, MemoryError) as failure:
            self._failed(failure)


never_compiled(OutOfMemoryWatch.raised, below=True)
never_compiled(OutOfMemoryWatch.complete, below=True)


def _first_cause(error: BaseException | None) -> BaseException | None:
    """Return the error of memory that an error is or came from; None where it is another."""
    visited: set[int] = set()
    while error is not None and id(error) not in visited:
        if forward.is_out_of_memory(error, text_of(error)):
            return error
        visited.add(id(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def _outermost_first(frame: FrameType | None) -> list[FrameType]:
    frames: list[FrameType] = []
    while frame is not None:
        frames.insert(0, frame)
        frame = frame.f_back
    return frames


def _killed(processes: int) -> MeasurementWarning:
    return MeasurementWarning(
        id="oom-killed",
        message=f"The kernel killed {processes} process{'es' * (processes > 1)} meanwhile, since "
        "memory ran out: perhaps a data loader's worker.",
        probe="timeline",
        remedy="Fewer workers or smaller batches, or a higher limit.",
    )


NEAR = 0.9  # of a limit
FASTEST = 4e9  # bytes/s: a program's memory seldom grows faster
PAUSE = 5.0  # seconds
JOIN = 2.0  # seconds, should what `near` does never end
SHORTEST, LONGEST = 0.02, 0.5  # seconds between two looks


class MemoryWatch:
    """Calls `near` where 90 % of a limit are in use, then halfway between that use and the limit.

    It looks again after the time in which memory could have grown so far: 50 times a second near
    a limit, twice a second far from it. A loop that begins above 90 % has its first mark halfway.
    """

    def __init__(
        self, rooms: Sequence[MemoryRoom], near: Callable[[MemoryRoom, int], object]
    ) -> None:
        self._near = near
        self._stop = threading.Event()
        self._kills = {room: room.kills() for room in rooms}
        self._marks = {
            room: round(room.limit * NEAR) if used < room.limit * NEAR else (used + room.limit) // 2
            for room in rooms
            if (used := room.used()) is not None
        }

    @restoring
    def watching(self) -> Iterator[None]:
        """Look until the block ends."""
        thread = threading.Thread(target=self._run, name="torchgauge-memory", daemon=True)
        if self._marks:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            if self._marks:
                thread.join(JOIN)

    def look(self) -> float:
        """Look once and return the seconds until the next time."""
        pause = LONGEST
        for room, mark in self._marks.items():
            used = room.used()
            if used is None:
                continue
            if used >= mark:
                self._marks[room] = (used + room.limit) // 2
                with _paused_threads():
                    self._near(room, used)
            pause = min(pause, (self._marks[room] - used) / FASTEST)
        return max(pause, SHORTEST)

    def kills(self) -> int:
        """Return how many processes were killed meanwhile, by the limit with most of them."""
        return max((room.kills() - before for room, before in self._kills.items()), default=0)

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            pause = self.look()


@contextlib.contextmanager
def _paused_threads() -> Iterator[None]:
    """Keep other threads from running Python, as far as the block does not wait for anything.

    The program would allocate more meanwhile, and be killed before its state is written.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(PAUSE)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


# They make views of gradients, and no memory; "View" copies some.
_VIEWS = frozenset(
    f"{name}Backward0" for name in ("T", "Transpose", "Permute", "Unsqueeze", "Squeeze", "Sum")
)
_VIEW_OR_COPY = frozenset(("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0"))
_RESHAPING = _VIEWS - {"SumBackward0"} | _VIEW_OR_COPY
# What stands between a layer's product and its weight.
_OF_WEIGHTS = _RESHAPING | {"ToCopyBackward0"}


class Failed(NamedTuple):
    """What raised in a backward pass; a field is "" where nothing says it.

    Attributes:
        layer: The layer of whose parameters its gradients are, as `fc1 (Linear)`.
        function: The autograd function, as "GeluBackward0".
        after: The layer whose backward had ended last.
    """

    layer: str = ""
    function: str = ""
    after: str = ""


def failed_backward(frames: Sequence[FrameType], requested: int | None) -> Failed:
    """Return what raised in the innermost backward pass of an error's frames.

    `requested` are the bytes that it asked for. Python's own frames say it of a custom function;
    of a hook, and of a process of several, nothing is known.
    """
    passes = [number for number, frame in enumerate(frames) if frame.f_code is backward_code]
    if not passes or (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return Failed()
    engine, *inside = frames[passes[-1] :]
    ran: list[Any] = []
    if not inside:
        ran, nodes = _nodes(dict(locals_of(engine)), requested)
    else:
        node = dict(locals_of(inside[0])).get("self")
        nodes = [node] if isinstance(node, torch.autograd.function.BackwardCFunction) else []
    owners = _owners()
    layers, functions = {_layer(node, owners) for node in nodes}, {node.name() for node in nodes}
    return Failed(
        layer=layers.pop() if len(layers) == 1 else "",
        function=functions.pop() if len(functions) == 1 else "",
        after=next((layer for node in reversed(ran) if (layer := _layer(node, owners))), ""),
    )


def _nodes(engine: dict[str, Any], requested: int | None) -> tuple[list[Any], list[Any]]:
    """Return nodes that ran, and those of which one raised; none where that is not known.

    `engine` are the variables of torch's function that runs a backward pass.
    """
    _, keeps_graph, _, inputs = (*engine.get("args", ()), None, True, None, None)[:4]
    order = [] if keeps_graph or inputs else _graph(engine.get("t_outputs", ()))
    if len({part.device for node in order for part in node._input_metadata}) > 1:  # noqa: SLF001
        return [], []  # each device has an order of its own
    saved = [saved_by(node) for node in order]
    ran = [node for node, parts in zip(order, saved, strict=True) if parts is None]
    begin = order.index(ran[-1]) + 1 if ran else 0
    waits = [any(part is not None for part in parts or ()) for parts in saved]
    end = [*waits, True].index(True) + 1
    edges = Counter(edge for node in order for edge in node.next_functions)
    for node in order[max(begin - 1, 0) : end - 1]:
        for other, number in node.next_functions:
            if other and _is_added(other, number, requested, edges[other, number]):
                return ran, []
    return ran, [node for node in order[begin:end] if _may_allocate(node, requested)]


def _graph(outputs: Sequence[Any]) -> list[Any]:
    """Return the nodes of the outputs' graph but the parameters', those made last first."""
    visited = {node_of(output) for output in outputs if isinstance(output, torch.Tensor)} - {None}
    nodes = list(visited)
    for node in nodes:  # which grow meanwhile
        used = {other for other, _ in node.next_functions} - visited - {None}
        visited |= used
        nodes += [other for other in used if not hasattr(other, "variable")]
    return sorted(nodes, key=lambda node: -node._sequence_nr())  # noqa: SLF001


def _is_added(node: Any, number: int, requested: int | None, uses: int) -> bool:
    """Whether a gradient that a node takes may have asked for memory to be added to another."""
    if (parameter := getattr(node, "variable", None)) is not None:
        return parameter.grad is None or bool(parameter._post_accumulate_grad_hooks)  # noqa: SLF001
    return uses > 1 and _is_size(node, number, requested)


def _may_allocate(node: Any, requested: int | None) -> bool:
    """Whether a node can have asked for `requested` bytes."""
    if node.name() in _VIEW_OR_COPY:
        return _is_size(node, 0, requested)
    if node.name() == "AddBackward0":  # it passes its gradient on, unless it was broadcast
        edges = [(other, number) for other, number in node.next_functions if other is not None]
        forms = {_form(other, number) for other, number in ((node, 0), *edges)}
        return len(forms) > 1 or node._saved_alpha != 1  # noqa: SLF001
    return node.name() not in _VIEWS


def _form(node: Any, number: int) -> tuple[tuple[int, ...], torch.dtype]:
    """Return shape and type of a gradient that a node takes."""
    part = node._input_metadata[number]  # noqa: SLF001
    return tuple(part.shape), part.dtype


def _is_size(node: Any, number: int, requested: int | None) -> bool:
    """Whether a gradient that a node takes may have `requested` bytes, which errors round."""
    shape, dtype = _form(node, number)
    size = math.prod(shape) * dtype.itemsize
    return requested is None or abs(requested - size) <= 0.01 * size


def _owners() -> dict[int, str]:
    """Return the layers of all parameters by these' identity; "" of one that several have."""
    owners: dict[int, str] = {}
    modules = [item for item in gc.get_objects() if issubclass(type(item), nn.Module)]
    for module in outermost(modules):
        for path, layer in module.named_modules():
            kind = type(layer).__name__
            for parameter in layer.parameters(recurse=False):
                is_shared = id(parameter) in owners
                owners[id(parameter)] = "" if is_shared else f"{path} ({kind})" if path else kind
    return owners


def _layer(node: Any, owners: dict[int, str]) -> str:
    """Return the layer of the parameters that a node takes; "" of none, or of several layers'.

    What reshapes a layer's output belongs to it.
    """
    node = _below(node, _RESHAPING)
    operands = [node, *(_below(other, _OF_WEIGHTS) for other, _ in node.next_functions)]
    layers = {owners.get(id(getattr(other, "variable", None))) for other in operands} - {None}
    return layers.pop() or "" if len(layers) == 1 else ""


def _below(node: Any, functions: frozenset[str]) -> Any:
    """Return the node, or the first below that is none of these functions."""
    while node is not None and node.name() in functions and node.next_functions[0][0] is not None:
        node = node.next_functions[0][0]
    return node
