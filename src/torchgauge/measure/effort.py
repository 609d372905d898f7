"""How long a profile measures: for an answer in seconds, as usual, or as well as it can."""

from __future__ import annotations

import dataclasses
from typing import Literal

from torchgauge.errors import option_invalid

EffortName = Literal["quick", "usual", "precise"]


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long the probes of a profile measure; more of it makes intervals narrower.

    Attributes:
        latency: Seconds for the latency, of all processes together.
        several: Whether latency is measured in several processes.
        most_processes: How many at most.
        stamps: Seconds of stamped steps and the bare ones between them, at most.
        stamped_steps: How many bare steps are enough.
        recording: Seconds of recorded steps, about.
        recorded_steps: How many at most.
        system: Seconds for which the use of the machine is sampled.
        roofs: Whether the machine's roofs are measured where none are stored.
    """

    latency: float
    several: bool
    most_processes: int
    stamps: float
    stamped_steps: int
    recording: float
    recorded_steps: int
    system: float
    roofs: bool


QUICK = Effort(
    latency=1.0, several=False, most_processes=1, stamps=0.2, stamped_steps=40, recording=0.3,
    recorded_steps=10, system=0.2, roofs=False,
)  # fmt: skip
USUAL = Effort(
    latency=5.0, several=True, most_processes=20, stamps=1.0, stamped_steps=40, recording=1.0,
    recorded_steps=10, system=0.5, roofs=True,
)  # fmt: skip
PRECISE = Effort(
    latency=30.0, several=True, most_processes=40, stamps=5.0, stamped_steps=120, recording=3.0,
    recorded_steps=30, system=1.0, roofs=True,
)  # fmt: skip
EFFORTS: dict[str, Effort] = {"quick": QUICK, "usual": USUAL, "precise": PRECISE}


def effort_named(name: str) -> Effort:
    """Return an effort. Raises InputError `option-invalid`."""
    if name not in EFFORTS:
        raise option_invalid(f"There is no effort '{name}'.", f"Give one of {', '.join(EFFORTS)}.")
    return EFFORTS[name]
