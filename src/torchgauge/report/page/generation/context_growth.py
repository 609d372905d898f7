"""How prefill, decode steps and the cache grow: points by context, and the fits' lines."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torchgauge import units
from torchgauge.analyze.generation.cells import decode_steps
from torchgauge.analyze.generation.predictions import stage_time
from torchgauge.analyze.generation.stage_points import Stage, fitted_cells
from torchgauge.records.generation.call import GenerationCall
from torchgauge.records.generation.cell import Coefficient, GenerationCell, StageFit
from torchgauge.records.generation.generation import Generation
from torchgauge.report.content.generation.generation_words import KILO
from torchgauge.report.page.page_shorter import ns, short

MAX_POINTS = 1_200  # of a chart; where there are more, each is the median of several
MAX_SERIES = 8  # of a chart: as many as there are colours
STEPS = 32  # in which a line and its band are drawn
TITLES = {"prefill": "Prefill", "decode": "Decode step"}
STAGES: tuple[Stage, ...] = ("prefill", "decode")
AXES = {"prefill": "prompt", "decode": "context"}


class Point(NamedTuple):
    """Seconds of a prefill or a decode step, by the positions of its prompt or its context."""

    context: float
    seconds: float


class Group(NamedTuple):
    """The cells of as many sequences, drawn in one colour."""

    label: str
    cells: list[GenerationCell]


def growth(generation: Generation) -> list[dict[str, Any]] | None:
    """Return a chart of prefill and one of decode steps for each kind of cache."""
    charts = [
        chart
        for kind in dict.fromkeys(cell.cache_kind for cell in generation.cells)
        for stage in STAGES
        if (chart := _chart(generation, stage, kind)) is not None
    ]
    return charts or None


def _chart(generation: Generation, stage: Stage, kind: str) -> dict[str, Any] | None:
    cells = [cell for cell in generation.cells if cell.cache_kind == kind and points(cell, stage)]
    if not cells or (stage == "prefill" and len({cell.prompt for cell in cells}) < 2):
        return None
    groups = _groups(cells)
    drawn = groups[:MAX_SERIES]
    total = sum(len(points(cell, stage)) for group in drawn for cell in group.cells)
    per_point = math.ceil(total / MAX_POINTS)
    fit = generation.fit(stage, kind)
    fitted = fitted_cells(generation.cells, kind)
    predicted = _predicted(generation, stage, kind)
    series = [
        {
            "label": group.label,
            "points": [
                [round(point.context), round(point.seconds * 1e9)]
                for cell in group.cells
                for point in binned(points(cell, stage), per_point)
            ],
            "line": _line(fit, group, predicted) if fit and group.cells[0] in fitted else [],
        }
        for group in drawn
    ]
    return {
        "title": short(f"{TITLES[stage]}: {cache_name(kind)}"),
        "axis": AXES[stage],
        "series": series,
        "notes": [*_notes(fit, cells, per_point, len(groups) - len(drawn)), *_gaps(series)],
        "words": [] if fit is None else _words(fit),
    }


def _groups(cells: Sequence[GenerationCell]) -> list[Group]:
    """Return the cells by batch and beams, the smallest first."""
    groups: dict[str, list[GenerationCell]] = {}
    for cell in sorted(cells, key=lambda cell: (cell.batch, cell.beams, cell.prompt)):
        beams = f", {cell.beams:,} beams" * (cell.beams > 1)
        label = f"batch {cell.batch:,}{beams}{', assisted' * cell.assisted}"
        groups.setdefault(label, []).append(cell)
    return [Group(*group) for group in groups.items()]


def points(cell: GenerationCell, stage: Stage) -> list[Point]:
    """Return the prefill of every timed call, or each of its decode steps, by context.

    A decode step lasts until the next one begins, the last until the call ends.
    """
    return [point for call in cell.timed_calls for point in _points_of(call, stage)]


def _points_of(call: GenerationCall, stage: Stage) -> Iterator[Point]:
    if stage == "decode":
        for step in decode_steps(call):
            yield Point(step.context, step.period)
    elif call.prefill is not None:
        yield Point(call.prompt, call.prefill)


def binned(measured: Sequence[Point], per_point: int) -> list[Point]:
    """Return the medians of `per_point` neighbours in context."""
    return [
        Point(*map(statistics.median, zip(*group, strict=True)))
        for group in batched(sorted(measured), per_point)
    ]


def batched(measured: Sequence[Point], size: int) -> Iterator[Sequence[Point]]:
    """Yield batches of them of one size, and what is left."""
    for start in range(0, len(measured), size):
        yield measured[start : start + size]


def _predicted(generation: Generation, stage: Stage, kind: str) -> int:
    """Return the longest context of the predictions; 0 without any."""
    shapes = [shape for shape in generation.predictions if shape.cache_kind == kind]
    decoded = stage == "decode"
    return max((shape.prompt + shape.new_tokens * decoded for shape in shapes), default=0)


def _line(fit: StageFit, group: Group, predicted: int) -> list[list[Any]]:
    """Return what the fit says by context: ns, both ends for one measurement, if extrapolated.

    It goes on to what was predicted, up to twice of what was measured.
    """
    fitted = [context for _, context, _ in fit.cells]
    last = max(max(fitted), min(predicted, 2 * max(fitted)))
    first = max(min(fitted), min(cell.prompt for cell in group.cells))
    sequences = group.cells[0].batch * group.cells[0].beams
    ratio = last / first  # of equal ratios: a line over orders of magnitude has no corners
    contexts = {round(first * ratio ** (n / STEPS)) for n in range(STEPS + 1)}
    line = []
    for context in sorted({*contexts, max(fitted)}):
        time = stage_time(fit, sequences, (context, context))
        if time is not None:
            interval = time.interval
            ends = [None, None] if interval is None else [ns(interval.low), ns(interval.high)]
            line.append([context, ns(time.seconds), *ends, int(time.extrapolated)])
    return line


def _notes(
    fit: StageFit | None, cells: Sequence[GenerationCell], per_point: int, omitted: int
) -> Iterator[str]:
    if per_point > 1:
        yield f"Each point is the median of {per_point:,} neighbours."
    if omitted:
        yield _left_out(omitted)
    if fit is None and len(cells) < 2:
        yield "No line: the calls of a single shape do not say how time grows."
    elif fit is None:
        yield "No line: these shapes are too few to fit one."
    elif fit.reason:
        yield f"{fit.reason[:1].upper()}{short(fit.reason[1:])}."


def _left_out(batches: int) -> str:
    return f"{batches:,} more batches are in the table of shapes."


def _gaps(series: Sequence[dict[str, Any]]) -> Iterator[str]:
    bounded = {point[2] is not None for one_series in series for point in one_series["line"]}
    if len(bounded) > 1:
        yield "The band has gaps where its ends would be too far apart to say anything."


def _words(fit: StageFit) -> list[list[str]]:
    is_step = fit.stage == "decode" and fit.cache_kind != "none"
    unit, forward = ("sequence", "step") if is_step else ("token", "forward")
    return [
        ["fixed", _coefficient(fit.fixed, 1), f"any {forward}"],
        [f"per {unit}", _coefficient(fit.per_token, 1), ""],
        ["per context", _coefficient(fit.per_context, KILO),
         f"{KILO:,} positions that a {unit} attends to"],
    ]  # fmt: skip


def _coefficient(coefficient: Coefficient, count: int) -> str:
    value = units.time(coefficient.value * count, 3)
    interval = coefficient.interval
    if interval is None:
        return value
    return f"{value} (95 %: {units.times(interval.low * count, interval.high * count, 3)})"


def cache(generation: Generation) -> list[dict[str, Any]] | None:
    """Return the bytes that caches hold and use by their positions, a chart for each kind."""
    charts = []
    for kind in dict.fromkeys(cell.cache_kind for cell in generation.cells):
        cells = [c for c in generation.cells if c.cache_kind == kind and c.cache is not None]
        if cells:
            charts.append(_cache_chart(kind, cells))
    return charts or None


def _cache_chart(kind: str, cells: Sequence[GenerationCell]) -> dict[str, Any]:
    reasons = dict.fromkeys(c.cache.reason for c in cells if c.cache and c.cache.reason)
    groups = _groups(cells)
    left_out = len(groups) - MAX_SERIES
    notes = [short(reason) for reason in reasons]
    if left_out > 0:
        notes.append(_left_out(left_out))
    return {
        "title": short(cache_name(kind)),
        "series": [
            {
                "label": group.label,
                "points": [
                    [size.positions or cell.prompt, size.held, size.used, size.formula]
                    for cell in group.cells
                    if (size := cell.cache) is not None
                ],
            }
            for group in groups[:MAX_SERIES]
        ],
        "notes": notes,
    }


def cache_name(kind: str) -> str:
    """Return a kind of cache as a title."""
    named = {"none": "no cache", "dynamic": "dynamic cache", "static": "static cache"}
    return named.get(kind, kind)
