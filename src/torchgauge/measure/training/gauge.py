"""Watch the steps of a training that something else runs: the core of the trainers' callbacks.

It knows no trainer. Its owner tells it of batches, of waits for them and of the ends of steps; it
reads the clock, counts FLOPs between the steps, and makes the record whenever it is asked.
"""

from __future__ import annotations

import array
import contextlib
import time
from collections.abc import Callable, Iterable

import msgspec
import torch

from torchgauge.analyze.loop.step_shares import mean_of
from torchgauge.analyze.loop.training_totals import Step, TrainingTotals
from torchgauge.analyze.work.utilization import ModelShape
from torchgauge.device.counters import highest_resident
from torchgauge.device.environment import environment
from torchgauge.device.roofs import roofs
from torchgauge.errors import InputError, MeasurementError, TorchgaugeError, text_of
from torchgauge.measure.loop.loop import Timeline
from torchgauge.measure.loop.loop_record import program, rank
from torchgauge.measure.loop.schedule import Schedule
from torchgauge.measure.training import batch_shapes
from torchgauge.measure.training.model_calls import BatchFlops
from torchgauge.measure.training.whole_modules import class_of, unwrapped
from torchgauge.measure.work.utilization import device_peak, model_shape
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.training_run import TrainingRun
from torchgauge.records.work.utilization import PeakUsed
from torchgauge.targets.inputs.inputs import Inputs

# First steps, which allocate, compile and fill caches: no rate is of them.
FIRST_STEPS = 2
MOST_DURATIONS = 100_000


class TrainingGauge:
    """The steps of a training until now. All methods are called by the thread that trains."""

    def __init__(
        self,
        job: batch_shapes.Job,
        options: batch_shapes.GaugeOptions,
        now: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.count = 0
        self.interrupted = False
        self.warnings: list[MeasurementWarning] = []
        self._job = job
        self._options = options
        self._now = now
        self._environment = environment()
        self._flops = BatchFlops(job.model, job.method, job.dtype)
        self._shapes = batch_shapes.BatchShapes(
            job.model, self._flops, samples=options.samples, tokens=options.tokens, now=now
        )
        self._shapes.unknown = job.uncountable
        self._peak: PeakUsed | None = None
        self._peak_known = False
        self._totals = TrainingTotals()
        self._since_log = TrainingTotals()
        self._durations = array.array("d")
        self._timeline: Timeline | None = None
        self._window: Loop | None = None
        self._window_steps = 0
        self._in_steps = 0
        self._first = self._last = self._began = now()
        self._paused: int | None = None
        self._begin()

    @property
    def has_batches(self) -> bool:
        """Whether the step has had a batch."""
        return bool(self._batches)

    def restart(self) -> None:
        """Let the step begin now: what was done since the last one ended is in no step."""
        if not self.count:
            self._first = self._now()
        self._shapes.count_new(self._calls, 0, now=False)  # those of an evaluation are not needed
        self._began = self._now()
        self._begin()

    def pause(self) -> None:
        """Stop the clock of the step until `resume`, as for an evaluation in the middle of it."""
        if self._paused is None:
            self._paused = self._now()

    def resume(self) -> None:
        """Let the clock of the step run again."""
        if self._paused is not None:
            self._began += self._now() - self._paused
            self._paused = None

    def waited(self, duration: int) -> None:
        """Take note that the step waited for a batch, in ns."""
        if self._paused is None:
            self._wait += duration

    def batch(self, batch: object, inputs: Inputs | None = None) -> None:
        """Take note of a batch of the step; `inputs` are what the model's method is called with.

        Without `inputs` those of the model's calls come by `called`.
        """
        self._batches.append(self._shapes.contents(batch))
        if inputs is not None:
            self.called(inputs)

    def called(self, inputs: Inputs) -> None:
        """Take note of a call of the model."""
        self._calls.append(self._shapes.call(inputs))

    def end_step(self) -> None:
        """Take note that the optimizer has stepped; then count and record what is due."""
        now = self._now()
        self.resume()
        self.count += 1
        duration, recording = now - self._began, self._timeline is not None
        self._in_steps += duration
        self._last = now
        elapsed = now - self._first
        self._shapes.count_new(self._calls, elapsed, now=not recording)
        if not self._peak_known:
            self._find_peak()
        if self.count > FIRST_STEPS and not recording:
            step = Step(
                duration,
                min(self._wait, duration),
                len(self._batches),
                _total(contents.samples for contents in self._batches),
                _total(contents.tokens for contents in self._batches),
                self._shapes.products(self._calls),
            )
            self._totals.add(step)
            self._since_log.add(step)
            if len(self._durations) < MOST_DURATIONS:
                self._durations.append(duration * 1e-9)
            if self._options.monitor is not None:
                _add_to(self._options.monitor, step)
        self._advance_window()
        self._began = self._now()
        self._begin()

    def figures(self) -> dict[str, float]:
        """Return the figures of the steps since the last time, for the trainer's own log."""
        figures = self._since_log.figures(self._peak, self._flops.division.devices)
        self._since_log = TrainingTotals()
        memory = self._memory_peak()
        if figures and memory is not None:
            figures["memory_peak"] = float(memory)
        return {f"torchgauge/{name}": value for name, value in figures.items()}

    def failed(self, error: Exception) -> None:
        """Take note that watching failed: the record says so, and the training goes on."""
        if not isinstance(error, TorchgaugeError):
            error = MeasurementError(
                f"Watching the training failed: {text_of(error)}",
                id="training-watch-failed",
                cause="A defect of torchgauge, or a version of the trainer that it does not know.",
                remedy="Please report it.",
            )
        self.warnings.append(MeasurementWarning.from_error(error, "training"))
        with contextlib.suppress(Exception):
            self._close_window()

    def finish(self, *, interrupted: bool = False) -> None:
        """End the watching, and write the record to the path of the options, if any."""
        self.interrupted = self.interrupted or interrupted
        self._close_window()
        if self._options.save is not None:
            self.record().save(self._options.save)

    def record(self) -> TrainingRun:
        """Return the record of the steps until now."""
        totals = self._totals
        interval = mean_of(self._durations)[1] if len(self._durations) > 1 else None
        if interval is not None:
            interval = msgspec.structs.replace(interval, low=max(interval.low, 0.0))
        of_all = interval if totals.counted == totals.steps else None
        devices = self._flops.division.devices
        used = totals.utilization(self._peak, self._model_shape(), of_all, devices=devices)
        return TrainingRun(
            trainer=self._job.trainer,
            model=self._model_name(),
            environment=self._environment,
            program=program(),
            rank=rank(),
            replicas=None if self._job.processes is None else self._job.processes // devices,
            count=self.count,
            rated=totals.steps,
            time=totals.time * 1e-9,
            data_wait=totals.wait * 1e-9,
            between=max(self._last - self._first - self._in_steps, 0) * 1e-9,
            durations=tuple(self._durations),
            interval=interval,
            micro_batches=totals.batches / totals.steps if totals.steps else None,
            samples=totals.samples if totals.steps else None,
            tokens=totals.tokens if totals.steps else None,
            utilization=used,
            counted=totals.counted,
            unknown="" if used is not None else self._shapes.unknown or self._why_unknown(),
            memory_peak=self._memory_peak(),
            window=self._window,
            interrupted=self.interrupted,
            warnings=tuple(self.warnings),
        )

    def _begin(self) -> None:
        self._wait = 0
        self._batches: list[batch_shapes.Contents] = []
        self._calls: list[object] = []

    def _find_peak(self) -> None:
        """Look once for the peak of the device, after the first step whose FLOPs are counted."""
        products = self._shapes.products(self._calls)
        if products is not None:
            device = str(self._device())
            measured = roofs.known_roofs(device)
            self._peak = device_peak(products, device, self._environment, measured)
            self._peak_known = True

    def _advance_window(self) -> None:
        if self._timeline is not None:
            self._timeline.step()
            self._window_steps -= 1
            if not self._window_steps:
                self._close_window()
        elif self._options.window and self.count == max(self._options.after, 1):
            schedule = Schedule(record=self._options.window)
            timeline = Timeline(schedule=schedule)
            try:
                timeline.__enter__()
            except TorchgaugeError as error:
                self.warnings.append(MeasurementWarning.from_error(error, "timeline"))
                return
            self._timeline, self._window_steps = timeline, schedule.length or 0

    def _close_window(self) -> None:
        timeline, self._timeline = self._timeline, None
        if timeline is not None:
            timeline.__exit__(None, None, None)
            self._window = timeline.record

    def _memory_peak(self) -> int | None:
        device = self._device()
        if device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(device))
        return highest_resident() if device.type == "cpu" else None

    def _device(self) -> torch.device:
        tensor = next(self._job.model.parameters(), None)
        return torch.device("cpu") if tensor is None else tensor.device

    def _model_name(self) -> str:
        try:
            return class_of(unwrapped(self._job.model)).__name__
        except InputError:
            return type(self._job.model).__name__

    def _model_shape(self) -> ModelShape | None:
        try:
            return model_shape([unwrapped(self._job.model)])
        except InputError:
            return None

    def _why_unknown(self) -> str:
        if not self._totals.steps:
            return f"the first {FIRST_STEPS} steps are not rated, and there were {self.count}"
        return "no call of the model was seen, or its shapes were not counted"


def _add_to(monitor: batch_shapes.StepMonitor, step: Step) -> None:
    monitor.add("step", step.duration * 1e-9)
    monitor.add("data_wait", step.wait * 1e-9)
    for series, number in (("samples", step.samples), ("tokens", step.tokens)):
        if number is not None:
            monitor.add(series, number, "")


def _total(amounts: Iterable[int | None]) -> int | None:
    """Return the sum; None where an amount is unknown, or there is none."""
    parts = list(amounts)
    known_parts = [part for part in parts if part is not None]
    return sum(known_parts) if known_parts and len(known_parts) == len(parts) else None
