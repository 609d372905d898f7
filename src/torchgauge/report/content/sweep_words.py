"""Words and cells of a sweep's report, shared by all formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from torchgauge import units
from torchgauge.analyze.sweep.constraints import cell_figure, has_enough_samples, is_bounded
from torchgauge.records.metric import METRICS
from torchgauge.records.record import Interval
from torchgauge.records.sweep import AXES, Best, Cell, CellSettings, Fit, Scaling, Sweep
from torchgauge.report.tables.target_facts import hardware, software

Format = Callable[[float | None, int], str]

FRONT, BEST, TIED, WARNED = "◆", "★", "≈", "!"
MOST_TIED = 4
OBJECTIVE_NAMES = {"latency": "latency", "throughput": "throughput", "memory": "peak memory"}


def title(sweep: Sweep) -> str:
    """Return the model's name."""
    return sweep.target.name


def facts(sweep: Sweep) -> list[tuple[str, str]]:
    """Return what was swept, over what, where, and what came of it."""
    axes = [f"{name.replace('_', '-')} {', '.join(values)}" for name, values in sweep.axes.items()]
    machine = sweep.environment.machine
    pairs = [
        ("target", sweep.target.spec),
        ("grid", " × ".join(axes) or "nothing varies"),
        ("cells", cells(sweep)),
        ("machine", hardware(machine, machine.gpus)),
        ("software", software(sweep.environment, sweep.target.runtime)),
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
        "p99": units.time(latency.p99, 3) if has_enough_samples(cell, "p99") else "",
        "per second": _rate(cell.per_second),
        "tokens/s": _rate(None if throughput is None else throughput.tokens),
        "memory": "unknown" if cell.memory is None else units.size(cell.memory.peak, 3),
        "first call": units.time(latency.first_call, 3),
    }
    return {name: text for name, text in texts.items() if text}


def _rate(number: float | None) -> str:
    return "" if number is None else units.rate(number, "", 3).removesuffix("/s").strip()


def marks(sweep: Sweep, index: int) -> str:
    """Return a cell's signs: on the front, best or perhaps best in a metric, with warnings."""
    signs = {
        FRONT: index in sweep.front.cells,
        BEST: bool(best_metrics(sweep, index)),
        TIED: bool(tied_metrics(sweep, index)),
        WARNED: bool(sweep.cells[index].warnings),
    }
    return " ".join(sign for sign, has_sign in signs.items() if has_sign)


def best_metrics(sweep: Sweep, index: int) -> list[str]:
    """Return the metrics that a cell is best in: no other's interval overlaps its own."""
    return [best.metric for best in sweep.best if best.cell == index and _is_proven(sweep, best)]


def tied_metrics(sweep: Sweep, index: int) -> list[str]:
    """Return the metrics in which a cell is one of several that may be the best."""
    return [best.metric for best in sweep.best if best.ties and index in (best.cell, *best.ties)]


def _is_proven(sweep: Sweep, best: Best) -> bool:
    if best.cell is None or best.ties or best.metric not in METRICS:
        return False
    limited = METRICS[best.metric]
    return is_bounded(cell_figure(sweep.cells[best.cell], limited, sweep.environment), limited)


def cell_warnings(sweep: Sweep) -> list[tuple[str, str]]:
    """Return the cells' warnings by id: which cells have it, and what the first of them says."""
    cells_by_id: dict[str, dict[CellSettings, list[int]]] = {}
    messages: dict[str, list[str]] = {}
    for cell in sweep.cells:
        for warning in {warning.id: warning for warning in cell.warnings}.values():
            batches = cells_by_id.setdefault(warning.id, {}).setdefault(cell.settings.series, [])
            batches += [cell.settings.batch] if cell.settings.batch is not None else []
            messages.setdefault(warning.id, []).append(warning.message)
    lines = []
    for warning_id, by_row in cells_by_id.items():
        first, is_same = messages[warning_id][0], len(set(messages[warning_id])) == 1
        cell_names = _cells_in_words(sweep, by_row)
        parts = (cell_names, first if is_same else f"{first} (of the first)")
        lines.append((warning_id, ": ".join(filter(None, parts))))
    return lines


def _cells_in_words(sweep: Sweep, by_row: dict[CellSettings, list[int]]) -> str:
    return "; ".join(_row(sweep, series, batches) for series, batches in by_row.items())


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
        cell_names = _cells_in_words(sweep, by_row)
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


def legend(sweep: Sweep) -> list[str]:
    """Return what the marks mean that the cells have."""
    objectives = ", ".join(OBJECTIVE_NAMES[objective] for objective in sweep.front.objectives)
    used_signs = {
        sign
        for index, cell in enumerate(sweep.cells)
        if cell.done
        for sign in marks(sweep, index).split()
    }
    meanings = {
        BEST: "best",
        TIED: "not distinguishable from the best",
        WARNED: "has warnings, below",
    }
    other_meanings = [f"{sign} {text}" for sign, text in meanings.items() if sign in used_signs]
    front = f"{FRONT} best trade-off: no other is better in one of {objectives} and worse in none"
    return [front] * (FRONT in used_signs) + ["   ".join(other_meanings)] * bool(other_meanings)


class BestWords(NamedTuple):
    """The cell that is best in a metric, its figure, and how sure that is; or why there is none.

    `cell` is empty where several are not distinguishable: `notes` name them, `figure` is then of
    the best estimate.
    """

    metric: str
    cell: str
    figure: str
    notes: tuple[str, ...]

    def __str__(self) -> str:
        if not self.cell:
            return ", ".join(self.notes)
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
    figure, interval_text = _figure(sweep, winner.cell, winner.metric)
    notes = [f"borderline in {', '.join(winner.borderline)}"] if winner.borderline else []
    ids = list(dict.fromkeys(warning.id for warning in cell.warnings))
    notes += [f"with the warning{'s' if len(ids) > 1 else ''} {', '.join(ids)}"] if ids else []
    if winner.ties:
        return BestWords(winner.metric, "", figure, (_tied(sweep, winner), *notes))
    label = named(sweep, cell.settings) or "as given"
    unsure = "" if _is_proven(sweep, winner) else "its interval is unknown"
    sureness = filter(None, (interval_text or unsure,))
    return BestWords(winner.metric, label, figure, (*sureness, *notes))


def _tied(sweep: Sweep, winner: Best) -> str:
    texts: list[str] = []
    for index in (winner.cell, *winner.ties):
        if index is not None and len(texts) < MOST_TIED:
            figure_text = ", ".join(filter(None, _figure(sweep, index, winner.metric)))
            label = named(sweep, sweep.cells[index].settings) or "as given"
            texts.append(f"{label}: {figure_text}")
    omitted_count = 1 + len(winner.ties) - len(texts)
    suffix = f" and {omitted_count} more" if omitted_count else ""
    return f"not distinguishable: {'; '.join(texts)}{suffix}"


def _figure(sweep: Sweep, index: int, name: str) -> tuple[str, str]:
    """Return a cell's figure and its interval: "10.0 ms", "95 % in 9.900 … 10.10 ms"."""
    if name not in METRICS:
        return "unknown", ""
    figure = cell_figure(sweep.cells[index], METRICS[name], sweep.environment)
    if name == "memory":
        return units.size(figure.value, 3), ""
    interval = figure.interval
    if name == "throughput":
        text = units.rate(figure.value, rate(sweep), 3)
        between = interval and f"{_rate(interval.low)} … {_rate(interval.high)}"
    else:
        text = units.time(figure.value, 3)
        between = interval and units.times(interval.low, interval.high)
    return text, f"95 % in {between}" if between else ""


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
