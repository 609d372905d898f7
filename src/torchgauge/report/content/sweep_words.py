"""Words and cells of a sweep's report, shared by all formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from torchgauge import units
from torchgauge.records.metric import metric
from torchgauge.records.record import Interval
from torchgauge.records.sweep import AXES, Best, Cell, CellSettings, Fit, Scaling, Sweep

Format = Callable[[float | None, int], str]

FRONT, BEST = "◆", "★"
OBJECTIVE_NAMES = {"latency": "latency", "throughput": "throughput", "memory": "peak memory"}


def title(sweep: Sweep) -> str:
    """Return the model's name."""
    return sweep.target.name


def facts(sweep: Sweep) -> list[tuple[str, str]]:
    """Return what was swept, over what, where, and what came of it."""
    axes = [f"{name.replace('_', '-')} {', '.join(values)}" for name, values in sweep.axes.items()]
    machine, software = sweep.environment.machine, sweep.environment.software
    cores = machine.cpu_quota or machine.usable_cores
    gpus = [f"{gpu.name}, {units.size(gpu.memory, 3)}" for gpu in machine.gpus]
    hardware = "; ".join(
        [*gpus, f"{machine.cpu}, {cores:g} cores, {units.size(machine.memory, 3)}"]
    )
    pairs = [
        ("target", sweep.target.spec),
        ("grid", " × ".join(axes) or "nothing varies"),
        ("cells", cells(sweep)),
        ("machine", hardware),
        ("software", f"torch {software.torch}, Python {software.python}"),
    ]
    return pairs + ([("where", sweep.constraints)] if sweep.constraints else [])


def cells(sweep: Sweep) -> str:
    """Return how many cells there are, and how they ended."""
    statuses = [cell.status for cell in sweep.cells]
    counted = [f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses)]
    repeats = f", {sweep.repeats} processes each, in turn" if sweep.repeats > 1 else ""
    executor = "" if sweep.executor == "process" else f", by {sweep.executor}"
    return f"{', '.join(counted) or 'none'}{repeats}{executor}; in {units.duration(sweep.duration)}"


def rows(sweep: Sweep) -> dict[CellSettings, list[int]]:
    """Return the cells' places by the settings that they share but for the batch."""
    places: dict[CellSettings, list[int]] = {}
    for place, cell in enumerate(sweep.cells):
        places.setdefault(cell.settings.series, []).append(place)
    return places


def rate(sweep: Sweep) -> str:
    """Return what throughput counts: samples, or calls where no input says its batch."""
    throughputs = [cell.throughput for cell in sweep.cells if cell.throughput is not None]
    return (
        "samples" if any(throughput.samples is not None for throughput in throughputs) else "calls"
    )


def figures(cell: Cell) -> dict[str, str]:
    """Return a cell's figures as texts by column; only those that are known."""
    latency, throughput = cell.latency, cell.throughput
    if latency is None:
        return {}
    error = latency.relative_error
    texts = {
        "median": units.time(latency.median, 3),
        "±": "" if error is None else units.percent(error),
        "p99": units.time(latency.p99, 3),
        "per second": _rate(cell.per_second),
        "tokens/s": _rate(None if throughput is None else throughput.tokens),
        "memory": "unknown" if cell.memory is None else units.size(cell.memory.peak, 3),
        "first call": units.time(latency.first_call, 3),
    }
    return {name: text for name, text in texts.items() if text}


def _rate(number: float | None) -> str:
    return "" if number is None else units.rate(number, "", 3).removesuffix("/s").strip()


def marks(sweep: Sweep, place: int) -> tuple[str, str]:
    """Return a cell's signs (on the front, best in a metric), and the metrics it is best in."""
    front = FRONT if place in sweep.front.cells else ""
    best = ", ".join(winner.metric for winner in sweep.best if winner.cell == place)
    return f"{front} {BEST if best else ''}".strip(), best


def reasons(sweep: Sweep) -> list[tuple[str, str]]:
    """Return why cells have no figures: how they ended, which they are, and the reason."""
    groups: dict[tuple[str, str], dict[CellSettings, list[int]]] = {}
    for cell in sweep.cells:
        if not cell.done:
            by_row = groups.setdefault((cell.status, cell.reason), {})
            batches = by_row.setdefault(cell.settings.series, [])
            batches += [cell.settings.batch] if cell.settings.batch is not None else []
    lines = []
    for (status, reason), by_row in groups.items():
        cell_names = "; ".join(_row(sweep, series, batches) for series, batches in by_row.items())
        lines.append((status, f"{cell_names}: {reason}" if cell_names else reason))
    return lines


def _row(sweep: Sweep, series: CellSettings, batches: list[int]) -> str:
    several = f"batch{'es' if len(batches) > 1 else ''} {', '.join(map(str, batches))}"
    varying = named(sweep, series)
    return ", ".join(filter(None, (varying, several if batches else "")))


def named(sweep: Sweep, settings: CellSettings) -> str:
    """Return the settings that vary in this sweep, in words; "" where none does."""
    constant = {
        name: None
        for name in AXES
        if len({getattr(cell.settings, name) for cell in sweep.cells}) <= 1
    }
    varying = msgspec.structs.replace(settings, **constant)
    return "" if varying == CellSettings() else varying.label


def legend(sweep: Sweep) -> str:
    """Return what the marks mean."""
    objectives = ", ".join(OBJECTIVE_NAMES[objective] for objective in sweep.front.objectives)
    return f"{FRONT} no other is better in one of {objectives} and worse in none   {BEST} best"


class BestWords(NamedTuple):
    """The cell that is best in a metric, its figure, and how sure that is; or why there is none."""

    metric: str
    cell: str
    figure: str
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join((": ".join(filter(None, (self.cell, self.figure))), *self.notes))


def best(sweep: Sweep) -> Iterator[BestWords]:
    """Yield the best cell of each metric, in words."""
    for winner in sweep.best:
        yield _best(sweep, winner)


def _best(sweep: Sweep, winner: Best) -> BestWords:
    if winner.cell is None:
        unknown = f" ({len(winner.unknown)} of unknown figures)" if winner.unknown else ""
        explanation = (
            f"no cell keeps {sweep.constraints}{unknown}"
            if sweep.constraints
            else "no cell is known"
        )
        return BestWords(winner.metric, explanation, "", ())
    cell = sweep.cells[winner.cell]
    notes = []
    if winner.ties:
        labels = [named(sweep, sweep.cells[place].settings) for place in winner.ties[:3]]
        suffix = f" and {len(winner.ties) - 3} more" if len(winner.ties) > 3 else ""
        notes.append(f"not told apart from {'; '.join(labels)}{suffix}")
    if winner.borderline:
        notes.append(f"borderline in {', '.join(winner.borderline)}")
    label, figure = named(sweep, cell.settings), _value(sweep, cell, winner.metric)
    return BestWords(winner.metric, label, figure, tuple(notes))


def _value(sweep: Sweep, cell: Cell, name: str) -> str:
    if name == "throughput":
        return units.rate(cell.per_second, rate(sweep), 3)
    if name == "memory":
        return units.size(None if cell.memory is None else cell.memory.peak, 3)
    field = metric(name).figure.removeprefix("latency_")
    return units.time(getattr(cell.latency, field, None), 3)


def scaling(record: Scaling) -> Iterator[tuple[str, str]]:
    """Yield how latency and memory grow with the batch, and what fits, in words."""
    if record.latency is not None:
        yield "latency", _fit(record.latency, units.time)
    if record.memory is not None:
        yield "memory", _fit(record.memory, units.size)
    if text := _fits(record):
        yield "fits", text


def _fit(fit: Fit, form: Format) -> str:
    fixed = _with_interval(form(fit.fixed, 3), fit.fixed_interval, form)
    marginal = _with_interval(form(fit.marginal, 3), fit.marginal_interval, form)
    line = f"{fixed} + {marginal} per sample"
    return line if fit.is_linear else f"about {line}, but no line proven: {fit.reason}"


def _with_interval(text: str, interval: Interval | None, form: Format) -> str:
    if interval is None:
        return text
    half = form(interval.half_width, 2)
    return text if half in ("0 B", "0 s") else f"{text} (±{half})"


def _fits(record: Scaling) -> str:
    parts = []
    if record.largest is not None and record.capacity is not None:
        room = units.size(record.capacity, 3)
        parts.append(f"up to batch {units.count(record.largest, 3)} into {room}, estimated")
    if record.smallest_failed is not None:
        parts.append(f"batch {record.smallest_failed} ran out of memory")
    return ", ".join(parts)
