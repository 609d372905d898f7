"""Latency: one process's calls, timed by the host clock and by the device's own."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from torchgauge import units
from torchgauge.clock import Clock, SystemClock, resolution
from torchgauge.device.base import Device
from torchgauge.device.load import LoadWatch, gpu_metrics
from torchgauge.device.select import open_device
from torchgauge.measure.latency.latency_options import DEFAULT_BUDGET, LatencyOptions
from torchgauge.measure.latency.sampling import Timing, sample
from torchgauge.measure.latency.step_times import is_busy, load_warnings
from torchgauge.measure.latency.yardstick import Yardstick
from torchgauge.measure.step import Step, guarded, prepared, without_values
from torchgauge.measure.timeline.layer_times import undisturbed_call
from torchgauge.progress import Progress, Silent
from torchgauge.records.latency.latency import LatencyRun
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.placement import Placement
from torchgauge.targets.training.training import Phase

# A GPU raises its clocks over the first tenths of a second of work.
GPU_BUSY_WARMUP = 0.15
LONGEST_STAMPED = 0.5
"""Seconds of the fastest call up to which layers are stamped where the machine is busy."""
PHASES: tuple[Phase, ...] = ("zero_grad", "forward", "loss", "backward", "optimizer")


def measure(
    placement: Placement,
    options: LatencyOptions,
    *,
    clock: Clock | None = None,
    device: Device | None = None,
    progress: Progress | None = None,
) -> LatencyRun:
    """Time the step in this process with nothing else attached, and return the run.

    Between the calls reference work is timed, by the system's clock only.

    Raises MeasurementError `meta-model`, and where the step raises.
    """
    if not placement.computes:
        raise without_values()
    device = device or open_device(placement.device)
    yardstick = Yardstick(SystemClock(), device) if clock is None else None
    clock = clock or SystemClock()
    progress = progress or Silent()
    limit = options.plan.time_limit

    def on_progress(samples: int, relative_error: float | None, elapsed: float) -> None:
        precision = "" if relative_error is None else f", median ±{units.percent(relative_error)}"
        progress.update(f"{samples:,} calls{precision}", elapsed / min(limit, DEFAULT_BUDGET))

    with (
        device.current(),
        prepared(placement, options.train) as step,
        gpu_metrics(placement.device) as gpus,
    ):
        call = timed_call(placement, step, options, clock, device)
        watch = LoadWatch(gpus)
        run = sample(
            call,
            clock,
            options.plan,
            on_progress=on_progress,
            busy_warmup=GPU_BUSY_WARMUP if placement.device.startswith("cuda") else 0.0,
            clock_resolution=resolution(clock),
            between=yardstick,
        )
        load = watch.load()
        undisturbed = None
        if yardstick is not None and is_busy(load.other) and options.plan.iterations is None:
            undisturbed = _undisturbed(placement, step, options, run, device)
    restore_warnings = step.saved_state.warnings("latency")  # complete now that all is put back
    return msgspec.structs.replace(
        run,
        first_call=run.first_call - step.lost,
        grad_mode=placement.grad_modes[0] if options.train is None else "enable_grad",
        warnings=(*run.warnings, *load_warnings(load), *restore_warnings),
        undisturbed=undisturbed,
        yardstick={} if yardstick is None else yardstick.medians(run.median),
    )


def _undisturbed(
    placement: Placement, step: Step, options: LatencyOptions, run: LatencyRun, device: Device
) -> float | None:
    """Return the seconds of a call that no other process disturbs; None where no moment was quiet.

    Some moment of a few calls is quiet for each layer, though none may be for a whole call.
    """
    adds_up = not (device.asynchronous or options.staged or options.cold_cache or options.train)
    if not adds_up or min(run.samples) > LONGEST_STAMPED:
        return None
    seconds = undisturbed_call(placement.model, step)
    return None if seconds is None else min(seconds, *run.samples)


def timed_call(
    placement: Placement, step: Step, options: LatencyOptions, clock: Clock, device: Device
) -> Callable[[], Timing]:
    """Return what runs the prepared step once and times it, as the options say."""
    if options.staged:
        call = _staged(placement, step, options, clock, device)
    elif options.train is not None:
        call = phased(step, clock, device)
    else:
        call = _without_stages(step, clock, device)
    return _cold(call, device) if options.cold_cache else call


def _without_stages(step: Step, clock: Clock, device: Device) -> Callable[[], Timing]:
    now, timer, ready = clock.now, device.timer(), step.ready
    if not device.asynchronous:

        def on_host() -> Timing:
            ready()
            start = now()
            outputs = step()
            end = now()
            del outputs  # freed outside the timed region: a caller would still hold them
            return Timing(end - start)

        return on_host

    # What a GPU finds wrong shows when it is waited for.
    synchronize = guarded(device.synchronize, device.name)

    def on_device() -> Timing:
        ready()
        synchronize()
        start = now()
        if timer is not None:
            timer.start()
        outputs = step()
        if timer is not None:
            timer.stop()
        synchronize()
        end = now()
        del outputs
        return Timing(end - start, None if timer is None else timer.elapsed())

    return on_device


def phased(step: Step, clock: Clock, device: Device) -> Callable[[], Timing]:
    """Time a training step as a whole, and its phases within it.

    On a GPU the phases are timed by its own events: to wait for it after each would slow it down.
    """
    now = clock.now
    synchronize = guarded(device.synchronize, device.name)
    timers = {phase: device.timer() for phase in PHASES}
    marks: list[tuple[Phase, int]] = []

    def mark(phase: Phase) -> None:
        if marks and (timer := timers[marks[-1][0]]) is not None:
            timer.stop()
        marks.append((phase, now()))
        if phase != "end" and (timer := timers[phase]) is not None:
            timer.start()

    def call() -> Timing:
        marks.clear()
        step.ready()
        synchronize()
        start = now()
        outputs = step(mark)
        synchronize()
        end = now()
        del outputs
        own = {phase: timer.elapsed() for phase, timer in timers.items() if timer is not None}
        if own:
            stages = {str(phase): round(seconds * 1e9) for phase, seconds in own.items()}
            return Timing(end - start, sum(own.values()), stages)
        ends = [mark_time for _, mark_time in marks[1:]]
        parts = zip(marks, ends, strict=False)
        return Timing(
            end - start, stages={str(phase): end - mark_time for (phase, mark_time), end in parts}
        )

    return call


def _staged(
    placement: Placement, step: Step, options: LatencyOptions, clock: Clock, device: Device
) -> Callable[[], Timing]:
    now, timer = clock.now, device.timer()
    placed_inputs, device_name = placement.inputs, placement.device
    synchronize = guarded(device.synchronize, device_name)
    before = options.preprocess and guarded(options.preprocess, device_name, "The preprocess stage")
    after = options.postprocess and guarded(
        options.postprocess, device_name, "The postprocess stage"
    )
    raw = placement.target.inputs.as_given()  # moving them to the device is the stage's own work

    def call() -> Timing:
        step.ready()
        synchronize()
        start = now()
        inputs = placed_inputs if before is None else Inputs.of(before(raw))
        synchronize()
        prepared_at = now()
        if timer is not None:
            timer.start()
        outputs = step.on(inputs)
        if timer is not None:
            timer.stop()
        synchronize()
        done_at = now()
        results = outputs if after is None else after(outputs)
        synchronize()
        end = now()
        del outputs, results
        stages = {"preprocess": prepared_at - start} if before is not None else {}
        stages["model"] = done_at - prepared_at
        if after is not None:
            stages["postprocess"] = end - done_at
        return Timing(end - start, None if timer is None else timer.elapsed(), stages)

    return call


def _cold(call: Callable[[], Timing], device: Device) -> Callable[[], Timing]:
    def cold_call() -> Timing:
        device.flush_cache()
        device.synchronize()
        return call()

    return cold_call
