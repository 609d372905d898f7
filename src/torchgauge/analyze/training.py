"""The phases of a training step, out of the latency that was measured with them."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from torchgauge.model.training import TrainingPhase, TrainingTime

if TYPE_CHECKING:
    from torchgauge.model.latency import Latency, LatencyRun


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
    whole = (run.device_samples or run.samples)[steady]
    parts = run.stage_samples[phase][steady]
    return [part / step if step else 0.0 for part, step in zip(parts, whole, strict=True)]
