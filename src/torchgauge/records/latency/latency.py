"""How long a call takes."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchgauge.records.latency.undisturbed import Undisturbed
from torchgauge.records.latency.yardstick import Yardstick
from torchgauge.records.record import (
    GradMode,
    How,
    Interval,
    IntervalScope,
    MeasurementWarning,
    Record,
)

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
