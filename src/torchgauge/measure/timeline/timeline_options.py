"""Options of a profile beside latency: how far down the tree goes, and what else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from torchgauge.errors import InputError, option_conflict
from torchgauge.measure.effort import USUAL, Effort
from torchgauge.records.timeline.tree import DETAIL, Detail, check_detail

SUFFIXES = (".json", ".json.gz")
RECORDING = ("operators", "kernels")


@dataclasses.dataclass(frozen=True)
class TimelineOptions:
    """How far down the tree goes; `trace` is the file that the recording is written to.

    `nvtx` runs steps with NVTX ranges at the end, `lines` samples the lines of Python that run.
    `roofs` True measures anew what the device can do at most, None quickly where that is not known,
    False not at all. `all_threads` records operators of threads that the step starts, too. `energy`
    measures joules by hardware counters; `effort` is how long is measured.

    Raises InputError `detail-unknown`, `trace-name`; `option-conflict` for what needs a recording
    where `detail` makes none.
    """

    detail: Detail = DETAIL
    trace: Path | None = None
    nvtx: bool = False
    lines: bool = False
    roofs: bool | None = None
    all_threads: bool = False
    energy: bool = False
    effort: Effort = USUAL

    @property
    def measures_roofs(self) -> bool:
        """Whether the machine's roofs are measured, if only where none are stored."""
        return self.effort.roofs if self.roofs is None else self.roofs

    def __post_init__(self) -> None:
        check_detail(self.detail)
        if self.trace is not None and not self.trace.name.endswith(SUFFIXES):
            raise InputError(
                f"'{self.trace}' is not a file name for a trace.",
                id="trace-name",
                cause="Viewers know the format by the name.",
                remedy=f"Give a name that ends in {' or '.join(SUFFIXES)}.",
            )
        if (self.trace is not None or self.lines) and self.detail not in RECORDING:
            raise option_conflict(
                f'Trace and lines need more than detail "{self.detail}", which records nothing.',
                f"Give one of {', '.join(RECORDING)}.",
            )
