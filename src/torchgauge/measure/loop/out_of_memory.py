"""Write down what is alive when a loop's memory runs out, before the process ends."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import torch
from torch import nn

from torchgauge import units
from torchgauge.analyze.loop.loop_verdict import loop_verdict
from torchgauge.device.environment import environment
from torchgauge.device.process_counters import MemoryRoom, memory_rooms
from torchgauge.errors import TorchgaugeError, text_of
from torchgauge.files import write_atomically
from torchgauge.forks import Owner
from torchgauge.imports import imported
from torchgauge.measure import forward
from torchgauge.measure.loop.failed_backward import Failed, failed_backward
from torchgauge.measure.loop.loop_modules import LoopModules
from torchgauge.measure.loop.loop_record import program, rank
from torchgauge.measure.loop.loop_steps import LoopSteps
from torchgauge.measure.loop.memory_watch import MemoryWatch
from torchgauge.measure.memory.live_tensors import live_tensors
from torchgauge.measure.recording.scope import wrapped
from torchgauge.measure.work.internals import never_compiled
from torchgauge.records.memory.memory import OutOfMemory
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.loop import Captured, Loop
from torchgauge.signals import restoring

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
        torch.cuda._lazy_call(self._attach)  # type: ignore[no-untyped-call]  # noqa: SLF001
        try:
            with wrapped(self._wrap), self._memory.watching():
                yield
        finally:
            self._on = False
            self._noted = None
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                torch.cuda.memory._record_memory_history(enabled=None)  # noqa: SLF001

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
        torch.cuda.memory._record_memory_history(max_entries=_HISTORY)  # noqa: SLF001
        attach: Any = vars(torch._C)["_cuda_attach_out_of_memory_observer"]  # noqa: SLF001
        attach(self._observed)

    def _observed(self, device: int, *_sizes: int) -> None:
        """Write the allocator's snapshot while what did not fit beside is alive."""
        if not self._on or self._owner.in_fork or len(self.events) >= MOST_EVENTS:
            return
        try:
            folder = self.folder or Path()
            path = folder / f"oom{len(self.events) or ''}.cuda{device}.pickle"
            folder.mkdir(parents=True, exist_ok=True)
            snapshot = torch.cuda.memory._snapshot()  # noqa: SLF001
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
