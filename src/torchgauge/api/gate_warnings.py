"""What a gate says of the runs that it made itself: what failed in them, and Ctrl-C."""

from __future__ import annotations

import msgspec

from torchgauge.model.profile import Profile
from torchgauge.model.record import MeasurementWarning


def warnings_of(record: Profile, label: str) -> tuple[MeasurementWarning, ...]:
    """Return what must be known of a fresh run: without it a broken model is merely undecided."""
    found = [
        msgspec.structs.replace(one, message=f"The {label} build: {one.message}")
        for one in record.all_warnings
        if one.failed
    ]
    if record.interrupted:
        message = "Ctrl-C ended the run; what it had until then was judged."
        found.append(MeasurementWarning(id="interrupted", message=message, probe="gate"))
    return tuple(found)
