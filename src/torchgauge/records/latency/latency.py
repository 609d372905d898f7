"""How long a call takes."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchgauge.records.record import (
    GradMode,
    How,
    Interval,
    IntervalScope,
    MeasurementWarning,
    Record,
)


class Yardstick(Record, frozen=True, kw_only=True):
    """Reference work timed between the calls, and the machine's speed that follows from it.

    Attributes:
        times: Seconds of each fixed piece of work by its kind, the median over processes:
            "matmul", "copy", "threads" (torch's threads meeting again and again), "python",
            "dispatch", on a GPU also "device" and "launch". "waiting" is the seconds that passed
            for one that the calling thread ran, "faulting" the seconds that the page faults of a
            call take at a microsecond each.
        speed: The machine's speed in this run over its usual one, 1 as ever; None where too few
            earlier runs on this host are remembered.
        speed_interval: The 95 % interval of `speed`, from how much the kinds disagree.
        runs: Earlier runs that `speed` rests on.
        how: How `speed` is known.
    """

    times: dict[str, float]
    speed: float | None = None
    speed_interval: Interval | None = None
    runs: int = 0
    how: How = "estimated"

    @property
    def unusual(self) -> bool:
        """True where the speed differs significantly from the usual."""
        interval = self.speed_interval
        return interval is not None and not interval.low <= 1 <= interval.high


class PastRun(Record, frozen=True, kw_only=True):
    """The part of a latency measurement that the host remembers.

    Attributes:
        target: What was timed, and the software and settings that decide its time.
        created: ISO 8601 in UTC.
        medians: Seconds per call, the median of each process in order.
        yardstick: Seconds of a piece of reference work by its kind, the median over processes;
            empty where none was timed.
        yardsticks: The same of each process in order; empty where some timed none.
        busy: True where other processes took more than a tenth of the machine meanwhile.
    """

    target: str
    created: str
    medians: tuple[float, ...]
    yardstick: dict[str, float] = msgspec.field(default_factory=dict)
    yardsticks: tuple[dict[str, float], ...] = ()
    busy: bool = False


class TrainingPhase(Record, frozen=True, kw_only=True):
    """One phase of a training step: its `share` of the step, and the seconds that this comes to."""

    name: str
    seconds: float
    share: float


class TrainingTime(Record, frozen=True, kw_only=True):
    """The phases of a training step, in the order in which they run; they add up to the step.

    `step` is the median of the whole step in seconds, measured as one. A phase's share is the mean,
    over the same steps, of its fraction of the step that it was timed in; its seconds are that
    share of `step`. (Medians of the phases, with their intervals, are the latency's `stages`; they
    come from different steps and need not add up.) On a GPU both are the device's own time between
    events (`clock` "device"), because waiting for the GPU after each phase would slow the step
    down; else the host's. `optimizer` is the optimizer's name; `autocast` the dtype of mixed
    precision, "" without; `scaled` says whether gradients were scaled.
    """

    step: float
    phases: tuple[TrainingPhase, ...]
    clock: Literal["host", "device"]
    optimizer: str
    autocast: str = ""
    scaled: bool = False
    how: How = "measured"

    @property
    def outside(self) -> float:
        """The share of the step that no phase explains."""
        return 1.0 - sum(phase.share for phase in self.phases)

    def phase(self, name: str) -> float:
        """Return the seconds of "zero_grad", "forward", "loss", "backward" or "optimizer"."""
        return next(phase.seconds for phase in self.phases if phase.name == name)


class Undisturbed(Record, frozen=True, kw_only=True):
    """The time of a call of which no other process takes a part, on a machine that was busy.

    Attributes:
        value: Seconds: the sum of each layer's least time, or the fastest call if that is shorter;
            the least of the processes. On an idle machine typical calls take a little longer.
        interval: Its 95 % interval for another run, busy or not.
        speed: The machine's speed beside the other processes, over that without: `value` over the
            measured median.
        how: How all of it is known.
    """

    value: float
    interval: Interval
    speed: float
    how: How = "estimated"


Stop = Literal[
    "precision reached",
    "iterations done",
    "short run done",
    "sample limit reached",
    "time budget spent",
    "interrupted",
]


class LatencyRun(Record, frozen=True, kw_only=True):
    """The raw measurement of one process: every timed call after the first, in order.

    Attributes:
        samples: Seconds of each call, the warm-up included.
        warmup: How many samples at the start are warm-up and left out of every figure.
        steady: False if no end of the warm-up was found.
        first_call: Seconds of the first call.
        median: Seconds, of the steady samples.
        interval: The 95 % interval of the median.
        autocorrelation: The integrated autocorrelation time τ of the steady samples, in samples.
        device_samples: The GPU's seconds of each call.
        stage_samples: Seconds of each call, by stage or phase.
        layer_times: Seconds of a call by layer path, without the layers that a layer calls: a
            median over stamped calls after those of the samples, if several processes were run.
        yardstick: The times of this process, as in `Yardstick.times`.
        grad_mode: What torch did about gradients, as in `TargetDescription`.
        undisturbed: Seconds of a call that no other process disturbs, as in `Undisturbed.value`;
            None where others took no more than a tenth of the machine, where no moment was quiet,
            and where layers do not add up to a call (training, stages, a GPU).
    """

    samples: tuple[float, ...]
    warmup: int
    steady: bool
    first_call: float
    median: float
    interval: Interval | None
    autocorrelation: float
    stop: Stop
    device_samples: tuple[float, ...] = ()
    stage_samples: dict[str, tuple[float, ...]] = msgspec.field(default_factory=dict)
    layer_times: dict[str, float] = msgspec.field(default_factory=dict)
    yardstick: dict[str, float] = msgspec.field(default_factory=dict)
    grad_mode: GradMode = "inference_mode"
    undisturbed: float | None = None
    warnings: tuple[MeasurementWarning, ...] = ()

    @property
    def steady_samples(self) -> tuple[float, ...]:
        """The samples after the warm-up, in seconds."""
        return self.samples[self.warmup :]


class Stage(Record, frozen=True, kw_only=True):
    """One stage of an end-to-end call (preprocess, model, postprocess): seconds per call."""

    name: str
    median: float
    interval: Interval | None
    how: How = "measured"


class Latency(Record, frozen=True, kw_only=True):
    """Time per call in seconds, with the interval of the median and how it was obtained.

    Attributes:
        std: The standard deviation of the samples; None for a single sample.
        interval: The 95 % interval of the median.
        interval_method: How the interval was computed.
        interval_scope: What the interval covers. "process": the calls of one process, by order
            statistics under autocorrelation; how much runs differ is not known. "runs": processes
            that ran one after the other, by Student's t on their log medians (None for two of them,
            which do not show their spread). "calibrated": these, and how earlier runs on this host
            differed.
        percentile_intervals: By percentile; None if the effective sample is too small for one.
        first_call: Seconds of the first call, which is in no other figure.
        steady: False if no end of the warm-up was found.
        stop: Why sampling stopped.
        device_time: The GPU's time per call, or None.
        processes: The raw samples, by process.
        stages: Stages of an end-to-end call.
        undisturbed: What a call takes without other processes, if those took more than a tenth of
            the machine.
        cold_cache: True if the last-level cache was overwritten before each call.
    """

    median: float
    mean: float
    std: float | None
    min: float
    max: float
    p50: float
    p90: float
    p95: float
    p99: float
    interval: Interval | None
    interval_method: str
    interval_scope: IntervalScope = "process"
    percentile_intervals: dict[str, Interval | None]
    first_call: float
    steady: bool
    stop: Stop
    device_time: float | None
    processes: tuple[LatencyRun, ...]
    stages: tuple[Stage, ...] = ()
    yardstick: Yardstick | None = None
    undisturbed: Undisturbed | None = None
    cold_cache: bool = False
    warnings: tuple[MeasurementWarning, ...] = ()
    how: How = "measured"

    @property
    def samples(self) -> tuple[float, ...]:
        """The steady samples of all processes, in order, in seconds."""
        return tuple(sample for run in self.processes for sample in run.steady_samples)

    @property
    def grad_mode(self) -> GradMode:
        """What torch did about gradients during the calls, as in `TargetDescription`."""
        return self.processes[0].grad_mode

    @property
    def relative_error(self) -> float | None:
        """Half the width of the median's interval over the median."""
        if self.interval is None or self.median == 0:
            return None
        return self.interval.half_width / self.median

    @property
    def process_medians(self) -> tuple[float, ...]:
        """The median of each process, in seconds."""
        return tuple(run.median for run in self.processes)


class Throughput(Record, frozen=True, kw_only=True):
    """Work per second at the measured latency: batch ÷ median.

    Attributes:
        calls: Calls per second.
        samples: Samples per second; None if the inputs do not say how many they hold.
        tokens: Tokens per second, likewise.
        images: Images per second, likewise.
        interval: The 95 % interval of `calls`.
    """

    calls: float
    samples: float | None = None
    tokens: float | None = None
    images: float | None = None
    interval: Interval | None = None
    how: How = "measured"
