"""Warnings about the runs that a gate made itself: what failed in them, and Ctrl-C."""

from __future__ import annotations

import msgspec

from torchgauge.records.profile import Profile
from torchgauge.records.record import MeasurementWarning


def warnings_of(record: Profile, label: str) -> tuple[MeasurementWarning, ...]:
    """Return what must be known of a fresh run: without it a broken model is merely undecided."""
    warnings = [
        msgspec.structs.replace(warning, message=f"The {label} build: {warning.message}")
        for warning in record.all_warnings
        if warning.failed
    ]
    if record.interrupted:
        message = "Ctrl-C ended the run; what it had until then was judged."
        warnings.append(MeasurementWarning(id="interrupted", message=message, probe="gate"))
    return tuple(warnings)
