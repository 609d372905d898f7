"""The time of each phase of a training step, from the measured latency."""

from __future__ import annotations

from statistics import fmean

import msgspec

from torchgauge.records.latency.latency import (
    Latency,
    LatencyRun,
    Throughput,
    TrainingPhase,
    TrainingTime,
)
from torchgauge.records.target import TargetDescription


def throughput(latency: Latency, target: TargetDescription) -> Throughput | None:
    """Return what one call processes over the median latency; None for a latency of zero.

    `interval` is that of `calls`; the other rates are multiples of it. Nothing overlaps with the
    next call: a server with several workers may do better.
    """
    if latency.median <= 0:
        return None
    calls = 1 / latency.median
    interval = latency.interval
    return Throughput(
        calls=calls,
        samples=None if target.batch is None else target.batch * calls,
        tokens=None if target.tokens is None else target.tokens * calls,
        images=None if target.images is None else target.images * calls,
        interval=None
        if interval is None or interval.low <= 0
        else msgspec.structs.replace(interval, low=1 / interval.high, high=1 / interval.low),
    )


def training_time(
    latency: Latency, *, optimizer: str, autocast: str = "", scaled: bool = False
) -> TrainingTime | None:
    """Return the training part of a profile; None where the latency has no phases."""
    if not latency.stages:
        return None
    step = latency.median if latency.device_time is None else latency.device_time
    shares = {
        stage.name: fmean(share for run in latency.processes for share in _shares(run, stage.name))
        for stage in latency.stages
    }
    return TrainingTime(
        step=step,
        phases=tuple(
            TrainingPhase(name=name, seconds=share * step, share=share)
            for name, share in shares.items()
        ),
        clock="host" if latency.device_time is None else "device",
        optimizer=optimizer,
        autocast=autocast,
        scaled=scaled,
    )


def _shares(run: LatencyRun, phase: str) -> list[float]:
    """Return the phase's fraction of each steady step, by the clock that timed the phases."""
    steady = slice(run.warmup, None)
    step_times = (run.device_samples or run.samples)[steady]
    phase_times = run.stage_samples[phase][steady]
    return [
        phase_time / step_time if step_time else 0.0
        for phase_time, step_time in zip(phase_times, step_times, strict=True)
    ]
