"""The steps of the user's loop while it runs: their times, and the recording of some of them."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch._C._profiler import _RecordFunctionFast

from torchgauge.analyze.timeline.call_tree import Call
from torchgauge.errors import MeasurementError, TorchgaugeError, text_of
from torchgauge.measure.loop import mark
from torchgauge.measure.loop.interruptions import CompilationCosts, Interruptions
from torchgauge.measure.loop.loader_waits import LoaderWaits
from torchgauge.measure.loop.loop_memory import LoopMemoryWatch
from torchgauge.measure.loop.loop_modules import ExcludedThreads, InnerRanges, LoopModules
from torchgauge.measure.loop.schedule import RECORDING, Schedule
from torchgauge.measure.loop.step_clock import ScalarReads, StepClock
from torchgauge.measure.recording import capture_limit as capture
from torchgauge.measure.recording.recording import Recorder
from torchgauge.measure.timeline.ranges import step_range
from torchgauge.measure.timeline.stamps import Stamps
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.loop import Phase, Stretch
from torchgauge.signals import HeldBack

MARK = "tg:"
# Phases without a profiler, which makes many objects to be collected. In "ready" and "settle" steps
# a compiled model is compiled again.
UNDISTURBED: tuple[Phase, ...] = ("bare", "stamp")
# A loop of weeks must not fill the memory with its own times.
MOST_TIMES = 100_000
# Seconds in which the thread that steps may end its step, where another ends the timeline.
LAST_STEP = 10.0


class LoopSteps:
    """Takes note of each step's end, and records those that the schedule says.

    `moved` is called when wrappers of module calls have changed. A recording that fails leaves a
    warning, and the loop goes on without: nothing is raised into the user's code but Ctrl-C.
    """

    def __init__(
        self,
        schedule: Schedule,
        memory: int,
        folder: Path,
        modules: LoopModules,
        stamps: Stamps,
        moved: Callable[[], None],
        now: Callable[[], int] = time.perf_counter_ns,
        *,
        all_threads: bool = False,
        watch_memory: bool = False,
    ) -> None:
        self.needs: capture.StepNeeds | None = None
        self.names: list[str] = []
        self.warnings: list[MeasurementWarning] = []
        self.left_out = ExcludedThreads()
        self.interruptions = Interruptions(now)
        self.clock = StepClock(now)
        self.loader_waits = LoaderWaits(now)
        self.watchers = (self.interruptions, self.clock, self.loader_waits)
        self.memory = LoopMemoryWatch(modules, self.clock.kind) if watch_memory else None
        self.compilation_costs = CompilationCosts()
        self.scalars = ScalarReads(now)
        self._reading = contextlib.ExitStack()
        self._schedule = schedule
        self._memory = memory
        self._folder = folder
        self._modules = modules
        self._stamps = stamps
        self._moved = moved
        self._now = now
        self._all_threads = all_threads
        self._phases: Iterator[Phase] = iter(())
        self._numbers = itertools.count()
        self._files = itertools.count()
        self._home = threading.get_ident()
        self._ranges = InnerRanges(modules, self.left_out)
        self._start_of_loop = 0
        self._closed = False
        self._ended_elsewhere = threading.Event()
        self.phase: Phase = "bare"
        self._forget()

    def begin(self) -> None:
        """Take the loop to begin now."""
        self._start_of_loop = self._now()
        self.phase = next(self._phases)
        if self.phase == "estimate":
            self._undisturbed(self._start)
        self._began = self._now()

    def ended(self) -> None:
        """Take note that a step has ended, and make ready what the next one is for."""
        self._end_watched()
        took = self._now() - self._began
        for watcher in self.watchers:
            watcher.end()
        self.compilation_costs.end()
        if self._closed:
            if self._recorder is not None:
                self._boundary()
            self._end()
            self._ended_elsewhere.set()
            return
        if self._recorder is not None and self.phase != "warmup":
            self._boundary()
        if self.phase == "stamp":
            self.stamped.append(self._recorded_calls(self._stamps.take_calls()))
        if self.phase != "bare":
            self._modules.forget_gone()
        self._note(took)
        before = self.phase
        if before == "estimate":
            self._undisturbed(self._stop)  # what it needs decides what comes next
        self.phase = next(self._phases)
        if self.phase != before:
            self._undisturbed(self._change)
        if self.phase == "record" != before:
            self._boundary()
            self._reading.enter_context(self.scalars.watching())
        # The first step after a change is not like the others.
        self._begin_step(counts=self.phase in UNDISTURBED and self.phase == before)

    def _begin_step(self, *, counts: bool) -> None:
        for watcher in self.watchers:
            watcher.begin(counts=counts)
        self.compilation_costs.begin(counts=counts or self.count < 2)
        self._began = self._now()

    def restart(self) -> None:
        """Forget the steps until now: what ends now is the first.

        After a recording the next step is bare: a span that began in it, as the optimizer's did,
        may still be open.
        """
        between: tuple[Phase, ...] = ("bare",) if self._recorder is not None else ()
        self._boundaries = 0
        self._end()
        self._forget()
        self.phase = "bare"
        if self._schedule.skip:
            next(self._phases)
        self._phases = itertools.chain(between, self._phases)
        self._began = self._start_of_loop

    def close(self) -> None:
        """End what runs; a recording that was not complete is kept where it has whole steps.

        Where the steps are another thread's, that one ends its recording with its next step, which
        is waited for.
        """
        self._closed = True
        recorder, limit = self._recorder, time.monotonic() + LAST_STEP
        while recorder is not None and recorder.ends_elsewhere() and time.monotonic() < limit:
            if self._ended_elsewhere.wait(0.05):
                break
        self._end()

    def _end(self) -> None:
        if self._recorder is not None:
            self._undisturbed(self._stop)
        self._around.close()

    def _forget(self) -> None:
        self.stretches: list[tuple[Phase, list[int]]] = []
        self.stamped: list[list[Call]] = []
        self.recordings: list[Path] = []
        self.estimate: Path | None = None
        self.count = 0
        self._phases = (
            self._schedule.phases(self._fits) if self.memory is None else self._schedule.watched()
        )
        self.phase = "bare"
        self._recorder: Recorder | None = None
        self._estimating = False
        self._boundaries = 0
        self._is_ready = False
        for watcher in (*self.watchers, self.scalars, self.memory):
            if watcher is not None:
                watcher.forget()
        self._around = contextlib.ExitStack()
        self._began = 0

    def _undisturbed(self, action: Callable[[], None]) -> None:
        """Do it whole before a Ctrl-C counts, and let no failure of it into the user's loop."""
        with HeldBack():
            try:
                action()
            except Exception as error:  # noqa: BLE001 - objects of the program are looked at too
                self._give_up(error)

    def _note(self, took: int) -> None:
        self.count += 1
        if self.count > MOST_TIMES:
            return
        if not self.stretches or self.stretches[-1][0] != self.phase:
            self.stretches.append((self.phase, []))
        self.stretches[-1][1].append(took)

    def _change(self) -> None:
        if self.phase in RECORDING:
            if self._recorder is None:
                self._start()
            return
        if self._recorder is not None:
            self._stop()
        if self.phase == "estimate":
            self._start()
        elif self.phase == "ready":
            self._ready()
        else:
            self._watch()

    def _watch(self) -> None:
        if self.phase == "stamp":
            self._stamps.take_calls()  # the step before let the wrapper settle
            return
        if self.memory is not None and self.phase == "memory":
            self._put_around(self.memory.watching(self.count))
            return
        self._put_around(self._stamps.watching() if self.phase == "settle" else None)

    def _end_watched(self) -> None:
        if self.memory is not None and self.phase == "memory":
            self._undisturbed(functools.partial(self.memory.end_step, self.count + 1))

    def _ready(self) -> None:
        self._ranges = InnerRanges(self._modules, self.left_out)
        self._put_around(self._ranges.marking())
        self._is_ready = True

    def _put_around(self, wrapper: contextlib.AbstractContextManager[None] | None) -> None:
        self._around.close()
        if wrapper is not None:
            self._around.enter_context(wrapper)
        self._moved()

    def _start(self) -> None:
        if not self._is_ready:
            self._ready()
        self._is_ready = False
        self._boundaries = 0
        self._estimating = self.phase == "estimate"
        record_all = self._all_threads and not self._estimating_here()
        recorder = Recorder(shapes=True, all_threads=record_all, device=_device())
        recorder.start()
        self._recorder = recorder
        self._ranges.begin(all_threads=self._all_threads)
        if not self._all_threads:
            self.left_out.look()
        mark.name_with(functools.partial(self._named))  # a new one for each recording
        if self._estimating:
            self._boundary()

    def _recorded_calls(self, calls: list[Call]) -> list[Call]:
        """Leave out the calls of threads that are not recorded, which autograd's are."""
        this_thread = threading.get_ident()
        return [
            call
            for call in calls
            if self._all_threads or call.thread == this_thread or call.recomputed
        ]

    def _estimating_here(self) -> bool:
        """Whether this recording can be of one thread: one that both begins and ends it.

        torch writes into what it has freed where a span is open from one recording of all threads
        to the next. The estimate, which is followed by another, is of the loop's thread for that.
        """
        return self._estimating and self._schedule.skip > 0 and threading.get_ident() == self._home

    def _stop(self) -> None:
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
            self._put_around(None)
        if self._boundaries < 2:  # not one whole step
            return
        path = self._folder / f"{next(self._files)}.json"
        recorder.export(path)
        if self._estimating:
            self.estimate = path
            self.needs = capture.step_needs(path)
        else:
            self.recordings.append(path)

    def _give_up(self, error: Exception) -> None:
        """Say that the recording failed, and watch the rest of the loop as it is."""
        self._around.close()
        bare: Phase = "bare"
        self._phases = itertools.repeat(bare)
        self.phase = "bare"
        self._moved()
        if not isinstance(error, TorchgaugeError):
            error = _failed(error)
        self.warnings.append(MeasurementWarning.from_error(error, "timeline"))

    def _boundary(self) -> None:
        with step_range(next(self._numbers)):
            self._boundaries += 1

    def _named(self, name: str) -> contextlib.AbstractContextManager[object]:
        if name not in self.names:
            self.names.append(name)
        span: contextlib.AbstractContextManager[object] = _RecordFunctionFast(
            f"{MARK}{self.names.index(name)}"
        )
        return span

    def _fits(self) -> int:
        needs = self.needs.memory if self.needs is not None else 1
        return self._memory // max(needs, 1)

    def times(self) -> tuple[Stretch, ...]:
        """Return the steps' durations in seconds, in stretches of one phase."""
        return tuple(
            Stretch(phase=phase, durations=tuple(nanoseconds * 1e-9 for nanoseconds in took))
            for phase, took in self.stretches
        )


def _device() -> str:
    return "cuda" if torch.cuda.is_initialized() else "cpu"  # type: ignore[no-untyped-call]


def _failed(error: Exception) -> TorchgaugeError:
    return MeasurementError(
        f"Recording the loop failed: {text_of(error)}",
        id="recording-failed",
        cause="torch's profiler, the temporary folder or an object of the program raised it.",
        remedy="Check that the folder for temporary files has space, and record fewer steps.",
    )
