"""The sweep itself: which cell is next, what is left out and why, how long it will take."""

from __future__ import annotations

import dataclasses
import statistics
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from torchgauge import units
from torchgauge.analyze.latency import combine
from torchgauge.analyze.throughput import throughput
from torchgauge.errors import TorchgaugeError
from torchgauge.model.environment import Environment
from torchgauge.model.latency import Latency
from torchgauge.model.record import MeasurementWarning
from torchgauge.model.sweep import Cell, CellSettings
from torchgauge.progress import Progress
from torchgauge.sweeps.executor import Done, Executor
from torchgauge.sweeps.grid import Grid
from torchgauge.sweeps.job import Entry, Job
from torchgauge.sweeps.journal import Journal
from torchgauge.sweeps.stopping import left_out

MakeJob = Callable[[CellSettings, int], Job]


@dataclasses.dataclass
class Run:
    """One pass over a grid; `every` measures what would be left out as well.

    After `all` the cells are in `cells`, in the grid's order; `interrupted` says that Ctrl-C ended
    it before its time.
    """

    grid: Grid
    make_job: MakeJob
    executor: Executor
    journal: Journal
    progress: Progress
    repeats: int = 1
    every: bool = False
    interrupted: bool = False
    environment: Environment | None = None

    def __post_init__(self) -> None:
        self._first: dict[CellSettings, Cell] = {}
        self._again: dict[CellSettings, list[Entry]] = {}
        self._durations: list[float] = []
        self._under_way: list[CellSettings] = []
        self._left = 0

    def all(self) -> list[Cell]:
        """Measure every cell, then the comparable ones again, and return the cells.

        Rounds alternate their direction, so that a machine that slows down steadily favours none.
        Raises TorchgaugeError where the target itself cannot be used.
        """
        try:
            self._round(1, list(self.grid.cells()))
            for number in range(2, self.repeats + 1):
                again = [settings for settings, cell in self._first.items() if cell.done]
                self._round(number, again if number % 2 else again[::-1])
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            self.executor.close()
        return self._cells()

    def _round(self, number: int, wanted: Iterable[CellSettings]) -> None:
        waiting = deque(wanted)
        under_way = 0
        while waiting or under_way:
            while waiting and under_way < self.executor.slots and self._may(waiting[0]):
                settings = waiting.popleft()
                self._left = len(waiting) + under_way + 1
                under_way += self._begun(settings, number)
            if under_way:
                self._take(self.executor.next())
                under_way -= 1

    def _begun(self, settings: CellSettings, number: int) -> bool:
        """Submit a cell's process; False where it is known already, or left out."""
        known = self.journal.entries.get((settings, number))
        if known is not None:
            self._keep(known)
            return False
        if number == 1 and self._left_out(settings):
            return False
        self._tell(settings, number)
        self._under_way.append(settings.series)
        self.executor.submit(self.make_job(settings, number))
        return True

    def _may(self, settings: CellSettings) -> bool:
        """Return whether a cell may begin; a doubling row waits for its smaller batch to end."""
        return not self.grid.automatic or settings.series not in self._under_way

    def _left_out(self, settings: CellSettings) -> bool:
        if self.grid.automatic and self._ended(settings):
            return True
        if self.every and not self.grid.automatic:
            return False
        cell = left_out(settings, self._first.values())
        if cell is not None:
            self._first[settings] = cell
        return cell is not None

    def _ended(self, settings: CellSettings) -> bool:
        """Return whether a doubling row was ended before; one line of it says so."""
        return any(
            cell.status != "done" and cell.settings.series == settings.series
            for cell in self._first.values()
        )

    def _take(self, done: Done) -> None:
        job, found = done
        self._under_way.remove(job.settings.series)
        if isinstance(found, TorchgaugeError):
            if not any(cell.target is not None for cell in self._first.values()):
                raise found  # it is the target's, and no cell could be measured
            cell = Cell(settings=job.settings, status="failed", reason=found.message,
                        error=found.id)  # fmt: skip
            found = Entry(number=job.number, cell=cell)
        self.journal.add(found)
        if found.cell.duration is not None:
            self._durations.append(found.cell.duration)
        self._keep(found)

    def _keep(self, entry: Entry) -> None:
        if entry.number > 1:
            self._again.setdefault(entry.cell.settings, []).append(entry)
            return
        self._first[entry.cell.settings] = entry.cell
        self.environment = self.environment or entry.environment

    def _tell(self, settings: CellSettings, number: int) -> None:
        self.progress.start("sweep" if self.repeats == 1 else f"round {number} of {self.repeats}")
        done = len(self._durations)
        most = "at most " if number == 1 and not self.every else ""
        cells = f"{self._left} cell{'s' if self._left != 1 else ''} to go"
        left = ""
        if done and not self.grid.automatic:
            # Rounds that are still to come do no more than time.
            times = self._left + (self.repeats - number) * len(self._first)
            seconds = statistics.fmean(self._durations) * times / self.executor.slots
            left = f", {most}{units.duration(seconds)} left"
        shown = settings.label if self.grid.automatic else f"{settings.label} · {cells}{left}"
        self.progress.update(shown)

    def _cells(self) -> list[Cell]:
        # Of a doubling row only what was reached is a cell.
        every = not self.grid.automatic
        return [self._cell(one) for one in self.grid.cells() if every or one in self._first]

    def _cell(self, settings: CellSettings) -> Cell:
        cell = self._first.get(settings)
        if cell is None:
            return Cell(settings=settings, status="skipped", reason="interrupted before it")
        again = self._again.get(settings, [])
        return merged(cell, again) if again else cell


def merged(cell: Cell, again: Iterable[Entry]) -> Cell:
    """Return the cell with the latencies of all its processes as one."""
    others = [entry.cell for entry in again]
    latencies = [one.latency for one in (cell, *others) if one.latency is not None]
    latency = _combined(latencies)
    failed = tuple(
        MeasurementWarning(id=one.error, message=one.reason, probe="latency", failed=True)
        for one in others
        if not one.done
    )
    return msgspec.structs.replace(
        cell,
        latency=latency,
        throughput=None if cell.target is None else throughput(latency, cell.target),
        duration=sum(one.duration or 0.0 for one in (cell, *others)),
        warnings=cell.warnings + failed,
    )


def _combined(latencies: list[Latency]) -> Latency:
    return combine([run for latency in latencies for run in latency.processes])
