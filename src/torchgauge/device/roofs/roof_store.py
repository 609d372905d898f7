"""Each machine's roofs, stored in one file in the user's state folder."""

from __future__ import annotations

from pathlib import Path

import msgspec

from torchgauge.analyze.work.roof_quality import combined
from torchgauge.device import calibration, state_file
from torchgauge.errors import InputError
from torchgauge.files import write_atomically
from torchgauge.records.record import Record
from torchgauge.records.work.roofline import Roofs

# Roofs of this process, where the file cannot be written.
_unwritten: dict[str, Roofs] = {}


class StoredRoofs(Record, frozen=True, kw_only=True):
    """The roofs of each machine by its key."""

    schema: str = "torchgauge.roofs/1"
    machines: dict[str, Roofs] = msgspec.field(default_factory=dict)


def path() -> Path:
    """Return the file in which roofs are kept, beside doctor's calibration."""
    return calibration.path().with_name("roofs.json")


def best(machine: str, file: Path) -> Roofs | None:
    """Return the roofs kept under a machine's key, None where there are none."""
    return _unwritten.get(machine) or state_file.read(file, StoredRoofs).machines.get(machine)


def keep(latest: Roofs, file: Path) -> Roofs:
    """Combine the roofs with those kept of their machine, and return what is kept now.

    Where the file cannot be written, it is kept for this process.
    """
    now = combined(best(latest.machine, file), latest)
    machines = state_file.read(file, StoredRoofs).machines | {latest.machine: now}
    try:
        write_atomically(file, msgspec.json.encode(StoredRoofs(machines=machines)))
    except InputError:
        _unwritten[latest.machine] = now
    else:
        _unwritten.pop(latest.machine, None)
    return now
