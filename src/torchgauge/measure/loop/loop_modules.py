"""The modules of a loop: its model, several models, or all modules that it calls."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from torch import nn

from torchgauge.analyze.timeline.call_tree import MODEL, Call, CallTree
from torchgauge.measure.loop.loader_waits import in_loader
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.timeline.ranges import Ranges
from torchgauge.measure.work.internals import graph_task, is_torchs, never_compiled
from torchgauge.records.record import MeasurementWarning
from torchgauge.targets import members

NAMED = 5  # threads that a warning names; it counts the others


class ExcludedThreads:
    """Names of threads that worked with torch beside the one that is recorded."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def note(self) -> None:
        """Take note of the thread that calls."""
        self.names[threading.current_thread().name] = None

    def look(self) -> None:
        """Take note of the other threads that are in code of torch at this moment."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        frames = sys._current_frames()  # noqa: SLF001 (there is no public way)
        # Its own would be a cycle, which would keep what the user's functions hold.
        frames.pop(threading.get_ident(), None)
        for ident, frame in frames.items():
            if ident in names and _in_torch(frame):
                self.names[names[ident]] = None

    def warnings(self) -> tuple[MeasurementWarning, ...]:
        """Return the warning of these threads; nothing where there were none."""
        if not self.names:
            return ()
        return (
            MeasurementWarning(
                id="threads-unrecorded",
                message=f"Other threads worked with torch, which are not recorded: "
                f"{listed(list(self.names))}. What they do is in no figure.",
                probe="timeline",
                cause="torch crashes or hangs where another thread is in an operator as a "
                "recording of all threads begins or ends.",
                remedy="Let those threads pause around it and give all_threads=True "
                "(`torchgauge run --all-threads script.py`), or run the loop under the timeline in "
                "their thread.",
            ),
        )


def listed(names: list[str]) -> str:
    """Return the names with commas, the first NAMED of many."""
    remaining = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {remaining} more" if remaining > 0 else "")


def _in_torch(frame: FrameType | None) -> bool:
    while frame is not None:
        if is_torchs(frame):
            return True
        frame = frame.f_back
    return False


# Spans that were open when their recording ended.
_left_open: list[object] = []


def loop() -> None:
    """Stand for the loop itself, where it has no one model."""


class LoopModules(Modules):
    """Numbers modules; number 0 is the only root, or else the loop, and roots are below it.

    A wrapper around the only root (DistributedDataParallel) is no layer: its own time is outside.
    """

    def __init__(self, roots: Sequence[nn.Module]) -> None:
        self.target: Callable[..., Any] = roots[0] if len(roots) == 1 else loop
        super().__init__(self.target)
        for root in roots:
            self.number(root)
        self.roots = tuple(type(root).__name__ for root in roots)

    def models(self, tree: CallTree) -> list[nn.Module]:
        """Return the modules with parameters that the loop itself calls, of which `tree` is."""
        if self.root is not None:
            return [self.root]
        numbers = dict.fromkeys(layer.module for layer in tree.layers if layer.parent == MODEL)
        modules = [self.by_number[number] for number in numbers]
        return [module for module in modules if module is not None and members.parameters(module)]

    def met(self) -> tuple[str, ...]:
        """Return the names of the outermost modules that were met outside of a target."""
        names = (named.paths[0] for named in self.table[1:])
        return tuple(dict.fromkeys(name for name in names if name and "." not in name))

    def wraps(self, module: nn.Module) -> bool:
        """Return whether the module is around the only root."""
        return (
            self.root is not None
            and module is not self.root
            and any(child is self.root for child in module.modules())
        )

    def inner(self, calls: Sequence[Call]) -> list[Call]:
        """Return the calls without those of wrappers."""
        wrappers = {
            number
            for number, module in enumerate(self.by_number)
            if module is not None and self.wraps(module)
        }
        return [call for call in calls if call.module not in wrappers]


class InnerRanges(Ranges):
    """Ranges of one recording: of all modules but those that wrap the only root.

    Other threads call modules while the recording begins and ends. torch refuses a range that
    begins without a profiler and ends with one, and writes into freed memory where it begins in one
    recording and ends in the next: while not `on`, none begins and none ends. Of a recording of one
    thread (`begin`) the others are noted in `left_out`. What a data loader calls is no layer.
    """

    def __init__(self, modules: LoopModules, left_out: ExcludedThreads) -> None:
        super().__init__(modules.target, modules)
        self.on = False
        self._own = _outside_loader
        self._loop = modules
        self._left_out = left_out
        self._thread: int | None = None
        self._leaving: Callable[[], object] | None = None

    def begin(self, *, all_threads: bool) -> None:
        """Let ranges begin, on the calling thread and on autograd's or on every thread."""
        self._thread = None if all_threads else threading.get_ident()
        self.on = True

    def leave(self, leaving: Callable[[], object]) -> None:
        """Let none begin; the thread that was recorded calls `leaving` with its next module.

        torch's profiler cannot end in a backward pass.
        """
        self.on, self._leaving = False, leaving

    def takes(self) -> bool:
        """Return whether a range may begin on the calling thread."""
        if not self.on:
            if self._leaving and self._thread == threading.get_ident() and graph_task() == -1:
                leaving, self._leaving = self._leaving, None
                leaving()
            return False
        if self._thread in (None, threading.get_ident()) or graph_task() != -1:
            return True
        self._left_out.note()
        return False

    def _new(self, module: nn.Module, key: int) -> Any:
        if self._loop.wraps(module):
            self._free.setdefault(key, [])
            return contextlib.nullcontext()
        return _Range(super()._new(module, key), self)


def _outside_loader() -> bool:
    return not in_loader()


never_compiled(_outside_loader)


class _Range:
    __slots__ = ("_began", "_ranges", "_span")

    def __init__(self, span: Any, ranges: InnerRanges) -> None:
        self._span = span
        self._ranges = ranges
        self._began = False

    def __enter__(self) -> None:
        self._began = self._ranges.takes()
        if self._began:
            self._span.__enter__()

    def __exit__(self, *_: object) -> None:
        if not self._began:
            return
        if self._ranges.on:
            self._span.__exit__(None, None, None)
        else:  # freed in another recording, it would write into freed memory
            _left_open.append(self._span)
