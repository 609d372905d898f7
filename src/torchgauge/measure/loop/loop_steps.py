"""The steps of the user's loop while it runs: their times, and the recording of some of them."""

from __future__ import annotations

import array
import contextlib
import functools
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from torchgauge import torch_private
from torchgauge.analyze.timeline.call_tree import Call
from torchgauge.errors import MeasurementError, TorchgaugeError, text_of
from torchgauge.garbage import CollectorCount
from torchgauge.measure.loop import mark
from torchgauge.measure.loop.interruptions import CompilationCosts, Interruptions
from torchgauge.measure.loop.loader_waits import LoaderWaits
from torchgauge.measure.loop.loop_memory import LoopMemoryWatch
from torchgauge.measure.loop.loop_modules import ExcludedThreads, InnerRanges, LoopModules
from torchgauge.measure.loop.scalar_reads import ScalarReads
from torchgauge.measure.loop.schedule import RECORDING, Schedule
from torchgauge.measure.loop.step_clock import StepClock
from torchgauge.measure.recording import capture_limit as capture
from torchgauge.measure.recording.recording import Recorder
from torchgauge.measure.timeline.ranges import step_range
from torchgauge.measure.timeline.stamps import Stamps
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.loop import Phase, Stretch
from torchgauge.signals import HeldBack

# Phases without a profiler, which makes many objects to be collected. In "ready" and "settle" steps
# a compiled model is compiled again.
UNDISTURBED: tuple[Phase, ...] = ("bare", "stamp")
RECORDED: tuple[Phase, ...] = ("ready", "estimate", *RECORDING)
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
        self.warnings: list[MeasurementWarning] = []
        self.interruptions = Interruptions(now)
        self.clock = StepClock(now)
        self.loader_waits = LoaderWaits(now)
        self.watchers = (self.interruptions, self.clock, self.loader_waits)
        self.memory = LoopMemoryWatch(modules, self.clock.kind) if watch_memory else None
        self.compilation_costs = CompilationCosts()
        self.scalars = ScalarReads(now)
        self.recorder = LoopRecorder(folder, modules, moved, self.scalars, all_threads=all_threads)
        self._schedule = schedule
        self._memory = memory
        self._modules = modules
        self._stamps = stamps
        self._now = now
        self._all_threads = all_threads
        self._phases: Iterator[Phase] = iter(())
        self._home = self._thread = threading.current_thread()
        self._start_of_loop = 0
        self._closed = False
        self._ended_elsewhere = threading.Event()
        self._collector = CollectorCount()
        self.phase: Phase = "bare"
        self._forget()

    def begin(self) -> None:
        """Take the loop to begin now."""
        self._start_of_loop = self._now()
        self.phase = next(self._phases)
        if self.phase == "estimate":
            self._undisturbed(self._start)
        self._began = self._now()

    def ended(self, noticed: int) -> None:
        """Take note that a step has ended, and make ready what the next one is for.

        From `noticed` (ns) on it was asked whether it ends: that is in the step, and not of it.

        No recording begins before two steps have ended on one thread: it may have no third.
        """
        stays, self._thread = self._thread is threading.current_thread(), threading.current_thread()
        if self.memory is not None and self.phase == "memory":
            self._undisturbed(functools.partial(self.memory.end_step, self.count + 1))
        self._ended = self._now()
        took, self._asking_time = self._ended - self._began, self._ended - noticed
        for watcher in self.watchers if self._counts else ():
            watcher.end()
        self.compilation_costs.end()
        if not self.recorder.is_free:
            self._undisturbed(self.recorder.follow)
        if self.recorder.records and (self._closed or self.phase != "warmup"):
            self.recorder.boundary()
        if self._closed:
            self._end()
            self._ended_elsewhere.set()
            return
        if self.phase == "stamp":
            self._undisturbed(self._take_stamps)
        if self.phase not in ("bare", "paused"):
            self._modules.forget_gone()
        self._note(took)
        before = self.phase
        if before == "estimate":
            self._undisturbed(self.recorder.stop)  # what it needs decides what comes next
        self._advance(may_begin=stays)
        if self.phase != before:
            self._undisturbed(self._change)
        # The first step after a change is not like the others.
        self._begin_step(counts=self.phase in UNDISTURBED and self.phase == before)

    def _advance(self, *, may_begin: bool) -> None:
        phase = next(self._phases)
        begins = phase in RECORDED and not self.recorder.records
        self.put_off = begins and not (may_begin and self.recorder.is_free)
        if self.put_off:
            self._phases = itertools.chain((phase,), self._phases)
        else:
            self.phase = phase

    def _begin_step(self, *, counts: bool) -> None:
        self._counts = counts
        if self.phase == "paused":
            self.clock.number += 1
        else:
            for watcher in self.watchers:
                watcher.begin()
            self.compilation_costs.counts = counts or self.count < 2
        self._began = self._now()
        if counts and len(self._gaps) < MOST_TIMES:
            self._gaps.append(self._asking_time + self._began - self._ended)

    def restart(self) -> None:
        """Forget the steps until now: what ends now is the first.

        After a recording the next step is bare: a span that began in it, as the optimizer's did,
        may still be open.
        """
        between: tuple[Phase, ...] = ("bare",) if self.recorder.records else ()
        self._undisturbed(self.recorder.desert)
        self._undisturbed(self.clock.resume)
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
        limit = time.monotonic() + LAST_STEP
        while self.recorder.ends_elsewhere() and time.monotonic() < limit:
            if self._ended_elsewhere.wait(0.05):
                break
        self._end()

    def _end(self) -> None:
        self._undisturbed(self.recorder.stop)
        self.recorder.close()

    def _forget(self) -> None:
        self.stretches: list[tuple[Phase, list[int]]] = []
        self.stamped: list[list[Call]] = []
        self.count = 0
        self._phases = (
            self._schedule.phases(self._fits) if self.memory is None else self._schedule.watched()
        )
        self.phase = "bare"
        self.put_off = False
        for watcher in (*self.watchers, self.recorder, self.scalars, self.memory):
            if watcher is not None:
                watcher.forget()
        self._began = 0
        self._counts = False
        self._gaps = array.array("q")

    def _undisturbed(self, action: Callable[[], None]) -> None:
        """Do it whole before a Ctrl-C counts; no failure or object of it is the user's loop's."""
        with HeldBack(), self._collector.held():
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
        if self.phase == "paused":
            self.clock.pause()
            self.loader_waits.paused = True
            return
        if self.phase in RECORDING:
            if not self.recorder.records:
                self._start()
            if self.phase == "record":
                self.recorder.boundary()
                self.recorder.read_scalars()
            return
        self.recorder.stop()
        if self.phase == "estimate":
            self._start()
        elif self.phase == "ready":
            self.recorder.ready()
        else:
            self._watch()

    def _watch(self) -> None:
        if self.phase == "stamp":
            self._stamps.take_calls()  # the step before let the wrapper settle
            return
        if self.memory is not None and self.phase == "memory":
            self.recorder.put_around(self.memory.watching(self.count))
            return
        self.clock.resume()
        self.recorder.put_around(self._stamps.watching() if self.phase == "settle" else None)

    def _start(self) -> None:
        """Begin a recording, where it can be of the loop's thread alone.

        torch writes into what it has freed where a span is open from one recording of all threads
        to the next. The estimate, which is followed by another, is of the loop's thread for that.
        """
        estimating, at_home = self.phase == "estimate", self._thread is self._home
        this_thread = estimating and self._schedule.skip > 0 and at_home
        self.recorder.start(estimating=estimating, this_thread=this_thread)

    def _take_stamps(self) -> None:
        """Keep the step's calls; of threads that are not recorded autograd's alone."""
        this_thread = threading.get_ident()
        self.stamped.append(
            [
                call
                for call in self._stamps.take_calls(self.loader_waits.spans)
                if self._all_threads or call.thread == this_thread or call.recomputed
            ]
        )

    def _give_up(self, error: Exception) -> None:
        """Say that the recording failed, and watch the rest of the loop as it is."""
        bare: Phase = "bare"
        self._phases = itertools.repeat(bare)
        self.phase = "bare"
        self.recorder.put_around(None)
        if not isinstance(error, TorchgaugeError):
            error = MeasurementError(
                f"Recording the loop failed: {text_of(error)}",
                id="recording-failed",
                cause="torch's profiler, the temporary folder or a program's object raised it.",
                remedy="Check that the temporary folder has space, and record fewer steps.",
            )
        self.warnings.append(MeasurementWarning.from_error(error, "timeline"))

    def _fits(self) -> int:
        needs = self.recorder.needs.memory if self.recorder.needs is not None else 1
        return self._memory // max(needs, 1)

    @property
    def between(self) -> float:
        """The seconds that counting takes at a step's end and clocks behind it, in no step."""
        return statistics.median(self._gaps) * 1e-9 if self._gaps else 0.0

    def times(self) -> tuple[Stretch, ...]:
        """Return the steps' durations in seconds, in stretches of one phase."""
        return tuple(
            Stretch(phase=phase, durations=tuple(nanoseconds * 1e-9 for nanoseconds in took))
            for phase, took in self.stretches
        )


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
        mark = f"{MARK}{self.names.index(name)}"
        span: contextlib.AbstractContextManager[object] = torch_private.RecordFunction(mark)
        return span


def _device() -> str:
    return "cuda" if torch.cuda.is_initialized() else "cpu"  # type: ignore[no-untyped-call]
