"""A sweep from its request to its record: every cell of a grid, measured or taken over."""

from __future__ import annotations

import dataclasses
import hashlib
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import torch

from torchgauge import units
from torchgauge.analyze.latency.latency import combine
from torchgauge.analyze.latency.training_phases import throughput
from torchgauge.analyze.sweep.constraints import best, front, parse
from torchgauge.analyze.sweep.scaling import overhead, scaling, scaling_of
from torchgauge.device.environment import environment
from torchgauge.errors import TorchgaugeError
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.progress import Progress
from torchgauge.records.environment import Environment
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.sweep import Cell, CellSettings, Sweep
from torchgauge.records.target import TargetDescription
from torchgauge.sweeps.executor import Executor
from torchgauge.sweeps.executor import executor as named_executor
from torchgauge.sweeps.grid import Grid
from torchgauge.sweeps.job import Done, Entry, Job
from torchgauge.sweeps.journal import Journal
from torchgauge.sweeps.sweep_options import SweepOptions
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.inputs.tensors import strided
from torchgauge.targets.modules import check_tree
from torchgauge.targets.precisions import name_of
from torchgauge.targets.quantization import ModelWithInputs, Variant
from torchgauge.targets.target import TargetRequest

GAIN = 0.03
STALE = 2
"""Throughput saturates where this many batches in a row gain less than `GAIN` over the best."""


def left_out(settings: CellSettings, cells: Iterable[Cell]) -> Cell | None:
    """Return the cell that need not be measured, with the rule as its reason; None where it must.

    What a device or a library cannot do at one batch it cannot do at a larger one.
    """
    batch = settings.batch
    if batch is None:
        return None
    row = [
        cell
        for cell in cells
        if cell.settings.series == settings.series and (cell.settings.batch or 0) < batch
    ]
    row.sort(key=lambda cell: cell.settings.batch or 0)
    for cell in row:
        if cell.status == "unsupported":
            return Cell(
                settings=settings, status="unsupported", reason=cell.reason, error=cell.error
            )
        if cell.status == "out of memory":
            reason = f"batch {cell.settings.batch} ran out of memory"
            return Cell(settings=settings, status="skipped", reason=reason)
        if cell.error == "child-timeout":  # the next one would wait as long, and longer
            reason = f"batch {cell.settings.batch} did not end in time"
            return Cell(settings=settings, status="skipped", reason=reason)
    done = [cell for cell in row if cell.done]
    reason = _too_large(batch, done) or _saturated(done)
    return Cell(settings=settings, status="skipped", reason=reason) if reason else None


def _too_large(batch: int, done: list[Cell]) -> str:
    scaling = scaling_of(done) if done else None
    if scaling is None or scaling.memory is None or scaling.capacity is None:
        return ""
    needed = scaling.memory.value_at(batch) + overhead(done)
    if needed <= scaling.capacity:
        return ""
    batches = ", ".join(str(point[0]) for point in scaling.memory.points)
    return (
        f"memory would not fit: about {units.size(needed, 3)} expected from batches {batches}, "
        f"{units.size(scaling.capacity, 3)} there"
    )


def _saturated(done: list[Cell]) -> str:
    rates = [
        (cell.settings.batch, rate, _upper_rate(cell, rate))
        for cell in done
        if (rate := cell.per_second) is not None
    ]
    if len(rates) <= STALE:
        return ""
    best_batch, best_rate, _ = max(rates[:-STALE], key=lambda point: point[1])
    if any(high >= best_rate * (1 + GAIN) for _, _, high in rates[-STALE:]):
        return ""
    larger = " and ".join(str(batch) for batch, _, _ in rates[-STALE:])
    return (
        f"throughput saturates: batches {larger} gain significantly less than "
        f"{units.percent(GAIN)} over "
        f"the {units.rate(best_rate, 'samples', 3)} of batch {best_batch}"
    )


def _upper_rate(cell: Cell, rate: float) -> float:
    """Return the upper end of a rate: on a noisy machine a row must not end by accident."""
    measured = cell.throughput
    if measured is None or measured.interval is None:
        return rate
    return rate * measured.interval.high / measured.calls


MakeJob = Callable[[CellSettings, int], Job]


@dataclasses.dataclass
class Run:
    """One pass over a grid; `measure_all` measures what would be left out as well.

    After `all` the cells are in `cells`, in the grid's order; `interrupted` says that Ctrl-C ended
    it before its time.
    """

    grid: Grid
    make_job: MakeJob
    executor: Executor
    journal: Journal
    progress: Progress
    repeats: int = 1
    measure_all: bool = False
    interrupted: bool = False
    environment: Environment | None = None

    def __post_init__(self) -> None:
        self._first: dict[CellSettings, Cell] = {}
        self._repeat_entries: dict[CellSettings, list[Entry]] = {}
        self._durations: list[float] = []
        self._under_way: list[CellSettings] = []
        self._remaining = 0

    def all(self) -> list[Cell]:
        """Measure every cell, then the comparable ones again, and return the cells.

        Rounds alternate their direction, so that a machine that slows down steadily favours none.
        Raises TorchgaugeError where the target itself cannot be used.
        """
        try:
            self._round(1, list(self.grid.cells()))
            for number in range(2, self.repeats + 1):
                repeated = [settings for settings, cell in self._first.items() if cell.done]
                self._round(number, repeated if number % 2 else repeated[::-1])
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            self.executor.close()
        return self._cells()

    def _round(self, number: int, to_measure: Iterable[CellSettings]) -> None:
        waiting = deque(to_measure)
        under_way = 0
        while waiting or under_way:
            while waiting and under_way < self.executor.slots and self._may_begin(waiting[0]):
                settings = waiting.popleft()
                self._remaining = len(waiting) + under_way + 1
                under_way += self._begun(settings, number)
            if under_way:
                self._take(self.executor.next())
                under_way -= 1

    def _begun(self, settings: CellSettings, number: int) -> bool:
        """Submit a cell's process; False where it is known already, or left out."""
        entry = self.journal.entries.get((settings, number))
        if entry is not None:
            self._keep(entry)
            return False
        if number == 1 and self._left_out(settings):
            return False
        self._tell(settings, number)
        self._under_way.append(settings.series)
        self.executor.submit(self.make_job(settings, number))
        return True

    def _may_begin(self, settings: CellSettings) -> bool:
        """Return whether a cell may begin; a doubling row waits for its smaller batch to end."""
        return not self.grid.automatic or settings.series not in self._under_way

    def _left_out(self, settings: CellSettings) -> bool:
        if self.grid.automatic and self._ended(settings):
            return True
        if self.measure_all and not self.grid.automatic:
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
        job, outcome = done
        self._under_way.remove(job.settings.series)
        if isinstance(outcome, TorchgaugeError):
            if not any(cell.target is not None for cell in self._first.values()):
                raise outcome  # it is the target's, and no cell could be measured
            cell = Cell(settings=job.settings, status="failed", reason=outcome.message,
                        error=outcome.id)  # fmt: skip
            outcome = Entry(number=job.number, cell=cell)
        self.journal.add(outcome)
        if outcome.cell.duration is not None:
            self._durations.append(outcome.cell.duration)
        self._keep(outcome)

    def _keep(self, entry: Entry) -> None:
        if entry.number > 1:
            self._repeat_entries.setdefault(entry.cell.settings, []).append(entry)
            return
        self._first[entry.cell.settings] = entry.cell
        self.environment = self.environment or entry.environment

    def _tell(self, settings: CellSettings, number: int) -> None:
        self.progress.start("sweep" if self.repeats == 1 else f"round {number} of {self.repeats}")
        done = len(self._durations)
        qualifier = "at most " if number == 1 and not self.measure_all else ""
        cells = f"{self._remaining} cell{'s' if self._remaining != 1 else ''} to go"
        time_left = ""
        if done and not self.grid.automatic:
            # Rounds that are still to come do no more than time.
            times = self._remaining + (self.repeats - number) * len(self._first)
            seconds = statistics.fmean(self._durations) * times / self.executor.slots
            time_left = f", {qualifier}{units.duration(seconds)} left"
        detail = settings.label if self.grid.automatic else f"{settings.label} · {cells}{time_left}"
        self.progress.update(detail)

    def _cells(self) -> list[Cell]:
        # Of a doubling row only what was reached is a cell.
        includes_unreached = not self.grid.automatic
        return [
            self._cell(settings)
            for settings in self.grid.cells()
            if includes_unreached or settings in self._first
        ]

    def _cell(self, settings: CellSettings) -> Cell:
        cell = self._first.get(settings)
        if cell is None:
            return Cell(settings=settings, status="skipped", reason="interrupted before it")
        entries = self._repeat_entries.get(settings, [])
        return merged(cell, entries) if entries else cell


def merged(cell: Cell, entries: Iterable[Entry]) -> Cell:
    """Return the cell with the latencies of all its processes as one."""
    repeated_cells = [entry.cell for entry in entries]
    latencies = [
        measured_cell.latency
        for measured_cell in (cell, *repeated_cells)
        if measured_cell.latency is not None
    ]
    latency = combine([run for latency in latencies for run in latency.processes])
    failed = tuple(
        MeasurementWarning(
            id=measured_cell.error, message=measured_cell.reason, probe="latency", failed=True
        )
        for measured_cell in repeated_cells
        if not measured_cell.done
    )
    return msgspec.structs.replace(
        cell,
        latency=latency,
        throughput=None if cell.target is None else throughput(latency, cell.target),
        duration=sum(measured_cell.duration or 0.0 for measured_cell in (cell, *repeated_cells)),
        warnings=cell.warnings + failed,
    )


NOT_FINITE = "output-not-finite"


def result(
    run: Run,
    cells: Sequence[Cell],
    options: SweepOptions,
    environment: Environment,
    unknown: TargetDescription,
) -> Sweep:
    """Return the record of a run; `unknown` describes a target of which no cell ran.

    Raises InputError as `constraints.parse`.
    """
    limits, journal_warning = parse(options.where), run.journal.warning
    target = next((cell.target for cell in cells if cell.target is not None), unknown)
    return Sweep(
        target=target,
        environment=environment,
        axes=run.grid.as_texts(),
        cells=tuple(cells),
        front=front(cells),
        best=tuple(best(cells, metric, limits, environment) for metric in options.best),
        scaling=scaling(cells),
        constraints=options.where,
        repeats=options.repeats,
        executor=run.executor.name,
        duration=sum(cell.duration or 0.0 for cell in cells),
        interrupted=run.interrupted,
        warnings=(*_warnings(cells), *(() if journal_warning is None else (journal_warning,))),
    )


def _warnings(cells: Sequence[Cell]) -> Iterator[MeasurementWarning]:
    machines = {cell.machine for cell in cells if cell.machine}
    if len(machines) > 1:
        message = f"Cells were measured on {len(machines)} kinds of machines: times differ by that."
        yield MeasurementWarning(id="several-machines", message=message, probe="sweep")
    broken = [cell for cell in cells if any(w.id == NOT_FINITE for w in cell.warnings)]
    if broken:
        labels = "; ".join(cell.settings.label for cell in broken)
        message = (
            f"Outputs hold NaN or infinities in {len(broken)} of {len(cells)} cells: {labels}."
        )
        cause = "Their figures are those of a computation that broke down, or of a mask."
        yield MeasurementWarning(id=NOT_FINITE, message=message, cause=cause, probe="sweep")


def sweep_grid(
    subject: TargetRequest | ModelWithInputs,
    axes: Mapping[str, Any],
    options: SweepOptions,
    latency: LatencyOptions,
    progress: Progress,
) -> Sweep:
    """Measure a target or model under all settings, and return the record.

    Raises InputError `axis-unknown`, `axis-invalid`, `sweep-other`, and for what cannot be measured
    at all.
    """
    grid, local_environment = Grid.from_axes(axes), environment()
    executor = options.executor
    if isinstance(executor, str):
        executor = named_executor(executor)
    device = subject.device if isinstance(subject, TargetRequest) else None
    machine = local_environment.machine.fingerprint if executor.is_local else executor.name
    names = _subject_identity(subject)
    identity = names | _measurement_identity(latency, options.memory_limit, device) | {
        "machine": machine, "torch": local_environment.software.torch
    }  # fmt: skip

    def make_job(settings: CellSettings, number: int) -> Job:
        changes = msgspec.structs.asdict(settings)
        changes["device"] = settings.device or device
        source = Variant(subject, memory_limit=options.memory_limit, **changes)
        return Job(settings, number, source, latency)

    unknown = TargetDescription(
        spec=names["target"], kind="", name=names["target"],
        device=device or "cpu", precision="native", precision_method="native",
    )  # fmt: skip
    with Journal(options.resume, identity) as journal:
        run = Run(
            grid, make_job, executor, journal, progress,
            repeats=options.repeats, measure_all=options.measure_all,
        )  # fmt: skip
        cells = run.all()
    return result(run, cells, options, run.environment or local_environment, unknown)


def _subject_identity(subject: TargetRequest | ModelWithInputs) -> dict[str, str]:
    """Name what is swept: a target by its texts, an object by its class and its tensors' form.

    Of a function that makes inputs only the name is known.
    """
    if isinstance(subject, TargetRequest):
        return {
            "target": subject.spec,
            "inputs": " ".join(map(str, subject.inputs)),
            "weights": str(subject.weights or ""),
        }
    module = module_of(subject.model)
    state: dict[str, Any] = {}
    if module is not None:
        check_tree(module)
        state = module.state_dict()
    inputs = (
        name_of(subject.make)
        if callable(subject.make)
        else _form(dict(Inputs.of(subject.make).tensors()))
    )
    return {"target": name_of(subject.model), "tensors": _form(state), "inputs": inputs}


def _measurement_identity(
    latency: LatencyOptions, memory_limit: int | None, device: str | None
) -> dict[str, str]:
    """Return what finished cells must have been measured with to be taken over."""
    plan = latency.plan
    measured_with = {
        "device": device,
        "memory limit": memory_limit,
        "warm-up": plan.warmup,
        "iterations": plan.iterations,
        "precision of the median": plan.target_rel_error,
        "budget": plan.budget,
        "independent samples, which a limit on a percentile asks for,": plan.independent or None,
    }
    return {name: str(value) for name, value in measured_with.items() if value is not None}


def _form(tensors: Mapping[str, Any]) -> str:
    """Return a text that is equal for tensors of the same names, shapes and dtypes."""
    forms = [
        (name, [tuple(part.shape) for part in strided(value)], value.dtype)
        if isinstance(value, torch.Tensor)
        else (name, None, None)
        for name, value in tensors.items()
    ]
    return hashlib.sha256(repr(forms).encode()).hexdigest()[:12]
