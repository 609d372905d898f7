"""Warnings of machine load during a latency measurement."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.device.load import Load
from torchgauge.records.record import MeasurementWarning

# A tenth of the machine in other hands moves a median that is known to ±1 %.
MOST_OTHER = 0.10
MOST_STEAL = 0.01


def load_warnings(load: Load) -> Iterator[MeasurementWarning]:
    """Yield warnings of what made the samples slower or more scattered than the model is."""
    yield from other_load(load.other)
    if load.steal is not None and load.steal > MOST_STEAL:
        yield _warning(
            "steal-time",
            f"The hypervisor gave {units.percent(load.steal)} of the cores' time to others.",
            "Measure on a machine of its own, or in more processes over a longer time.",
        )
    if load.throttled:
        yield _warning(
            "throttled",
            f"Cores were slowed down for their heat {load.throttled} times meanwhile.",
            "Let the machine cool down, improve its cooling, or fix the clocks lower.",
        )
    if load.gpu_throttled:
        yield _warning(
            "gpu-throttled",
            f"The GPU's clocks were reduced: {', '.join(load.gpu_throttled)}.",
            "Check power limit and cooling, or fix the clocks (nvidia-smi -lgc).",
        )


def is_busy(share: float | None) -> bool:
    """Tell whether other processes took more than a tenth of the machine."""
    return share is not None and share > MOST_OTHER


def other_load(share: float | None, probe: str = "latency") -> Iterator[MeasurementWarning]:
    """Yield a warning where other processes took more than a tenth of the machine."""
    if share is not None and is_busy(share):
        yield _warning(
            "other-load",
            f"Other processes took {units.percent(share)} of the machine meanwhile.",
            "Stop them, or measure again on an idle machine.",
            probe,
        )


def _warning(id: str, message: str, remedy: str, probe: str = "latency") -> MeasurementWarning:
    return MeasurementWarning(id=id, message=message, remedy=remedy, probe=probe)
