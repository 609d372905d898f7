"""Options of a sweep beside its grid: who measures, how often, and what is chosen."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.analyze.sweep.constraints import cell_metric, parse

if TYPE_CHECKING:
    from torchgauge.sweeps.executor import Executor


BY = ("latency", "throughput", "memory")
"""The metrics to choose the best cells by, unless others are given."""


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """How the cells of a grid are measured, and the best of them chosen.

    Attributes:
        executor: Who measures: "process", "ray", or an executor.
        where: What a cell must keep, such as "p99<20ms and memory<2GB".
        best: The metrics to choose by.
        repeats: How many processes measure each cell.
        measure_all: Whether batches are measured that would be left out.
        memory_limit: Bytes that each process is held to.
        resume: The file that finished cells are kept in.

    Raises InputError `metric-unknown`, `constraint-invalid`.
    """

    executor: str | Executor = "process"
    where: str = ""
    best: tuple[str, ...] = BY
    repeats: int = 1
    measure_all: bool = False
    memory_limit: int | None = None
    resume: Path | None = None

    def __post_init__(self) -> None:
        for metric in self.best:
            cell_metric(metric)
        parse(self.where)
