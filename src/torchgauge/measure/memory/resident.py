"""How much of the process is resident in memory, and how much it was at its highest."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from torchgauge.device import counters

_PROCESS = Path("/proc/self")


@dataclasses.dataclass
class Resident:
    """Resident bytes of the process before, and the highest while watched; None is unknown."""

    before: int | None = None
    peak: int | None = None


@contextlib.contextmanager
def watched(process: Path = _PROCESS) -> Iterator[Resident]:
    """Watch the process's resident set.

    Linux keeps the highest value itself (VmHWM), and starts anew when a 5 is written to
    clear_refs. Elsewhere, or where that is not allowed, the peak stays None: reading the present
    value over and over would miss short peaks.
    """
    resident = Resident(before=counters.resident())
    try:
        (process / "clear_refs").write_text("5")
    except OSError:
        yield resident
        return
    resident.before = before = _field(process, "VmRSS")
    yield resident
    highest = _field(process, "VmHWM")
    if highest is not None and before is not None:
        # The kernel counts per processor and sums up now and then: a step that needs nothing new
        # may end a little below its start.
        resident.peak = max(highest, before)


def _field(process: Path, name: str) -> int | None:
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return None
    words = dict(line.split(":", 1) for line in lines if ":" in line).get(name, "").split()
    return int(words[0]) * 1024 if words else None  # "kB" in this file are KiB
