"""The machine's roofs for a profile: those that are kept, or measured where that is worth it."""

from __future__ import annotations

from torchgauge import units
from torchgauge.analyze.work.roof_quality import disturbed
from torchgauge.device.roofs import roofs as machine
from torchgauge.progress import Progress
from torchgauge.records.latency.latency import Latency
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.work.roofline import Roofs


def measure(
    device: str, measure_anew: bool | None, latency: Latency | None, progress: Progress
) -> tuple[Roofs | None, list[MeasurementWarning]]:
    """Return the best roofs known of a device, and warnings of a new measurement.

    `measure_anew` True measures them in full. None measures quickly where none are kept, and where
    those kept were measured beside other work and `latency` was not; False not at all.
    """
    if measure_anew:
        return _measure_in_full(device, progress)
    kept_roofs = machine.known_roofs(device)
    measured = kept_roofs is not None and kept_roofs.source == "measured"
    remeasure = (
        measured and kept_roofs is not None and disturbed(kept_roofs) and _was_quiet(latency)
    )
    if measure_anew is None and (remeasure or not measured):
        machine.quick(device, progress=progress)
        return machine.known_roofs(device), []
    return kept_roofs, []


def _measure_in_full(
    device: str, progress: Progress
) -> tuple[Roofs | None, list[MeasurementWarning]]:
    latest = machine.refreshed(device, progress=progress)
    best = machine.known_roofs(device)
    if not disturbed(latest):
        return best, []
    return best, [_busy(latest, best)]


def _was_quiet(latency: Latency | None) -> bool:
    """Return whether the machine was quiet while the latency was measured, just before."""
    return latency is not None and not any(
        warning.id in ("other-load", "steal-time") for warning in latency.warnings
    )


def _busy(latest: Roofs, best: Roofs | None) -> MeasurementWarning:
    earlier = best is not None and not disturbed(best)
    fate = (
        f"the quiet measurement of {(best.created if best else '')[:10]} is still used"
        if earlier
        else "the fastest of each figure is kept, and marked so"
    )
    return MeasurementWarning(
        id="roofs-busy",
        probe="roofs",
        message=f"Others took {latest.other or 0.0:.2f} cores while the machine's roofs were "
        f"measured, and no quiet moment came within {units.time(machine.PATIENCE, 2)}: {fate}.",
        remedy="Run `torchgauge profile TARGET --roofs` again when the machine is idle.",
    )
