"""How prefill, decode steps and the cache grow: points by context, and the fits' lines."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from torchgauge import units
from torchgauge.records.generation.call import GenerationCall
from torchgauge.records.generation.cell import GenerationCell
from torchgauge.records.generation.fit import Coefficient, StageFit
from torchgauge.records.generation.generation import Generation
from torchgauge.report.content.generation_words import KILO
from torchgauge.report.page.generation.shapes import cache_title
from torchgauge.report.page.page_shorter import short

MAX_POINTS = 1_200  # of a chart; where there are more, each is the median of several
MAX_SERIES = 8  # of a chart: as many as there are colours
STEPS = 32  # in which a line and its band are drawn
TITLES = {"prefill": "Prefill", "decode": "Decode step"}
AXES = {"prefill": "tokens of a prompt", "decode": "context, positions"}

Stage = Literal["prefill", "decode"]


class Point(NamedTuple):
    """Seconds of a prefill or a decode step, by the positions of its prompt or its context."""

    context: float
    seconds: float


def growth(generation: Generation) -> list[dict[str, Any]] | None:
    """Return a chart of prefill and one of decode steps for each kind of cache."""
    charts = [
        chart
        for kind in dict.fromkeys(cell.cache_kind for cell in generation.cells)
        for stage in ("prefill", "decode")
        if (chart := _chart(generation, stage, kind)) is not None
    ]
    return charts or None


def _chart(generation: Generation, stage: Any, kind: str) -> dict[str, Any] | None:
    cells = [cell for cell in generation.cells if cell.cache_kind == kind and cell.timed_calls]
    groups = _by_sequences(cells)
    total = sum(
        len(points(cell, stage)) for _, group in groups[:MAX_SERIES] for cell in group
    )
    prompts = {cell.prompt for cell in cells}
    if not total or (stage == "prefill" and len(prompts) < 2):
        return None
    per_point = math.ceil(total / MAX_POINTS)
    fit = generation.fit(stage, kind)
    drawn = groups[:MAX_SERIES]
    farthest = _farthest(generation, stage, kind, drawn)
    return {
        "stage": stage,
        "title": short(f"{TITLES[stage]}: {cache_title(kind, 1)}"),
        "axis": AXES[stage],
        "series": [
            {
                "label": label,
                "points": [
                    [round(point.context), round(point.seconds * 1e9)]
                    for cell in group
                    for point in binned(points(cell, stage), per_point)
                ],
                "line": [] if fit is None else _line(fit, group, farthest),
            }
            for label, group in drawn
        ],
        "measured": max(_contexts(cell, stage)[1] for _, group in drawn for cell in group),
        "notes": list(_notes(fit, cells, per_point, len(groups) - len(drawn))),
        "words": [] if fit is None else _words(fit),
    }


def _by_sequences(cells: Sequence[GenerationCell]) -> list[tuple[str, list[GenerationCell]]]:
    """Return the cells by batch and beams, the smallest first, each group with its label."""
    groups: dict[tuple[int, int], list[GenerationCell]] = {}
    for cell in sorted(cells, key=lambda cell: (cell.batch, cell.beams, cell.prompt)):
        groups.setdefault((cell.batch, cell.beams), []).append(cell)
    return [
        (f"batch {batch:,}" + f", {beams:,} beams" * (beams > 1), group)
        for (batch, beams), group in groups.items()
    ]


def points(cell: GenerationCell, stage: Stage) -> list[Point]:
    """Return the prefill of every timed call, or each of its decode steps, by context.

    A decode step ends with the begin of the next one, the last with the call.
    """
    return [point for call in cell.timed_calls for point in _points_of(call, stage)]


def _points_of(call: GenerationCall, stage: Stage) -> Iterator[Point]:
    if stage == "prefill":
        if call.prefill is not None:
            yield Point(call.prompt, call.prefill)
        return
    forwards, steps = call.forwards, call.forwards.of("decode")
    ends = [*(forwards.begin[index] for index in steps[1:]), call.duration]
    for index, end in zip(steps, ends, strict=True):
        context = forwards.cached[index] + forwards.tokens[index]
        yield Point(context, end - forwards.begin[index])


def binned(measured: Sequence[Point], per_point: int) -> list[Point]:
    """Return the medians of `per_point` neighbours in context."""
    ordered = sorted(measured)
    return [
        Point(statistics.median(point.context for point in group),
              statistics.median(point.seconds for point in group))
        for start in range(0, len(ordered), per_point)
        if (group := ordered[start : start + per_point])
    ]  # fmt: skip


def _contexts(cell: GenerationCell, stage: Stage) -> tuple[int, int]:
    if stage == "prefill":
        return cell.prompt, cell.prompt
    return cell.prompt + 1, cell.prompt + max(cell.new_tokens - 1, 1)


def _farthest(
    generation: Generation, stage: Stage, kind: str, drawn: Sequence[tuple[str, Any]]
) -> int:
    """Return up to where lines are drawn: what was measured, and twice that at most if asked for."""
    measured = max(_contexts(cell, stage)[1] for _, group in drawn for cell in group)
    asked = [
        shape.prompt + shape.new_tokens * (stage == "decode")
        for shape in generation.predictions
        if shape.cache_kind == kind
    ]
    return min(max([measured, *asked]), 2 * measured)


def _line(fit: StageFit, group: Sequence[GenerationCell], farthest: int) -> list[list[Any]]:
    first = min(_contexts(cell, fit.stage)[0] for cell in group)
    sequences = group[0].batch * group[0].beams
    ratio = farthest / first  # of equal ratios: a line over orders of magnitude has no corners
    contexts = sorted({round(first * ratio ** (n / STEPS)) for n in range(STEPS + 1)})
    return [[context, *_fitted(fit, sequences, context)] for context in contexts]


def _fitted(fit: StageFit, sequences: int, context: int) -> tuple[Any, Any, Any]:
    """Return a fit's nanoseconds at a context and both ends of the band for one measurement."""
    tokens = sequences * (context if fit.stage == "prefill" else 1)
    pairs = tokens * (context / 2 if fit.stage == "prefill" else context)
    terms = (1.0, float(tokens), float(pairs))
    values = (fit.fixed.value, fit.per_token.value, fit.per_context.value)
    seconds = sum(map(float.__mul__, values, terms))
    if fit.quantile is None or not fit.covariance:
        return round(seconds * 1e9), None, None
    variance = sum(
        terms[row] * terms[column] * fit.covariance[row][column]
        for row in range(3)
        for column in range(3)
    )
    reach = fit.quantile * math.sqrt(max(variance, 0.0) + (fit.spread * seconds) ** 2)
    ends = (max(seconds - reach, 0.0), seconds + reach)
    return round(seconds * 1e9), round(ends[0] * 1e9), round(ends[1] * 1e9)


def _notes(
    fit: StageFit | None, cells: Sequence[GenerationCell], per_point: int, omitted: int
) -> Iterator[str]:
    if per_point > 1:
        yield f"Each point is the median of {per_point:,} neighbours."
    if omitted:
        yield f"{omitted:,} more batches are in the table of shapes."
    if fit is None and len(cells) < 2:
        yield "No line: the calls of a single shape do not say how time grows."
    elif fit is None:
        yield "No line: these shapes are too few to fit one."
    elif fit.reason:
        yield fit.reason


def _words(fit: StageFit) -> list[list[str]]:
    is_step = fit.stage == "decode"
    unit, forward = ("sequence", "step") if is_step else ("token", "prefill")
    return [
        ["fixed", *_coefficient(fit.fixed, 1), f"any {forward}"],
        [f"per {unit}", *_coefficient(fit.per_token, 1), ""],
        ["per context", *_coefficient(fit.per_context, KILO),
         f"{KILO:,} positions that a {unit} attends to"],
    ]  # fmt: skip


def _coefficient(coefficient: Coefficient, count: int) -> list[str]:
    value = units.time(coefficient.value * count, 3)
    interval = coefficient.interval
    if interval is None:
        return [value]
    return [f"{value} (95 %: {units.times(interval.low * count, interval.high * count, 3)})"]


def cache(generation: Generation) -> list[dict[str, Any]] | None:
    """Return the bytes that caches hold and use by their positions, a chart for each kind."""
    charts = []
    for kind in dict.fromkeys(cell.cache_kind for cell in generation.cells):
        cells = [c for c in generation.cells if c.cache_kind == kind and c.cache is not None]
        groups = _by_sequences(cells)[:MAX_SERIES]
        if groups:
            charts.append(_cache_chart(kind, cells, groups))
    return charts or None


def _cache_chart(
    kind: str, cells: Sequence[GenerationCell], groups: Sequence[tuple[str, Any]]
) -> dict[str, Any]:
    reasons = dict.fromkeys(c.cache.reason for c in cells if c.cache and c.cache.reason)
    return {
        "title": short(cache_title(kind, 1)),
        "series": [
            {
                "label": label,
                "points": [
                    [size.positions or cell.prompt, size.held, size.used, size.formula]
                    for cell in group
                    if (size := cell.cache) is not None
                ],
            }
            for label, group in groups
        ],
        "notes": [short(reason) for reason in reasons],
    }
