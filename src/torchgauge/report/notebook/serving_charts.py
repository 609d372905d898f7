"""Small drawings of load: waiting by rate, answers by rate, spread of latency, fates; of plans."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from torchgauge import units
from torchgauge.analyze.generation.cells import decode_steps
from torchgauge.records.generation.cell import GenerationCell
from torchgauge.records.generation.generation import Generation
from torchgauge.records.serving.capacity_plan import CapacityPlan, PlannedSetting
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.serving import Serving
from torchgauge.report.content.generation import generation_words
from torchgauge.report.content.serving import serving_words
from torchgauge.report.notebook.charts import BINS, MAX_BARS, Chart, divided

FRACTION = 0.99
DRAWN_SHARE = 0.99  # beyond it a few requests would take all of the room


def serving(record: Serving) -> list[Chart]:
    """Return the 99th percentiles and answers by rate, and of the last good level its requests."""
    rated = sorted(
        (level for level in record.levels if level.arrivals.rate is not None),
        key=lambda level: level.arrivals.rate or 0.0,
    )
    met = [level for level in record.levels if level.verdict == "met"]
    headline = (met or [*record.levels])[-1:]
    return [
        *_waits(rated),
        *_answers(rated),
        *(chart for level in headline for chart in (*_over_time(level), *_spread(level))),
        *_fates(record),
    ]


def _waits(levels: Sequence[Level]) -> Iterator[Chart]:
    values = {
        f"{level.arrivals.rate:,.4g}": percentile.value
        for level in levels
        if level.latency is not None
        and (percentile := level.latency.percentile(FRACTION)) is not None
    }
    yield from _line("Latency p99 by offered requests/s", values, _time)


def _answers(levels: Sequence[Level]) -> Iterator[Chart]:
    values = {
        f"{level.arrivals.rate:,.4g}": level.goodput.value
        for level in levels
        if level.goodput is not None
    }
    yield from _line("Within all goals by offered requests/s", values, _rate)


def _time(seconds: float) -> str:
    return units.time(seconds, 3)


def _rate(per_second: float) -> str:
    return units.rate(per_second, "requests", 3)


def _line(
    title: str, values: Mapping[str, float], text: Callable[[float], str], note: str = ""
) -> Iterator[Chart]:
    """Yield a line through two values or more, with the text of the largest."""
    if len(values) > 1:
        top = text(max(values.values()))
        yield Chart(title, "line", [*values.values()], [*values], top, note)


def _latencies(level: Level) -> list[tuple[float, float]]:
    """Return (due, latency) of the answered requests."""
    requests = level.requests
    columns = zip(requests.scheduled, requests.last, requests.fate, strict=False)
    return [(due, last - due) for due, last, fate in columns if last is not None and fate == "done"]


def _over_time(level: Level) -> Iterator[Chart]:
    """Yield the slowest request of each moment."""
    latencies = _latencies(level)
    if len(latencies) < 2 or level.duration <= 0:
        return
    bars = min(len(latencies), MAX_BARS)
    slowest = [0.0] * bars
    for due, latency in latencies:
        bar = min(max(int(due / level.duration * bars), 0), bars - 1)
        slowest[bar] = max(slowest[bar], latency)
    labels = ("0 s", units.time(level.duration, 3))
    title = f"Slowest over time, {level.label}"
    yield Chart(title, "bars", slowest, labels, units.time(max(slowest), 3))


def _spread(level: Level) -> Iterator[Chart]:
    """Yield how many requests took how long, those of the steady window."""
    begin, end = level.window
    ordered = sorted(latency for due, latency in _latencies(level) if begin <= due < end)
    drawn = ordered[: max(round(DRAWN_SHARE * len(ordered)), 1)]
    if len(ordered) < 2 or drawn[0] == drawn[-1]:
        return
    low, high = drawn[0], drawn[-1]
    counts = [0] * min(BINS, len(drawn))
    for latency in drawn:
        counts[min(int((latency - low) / (high - low) * len(counts)), len(counts) - 1)] += 1
    omitted = len(ordered) - len(drawn)
    note = f"{omitted:,} longer, up to {units.time(ordered[-1], 3)}" * bool(omitted)
    labels = (units.time(low, 3), units.time(high, 3))
    title = f"Requests by latency, {level.label}"
    yield Chart(title, "bars", counts, labels, f"up to {max(counts):,}", note)


def _fates(record: Serving) -> Iterator[Chart]:
    """Yield what became of requests, where not all of them were answered."""
    counts: dict[str, float] = {}
    for level in record.levels:
        for fate in level.requests.fate:
            counts[serving_words.FATES[fate]] = counts.get(serving_words.FATES[fate], 0) + 1
    if len(counts) > 1:
        yield divided("Requests", counts, lambda count: f"{count:,.0f}")


def plan(record: CapacityPlan) -> list[Chart]:
    """Return the 99th percentiles and the knee by workers, at the rate that is planned for."""
    if not record.settings:
        return []
    ordered = list(record.by_workers.values())
    return [*_percentiles(ordered), *_knees(ordered)]


def _percentiles(settings: Sequence[PlannedSetting]) -> Iterator[Chart]:
    values = {
        f"{setting.workers:,}": percentile.value
        for setting in settings
        if setting.latency is not None
        and (percentile := setting.latency.percentile(FRACTION)) is not None
    }
    unstable = [f"{setting.workers:,}" for setting in settings if not setting.stable]
    note = f"the queue grows with {', '.join(unstable)}" * bool(unstable)
    yield from _line("Latency p99 by workers (estimated)", values, _time, note)


def _knees(settings: Sequence[PlannedSetting]) -> Iterator[Chart]:
    values = {
        f"{setting.workers:,}": setting.knee.value
        for setting in settings
        if setting.knee is not None
    }
    yield from _line("Knee by workers (estimated)", values, _rate)


MAX_SIDE = 6  # batches or prompts of a map


def generation(record: Generation) -> list[Chart]:
    """Return the drawings of the first cell and of those that differ from it in the prompt alone.

    The map is of the cells that differ from it in batch or prompt.
    """
    if not record.done:
        return []
    first = record.done[0]
    same_kind = [cell for cell in record.done if cell.kind == first.kind]
    row = sorted(
        (cell for cell in same_kind if cell.batch == first.batch), key=lambda cell: cell.prompt
    )
    mapped = [cell for cell in record.cells if cell.kind == first.kind]
    return [*_steps(row), *_caches(row), *_map(mapped), *_parts(first)]


def _steps(cells: Sequence[GenerationCell]) -> Iterator[Chart]:
    """Yield the medians of decode steps by context; each of several where there are many."""
    steps = sorted(
        (step.context, step.period)
        for cell in cells
        for call in cell.timed_calls
        for step in decode_steps(call)
    )
    if len(steps) > 1:
        columns = min(len(steps), MAX_BARS)
        ends = [len(steps) * column // columns for column in range(columns + 1)]
        medians = [
            statistics.median(seconds for _, seconds in steps[begin:end])
            for begin, end in itertools.pairwise(ends)
        ]
        labels = (f"context {steps[0][0]:,}", f"{steps[-1][0]:,}")
        title = f"Decode steps by context, batch {cells[0].batch}"
        yield Chart(title, "bars", medians, labels, units.time(max(medians), 3))


def _caches(cells: Sequence[GenerationCell]) -> Iterator[Chart]:
    sizes = {
        f"{cell.cache.positions or cell.prompt:,}": cell.cache.held
        for cell in cells
        if cell.cache is not None
    }
    if len(sizes) > 1:
        title = f"Cache held by positions, batch {cells[0].batch}"
        yield from _line(title, sizes, lambda size: units.size(size, 3))


def _map(cells: Sequence[GenerationCell]) -> Iterator[Chart]:
    """Yield the time per token by batch and prompt, where both differ."""
    by_size = {(cell.batch, cell.prompt): cell for cell in cells}
    batches, prompts = (sorted({size[axis] for size in by_size}) for axis in (0, 1))
    if 1 < len(batches) <= MAX_SIDE and 1 < len(prompts) <= MAX_SIDE:
        placed = [by_size.get((batch, prompt)) for batch in batches for prompt in prompts]
        values, texts = zip(*map(_time_per_token, placed), strict=True)
        columns, rows = ([f"{size:,}" for size in sizes] for sizes in (prompts, batches))
        title = "Time per token, batch (down) and prompt"
        yield Chart(title, "map", values, columns, texts=texts, rows=rows)


def _time_per_token(cell: GenerationCell | None) -> tuple[float, str]:
    """Return it and its text; of a cell that has none why."""
    if cell is None:
        return 0.0, ""
    if cell.tpot is None:
        return 0.0, units.UNKNOWN if cell.done else cell.status
    return cell.tpot.value, units.time(cell.tpot.value, 3)


def _parts(cell: GenerationCell) -> Iterator[Chart]:
    call = generation_words.middle_call(cell)
    parts = {} if call is None else generation_words.call_parts(call)
    if parts:
        yield divided(f"Time of a call, {cell.size_label}", parts, units.time)
