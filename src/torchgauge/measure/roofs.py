"""The machine's roofs for a profile: those that are kept, or measured where that is worth it."""

from __future__ import annotations

from torchgauge import units
from torchgauge.analyze.roof_quality import disturbed
from torchgauge.device import roofs as machine
from torchgauge.model.latency import Latency
from torchgauge.model.record import MeasurementWarning
from torchgauge.model.roofline import Roofs
from torchgauge.progress import Progress


def measure(
    device: str, wanted: bool | None, latency: Latency | None, progress: Progress
) -> tuple[Roofs | None, list[MeasurementWarning]]:
    """Return the best roofs known of a device, and what is to be said of a new measurement.

    `wanted` True measures them anew and in full. None measures quickly where none are kept, and
    where those kept were measured beside other work and `latency` was not; False not at all.
    """
    if wanted:
        return _anew(device, progress)
    kept = machine.known(device)
    measured = kept is not None and kept.source == "measured"
    again = measured and kept is not None and disturbed(kept) and _was_quiet(latency)
    if wanted is None and (again or not measured):
        machine.quick(device, progress=progress)
        return machine.known(device), []
    return kept, []


def _anew(device: str, progress: Progress) -> tuple[Roofs | None, list[MeasurementWarning]]:
    latest = machine.refreshed(device, progress=progress)
    best = machine.known(device)
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
        remedy="Run `torchgauge profile --roofs` again when the machine is idle.",
    )
