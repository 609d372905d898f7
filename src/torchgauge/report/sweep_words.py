"""What a sweep says, in words and cells of text, before a format decides how it looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from torchgauge import units
from torchgauge.model.metric import metric
from torchgauge.model.record import Interval
from torchgauge.model.sweep import AXES, Best, Cell, CellSettings, Fit, Scaling, Sweep

Format = Callable[[float | None, int], str]

FRONT, BEST = "◆", "★"
OF = {"latency": "latency", "throughput": "throughput", "memory": "peak memory"}


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
    found = [
        ("target", sweep.target.spec),
        ("grid", " × ".join(axes) or "nothing varies"),
        ("cells", cells(sweep)),
        ("machine", hardware),
        ("software", f"torch {software.torch}, Python {software.python}"),
    ]
    return found + ([("where", sweep.where)] if sweep.where else [])


def cells(sweep: Sweep) -> str:
    """Return how many cells there are, and how they ended."""
    statuses = [cell.status for cell in sweep.cells]
    counted = [f"{statuses.count(one)} {one}" for one in dict.fromkeys(statuses)]
    each = f", {sweep.repeats} processes each, in turn" if sweep.repeats > 1 else ""
    by = "" if sweep.executor == "process" else f", by {sweep.executor}"
    return f"{', '.join(counted) or 'none'}{each}{by}; in {units.duration(sweep.duration)}"


def rows(sweep: Sweep) -> dict[CellSettings, list[int]]:
    """Return the cells' places by the settings that they share but for the batch."""
    found: dict[CellSettings, list[int]] = {}
    for place, cell in enumerate(sweep.cells):
        found.setdefault(cell.settings.series, []).append(place)
    return found


def rate(sweep: Sweep) -> str:
    """Return what throughput counts: samples, or calls where no input says its batch."""
    done = [cell.throughput for cell in sweep.cells if cell.throughput is not None]
    return "samples" if any(one.samples is not None for one in done) else "calls"


def figures(cell: Cell) -> dict[str, str]:
    """Return a cell's figures as texts by column; only those that are known."""
    found, through = cell.latency, cell.throughput
    if found is None:
        return {}
    error = found.relative_error
    told = {
        "median": units.time(found.median, 3),
        "±": "" if error is None else units.percent(error),
        "p99": units.time(found.p99, 3),
        "per second": _rate(cell.per_second),
        "tokens/s": _rate(None if through is None else through.tokens),
        "memory": "unknown" if cell.memory is None else units.size(cell.memory.peak, 3),
        "first call": units.time(found.first_call, 3),
    }
    return {name: text for name, text in told.items() if text}


def _rate(number: float | None) -> str:
    return "" if number is None else units.rate(number, "", 3).removesuffix("/s").strip()


def marks(sweep: Sweep, place: int) -> tuple[str, str]:
    """Return the signs of a cell, on the front and best in something, and what that is."""
    front = FRONT if place in sweep.front.cells else ""
    best = ", ".join(one.metric for one in sweep.best if one.cell == place)
    return f"{front} {BEST if best else ''}".strip(), best


def reasons(sweep: Sweep) -> list[tuple[str, str]]:
    """Return why cells have no figures: how they ended, which they are, and the reason."""
    found: dict[tuple[str, str], dict[CellSettings, list[int]]] = {}
    for cell in sweep.cells:
        if not cell.done:
            by_row = found.setdefault((cell.status, cell.reason), {})
            batches = by_row.setdefault(cell.settings.series, [])
            batches += [cell.settings.batch] if cell.settings.batch is not None else []
    said = []
    for (status, reason), by_row in found.items():
        which = "; ".join(_row(sweep, series, batches) for series, batches in by_row.items())
        said.append((status, f"{which}: {reason}" if which else reason))
    return said


def _row(sweep: Sweep, series: CellSettings, batches: list[int]) -> str:
    several = f"batch{'es' if len(batches) > 1 else ''} {', '.join(map(str, batches))}"
    varying = named(sweep, series)
    return ", ".join(filter(None, (varying, several if batches else "")))


def named(sweep: Sweep, settings: CellSettings) -> str:
    """Return the settings that vary in this sweep, in words; "" where none does."""
    same = {
        name: None
        for name in AXES
        if len({getattr(cell.settings, name) for cell in sweep.cells}) <= 1
    }
    shown = msgspec.structs.replace(settings, **same)
    return "" if shown == CellSettings() else shown.label


def legend(sweep: Sweep) -> str:
    """Return what the marks mean."""
    objectives = ", ".join(OF[one] for one in sweep.front.objectives)
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
    """Yield what is said of the best cell in each metric."""
    for one in sweep.best:
        yield _best(sweep, one)


def _best(sweep: Sweep, one: Best) -> BestWords:
    if one.cell is None:
        unknown = f" ({len(one.unknown)} of unknown figures)" if one.unknown else ""
        why = f"no cell keeps {sweep.where}{unknown}" if sweep.where else "no cell is known"
        return BestWords(one.metric, why, "", ())
    cell = sweep.cells[one.cell]
    notes = []
    if one.ties:
        labels = [named(sweep, sweep.cells[place].settings) for place in one.ties[:3]]
        more = f" and {len(one.ties) - 3} more" if len(one.ties) > 3 else ""
        notes.append(f"not told apart from {'; '.join(labels)}{more}")
    if one.borderline:
        notes.append(f"borderline in {', '.join(one.borderline)}")
    label, figure = named(sweep, cell.settings), _value(sweep, cell, one.metric)
    return BestWords(one.metric, label, figure, tuple(notes))


def _value(sweep: Sweep, cell: Cell, name: str) -> str:
    if name == "throughput":
        return units.rate(cell.per_second, rate(sweep), 3)
    if name == "memory":
        return units.size(None if cell.memory is None else cell.memory.peak, 3)
    field = metric(name).figure.removeprefix("latency_")
    return units.time(getattr(cell.latency, field, None), 3)


def scaling(found: Scaling) -> Iterator[tuple[str, str]]:
    """Yield how latency and memory grow with the batch, and what fits, in words."""
    if found.latency is not None:
        yield "latency", _fit(found.latency, units.time)
    if found.memory is not None:
        yield "memory", _fit(found.memory, units.size)
    if text := _fits(found):
        yield "fits", text


def _fit(fit: Fit, form: Format) -> str:
    fixed = _with(form(fit.fixed, 3), fit.fixed_interval, form)
    marginal = _with(form(fit.marginal, 3), fit.marginal_interval, form)
    line = f"{fixed} + {marginal} per sample"
    return line if fit.holds else f"about {line}, but no line proven: {fit.reason}"


def _with(text: str, interval: Interval | None, form: Format) -> str:
    if interval is None:
        return text
    half = form(interval.half_width, 2)
    return text if half in ("0 B", "0 s") else f"{text} (±{half})"


def _fits(found: Scaling) -> str:
    parts = []
    if found.largest is not None and found.capacity is not None:
        room = units.size(found.capacity, 3)
        parts.append(f"up to batch {units.count(found.largest, 3)} into {room}, estimated")
    if found.smallest_failed is not None:
        parts.append(f"batch {found.smallest_failed} ran out of memory")
    return ", ".join(parts)
