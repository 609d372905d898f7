"""The phases of a training step, out of the latency that was measured with them."""

from __future__ import annotations

from torchgauge.model.latency import Latency
from torchgauge.model.training import TrainingTime


def training_time(
    latency: Latency, *, optimizer: str, autocast: str = "", scaled: bool = False
) -> TrainingTime | None:
    """Return the training part of a profile; None where the latency has no phases."""
    if not latency.stages:
        return None
    return TrainingTime(
        step=latency.median,
        phases=latency.stages,
        clock="host" if latency.device_time is None else "device",
        optimizer=optimizer,
        autocast=autocast,
        scaled=scaled,
    )
