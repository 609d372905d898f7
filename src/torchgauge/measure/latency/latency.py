"""Latency: one process's calls, timed by the host clock and by the device's own."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch

from torchgauge import units
from torchgauge.analyze.latency.noise import FAULTING, PAGE_FAULT, WAITING
from torchgauge.clock import Clock, SystemClock, resolution
from torchgauge.device.base import Device
from torchgauge.device.load import LoadWatch, gpu_metrics
from torchgauge.device.select import open_device
from torchgauge.forks import Owner
from torchgauge.measure.latency.latency_options import DEFAULT_BUDGET, LatencyOptions
from torchgauge.measure.latency.sampling import Timing, sample
from torchgauge.measure.latency.step_times import is_busy, load_warnings
from torchgauge.measure.step import Step, guarded, prepared, without_values
from torchgauge.measure.timeline.layer_times import undisturbed_call
from torchgauge.progress import Progress, Silent
from torchgauge.records.latency.latency import LatencyRun
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.placement import Placement
from torchgauge.targets.training.training import Phase

try:
    import resource
except ImportError:  # Windows counts none
    resource = None  # type: ignore[assignment]

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


MATMUL_SIDE = 192
COPIED = 2**17
"""Elements of a copy: with the matmul's operands 1.4 MB pass through the caches, not more."""
REGIONS = 16
"""So many times torch's threads meet, for work that takes each some microseconds."""
GRAIN = 2**15
"""Elements that torch gives to a thread at least; a byte each, so that they stay in its caches."""
ADDITIONS = 2_000
DISPATCHES = 20
ON_DEVICE = 2**20
LAUNCHES = 4
PACE = 25
"""A round begins when this multiple of its own duration has passed since the last one."""
LEAST_PAUSE = 30_000_000
"""Nanoseconds: the call after a round finds colder caches, and must be one of many."""
FEWEST_ROUNDS = 3
"""So many pauses between rounds tell the calls' page faults from those of the first calls."""
SCHEDULED = Path("/proc/thread-self/schedstat")


class Yardstick:
    """Times fixed pieces of work, one round of them whenever `due` has come.

    A round takes at most a twenty-fifth of the time. The first one is run twice, since libraries
    start their threads and allocate then. Pieces are too short to be sent off a core: how long this
    thread waited for one is read from the system at the first round and at the end. The page faults
    of the calls are those between two rounds: whether the C library gives memory back to the system
    after each call differs from process to process, by how blocks happen to lie.

    Attributes:
        due: The clock's nanoseconds from which on the next round may begin; at once at first.
    """

    def __init__(self, clock: Clock, device: Device) -> None:
        self.due = 0
        self._now = clock.now
        self._owner = Owner()
        self._workloads = _on_host()
        if device.asynchronous:
            self._workloads |= _on_device(device)
        self._times: dict[str, list[int]] = {kind: [] for kind in self._workloads}
        self._faulting: list[float] = []
        self._scheduled: tuple[int, int] | None = None
        self._last: tuple[int, int | None] | None = None

    def run(self) -> None:
        """Time one round, and set when the next one is due.

        A process that the call forked ends here: torch's threads are not in it, and a product that
        waits for them would wait for ever.
        """
        self._owner.end_fork()
        if self.due == 0:
            self._scheduled = _scheduled()
            for workload in self._workloads.values():
                workload()
        now = self._now
        began, faults = now(), _page_faults()
        if self._last is not None and faults is not None and self._last[1] is not None:
            seconds = PAGE_FAULT * (faults - self._last[1])
            self._faulting.append(1e9 * seconds / max(began - self._last[0], 1))
        for kind, workload in self._workloads.items():
            start = now()
            workload()
            self._times[kind].append(now() - start)
        ended = now()
        self._last = ended, _page_faults()
        self.due = ended + max(PACE * (ended - began), LEAST_PAUSE)

    def medians(self, call: float = 0.0) -> dict[str, float]:
        """Return the median seconds of each piece by its kind; without any round nothing.

        "waiting" is the seconds that pass while this thread runs for one, 1 where it never waits
        for a core; "faulting" is what the page faults of a `call` of so many seconds would take at
        a microsecond each. Both are absent where the system does not tell.
        """
        times = {kind: statistics.median(t) / 1e9 for kind, t in self._times.items() if t}
        if len(self._faulting) >= FEWEST_ROUNDS:
            times[FAULTING] = statistics.median(self._faulting) * call
        began, ended = self._scheduled, _scheduled()
        if began is not None and ended is not None and ended[0] > began[0]:
            times[WAITING] = 1 + (ended[1] - began[1]) / (ended[0] - began[0])
        return times


def _scheduled() -> tuple[int, int] | None:
    """Return the nanoseconds that this thread ran and that it waited for a core (Linux)."""
    try:
        ran, waited = SCHEDULED.read_text().split()[:2]
        return int(ran), int(waited)
    except (OSError, ValueError):
        return None


def _page_faults() -> int | None:
    """Return how often this process was given a page of memory; None where that is not counted."""
    if resource is None:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _on_host() -> dict[str, Callable[[], object]]:
    # Values are given, not drawn: the user's random numbers stay as they were.
    def full(*shape: int) -> torch.Tensor:
        return torch.full(shape, 0.5, dtype=torch.float32, device="cpu")

    square, product = full(MATMUL_SIDE, MATMUL_SIDE), full(MATMUL_SIDE, MATMUL_SIDE)
    source, copy = full(COPIED), full(COPIED)
    shared = torch.zeros(GRAIN * torch.get_num_threads(), dtype=torch.uint8, device="cpu")

    def regions() -> None:
        for _ in range(REGIONS):
            shared.add_(0)

    def additions() -> int:
        total = 0
        for number in range(ADDITIONS):
            total += number
        return total

    def dispatches() -> None:
        for _ in range(DISPATCHES):
            torch.empty(1, dtype=torch.float32, device="cpu")

    return {
        "matmul": lambda: torch.mm(square, square, out=product),
        "copy": lambda: copy.copy_(source),
        "threads": regions,
        "python": additions,
        "dispatch": dispatches,
    }


def _on_device(device: Device) -> dict[str, Callable[[], object]]:
    """Return work of the device's own; no matmul, whose library would keep a workspace there."""
    values = torch.full((ON_DEVICE,), 0.5, dtype=torch.float32, device=device.name)
    results, scalar = torch.empty_like(values), torch.zeros(1, device=device.name)

    def sines() -> None:
        for _ in range(LAUNCHES):
            torch.sin(values, out=results)
        device.synchronize()

    def launch() -> None:
        scalar.add_(1)
        device.synchronize()

    return {"device": sines, "launch": launch}
