"""How much a recording may take: users have lost hundreds of gigabytes to a profiler left on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from torchgauge.device.counters import memory_available

BUDGET = 1 << 30
# Of what is free, a recording takes no more than this part.
SHARE_OF_FREE = 4
# Of memory for each byte of an exported file: the profiler holds some 2.9 kB for an event that
# takes 0.41 kB in the file (torch 2.13; benchmarks/loop_memory.py measures it).
MEMORY_PER_FILE_BYTE = 9


def budget() -> int:
    """Return the bytes of memory that a recording may take by default."""
    free = memory_available()
    return BUDGET if free is None else min(BUDGET, free // SHARE_OF_FREE)


def memory_of(file: int) -> int:
    """Return the bytes of memory that recording and exporting a file of this size takes."""
    return file * MEMORY_PER_FILE_BYTE


@dataclasses.dataclass
class StepNeeds:
    """What recording one step takes: events, and bytes of a file and of memory."""

    events: int
    file: int

    @property
    def memory(self) -> int:
        """Bytes of memory while a step is recorded and exported."""
        return memory_of(self.file)


def step_needs(path: Path) -> StepNeeds:
    """Return what the step in a recording took."""
    events = 0
    with path.open("rb") as file:
        overlap = b""
        while chunk := file.read(1 << 20):
            events += (overlap + chunk).count(b'"ph": "X"')
            overlap = chunk[-8:]
    return StepNeeds(events=events, file=path.stat().st_size)
