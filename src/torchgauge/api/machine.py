"""Diagnose the machine itself."""

from __future__ import annotations

from torchgauge.api.preparation import measuring
from torchgauge.records.doctor import Diagnosis


def diagnose(*, quick: bool = False, progress: bool | None = None) -> Diagnosis:
    """Check this machine for what distorts timings; `quick` leaves out the A/A run of 10 s."""
    from torchgauge.measure.machine.doctor import diagnose as examine

    with measuring(progress) as display:
        return examine(quick=quick, progress=display)
