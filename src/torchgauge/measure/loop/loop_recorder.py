"""The recordings of the user's loop: each of one thread, which begins and ends it, in a file."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

import torch
from torch._C._profiler import _RecordFunctionFast

from torchgauge.errors import MeasurementError
from torchgauge.measure.loop import mark
from torchgauge.measure.loop.loop_modules import ExcludedThreads, InnerRanges, LoopModules
from torchgauge.measure.loop.scalar_reads import ScalarReads
from torchgauge.measure.recording import capture_limit as capture
from torchgauge.measure.recording.recording import Recorder
from torchgauge.measure.timeline.ranges import step_range
from torchgauge.signals import HeldBack

MARK = "tg:"


class LoopRecorder:
    """Begins and ends recordings, one at a time, and keeps their files.

    torch's profiler may end on the thread on which it began, and on no other. Where the loop goes
    on on another one meanwhile, the recording is deserted: its own thread ends it with its next
    call of a module. `moved` is called when wrappers of module calls have changed.
    """

    def __init__(
        self,
        folder: Path,
        modules: LoopModules,
        moved: Callable[[], None],
        scalars: ScalarReads,
        *,
        all_threads: bool,
    ) -> None:
        self.needs: capture.StepNeeds | None = None
        self.names: list[str] = []
        self.left_out = ExcludedThreads()
        self._folder = folder
        self._modules = modules
        self._moved = moved
        self._scalars = scalars
        self._all_threads = all_threads
        self._steps, self._numbers = itertools.count(), itertools.count()
        self._ranges = InnerRanges(modules, self.left_out)
        self._around, self._reading = contextlib.ExitStack(), contextlib.ExitStack()
        self._recorder: Recorder | None = None
        self._deserted: Recorder | None = None
        self.forget()

    def forget(self) -> None:
        """Forget the recordings until now."""
        self.files: list[Path] = []
        self.estimate: Path | None = None
        self._estimating = self._is_ready = False
        self._boundaries = 0

    @property
    def records(self) -> bool:
        """Whether a recording of the loop is under way."""
        return self._recorder is not None

    @property
    def is_free(self) -> bool:
        """Whether another recording may begin."""
        return self._recorder is None and self._deserted is None

    def put_around(self, wrapper: contextlib.AbstractContextManager[None] | None) -> None:
        """Have the wrapper be around module calls, in place of the one before."""
        self._around.close()
        if wrapper is not None:
            self._around.enter_context(wrapper)
        self._moved()

    def ready(self) -> None:
        """Put ranges around module calls, one step before a recording."""
        self._ranges = InnerRanges(self._modules, self.left_out)
        self.put_around(self._ranges.marking())
        self._is_ready = True

    def start(self, *, estimating: bool, this_thread: bool) -> None:
        """Begin, of `this_thread` alone where all are recorded otherwise."""
        if not self._is_ready:
            self.ready()
        self._is_ready = False
        self._boundaries = 0
        self._estimating = estimating
        record_all = self._all_threads and not this_thread
        recorder = Recorder(shapes=True, all_threads=record_all, device=_device())
        recorder.start()
        self._recorder = recorder
        self._ranges.begin(all_threads=self._all_threads)
        if not self._all_threads:
            self.left_out.look()
        mark.name_with(self._named)
        if estimating:
            self.boundary()

    def boundary(self) -> None:
        """Set the point at which a step ends and the next begins."""
        with step_range(next(self._steps)):
            self._boundaries += 1

    def read_scalars(self) -> None:
        """Count the reads of tensors' values too, until the recording ends."""
        self._reading.enter_context(self._scalars.watching())

    def stop(self) -> None:
        """End, and keep the file of what has whole steps."""
        recorder, self._recorder = self._recorder, None
        self._reading.close()
        mark.name_with(None)
        if recorder is None:
            return
        self._ranges.on = False
        if not self._all_threads:
            self.left_out.look()
        try:
            recorder.stop()
        finally:
            self.put_around(None)
        if self._boundaries < 2:  # not one whole step
            return
        path = self._folder / f"{next(self._numbers)}.json"
        recorder.export(path)
        if self._estimating:
            self.estimate = path
            self.needs = capture.step_needs(path)
        else:
            self.files.append(path)

    def follow(self) -> None:
        """Desert a recording that is not of the calling thread, and end a deserted one that is."""
        if self._deserted is not None and not self._deserted.ends_elsewhere():
            self._end_deserted()
        if self.ends_elsewhere():
            self.desert()

    def desert(self) -> None:
        """Have the thread of the recording end it, and keep nothing of it."""
        if self._recorder is None:
            return
        self._deserted, self._recorder = self._recorder, None
        self._reading.close()
        mark.name_with(None)
        self._ranges.leave(self._end_deserted)
        self.follow()

    def ends_elsewhere(self) -> bool:
        """Whether another thread, which is still there, has to end the recording of the loop."""
        return self._recorder is not None and self._recorder.ends_elsewhere()

    def close(self) -> None:
        """End a deserted recording as well as may be, and leave module calls as they were."""
        if self._deserted is not None:
            self._end_deserted()
        self._around.close()

    def _end_deserted(self) -> None:
        recorder, self._deserted = self._deserted, None
        with HeldBack(), contextlib.suppress(MeasurementError):  # of a thread that has ended
            self.put_around(None)
            if recorder is not None:
                recorder.stop()

    def _named(self, name: str) -> contextlib.AbstractContextManager[object]:
        if name not in self.names:
            self.names.append(name)
        return _RecordFunctionFast(f"{MARK}{self.names.index(name)}")


def _device() -> str:
    return "cuda" if torch.cuda.is_initialized() else "cpu"  # type: ignore[no-untyped-call]
