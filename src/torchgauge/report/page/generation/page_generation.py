"""The page of a generation: first the headline shape, then all of them, and two trees.

Times are whole nanoseconds, sizes bytes; None is unknown.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from torchgauge import units
from torchgauge.analyze.generation.cells import decode_steps
from torchgauge.analyze.generation.predictions import stage_time
from torchgauge.analyze.generation.stage_points import Stage, fitted_cells
from torchgauge.analyze.work.roof_quality import description
from torchgauge.records.generation.call import GenerationCall
from torchgauge.records.generation.cell import Coefficient, GenerationCell, RepeatedTime, StageFit
from torchgauge.records.generation.generation import Generation, StageTree
from torchgauge.report.content.findings import findings_of
from torchgauge.report.content.generation import generation_words as words
from torchgauge.report.content.generation.generation_words import KILO
from torchgauge.report.page import page_series as page_method
from torchgauge.report.page import page_tables, page_tree
from torchgauge.report.page.generation import shapes
from torchgauge.report.page.page_document import (
    Choice,
    Option,
    bar,
    figure,
    finding_entry,
    first_screen,
)
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


FEWEST_CALLS = 3  # for an interval
TREES = {"prefill": "prefill", "decode": "decode step"}
# Where a finding is detailed, by its id; elsewhere with the shapes.
VIEWS = {
    "attention-growth": "growth",
    "between-forwards": "calls",
    "beyond-window": "cache",
    "prompt-recomputed": "calls",
    "slow-assistant": "calls",
    "unused-cache": "cache",
}
WORDS = (
    ["prefill", "the forwards that compute the prompt's positions, an encoder's with them", ""],
    ["decode step", "a forward after the first token, with the time until the next one begins", ""],
    ["TTFT", "time to the first token: from the begin of the call until it was chosen", ""],
    ["TPOT", "time per token after the first: the rest of the call over its other tokens", ""],
    ["between forwards", "choosing tokens, rules for stopping, Python", ""],
    ["context", "the positions that a token attends to, its own with them", ""],
    ["cache held", "bytes of all the cache's memory, each storage once", ""],
    ["cache used", "bytes of the positions that hold tokens, and of states without positions", ""],
)  # fmt: skip


def title(generation: Generation) -> str:
    """Return the page's title."""
    return f"Generation of {generation.target.name}"


def overview(generation: Generation) -> dict[str, Any]:
    """Return the first screen: the headline shape's figures, findings and warnings."""
    return first_screen(
        _facts(generation),
        _figures(generation),
        (
            finding_entry(finding, VIEWS.get(finding.id, "shapes"))
            for finding in findings_of(generation)
        ),
        generation.all_warnings,
        created=generation.environment.created,
        complete=generation.complete,
        interrupted=generation.interrupted,
    )


def headline(generation: Generation) -> GenerationCell | None:
    """Return the cell whose figures stand first; None where none was measured."""
    return next(iter(generation.done), None)


def _facts(generation: Generation) -> list[list[str]]:
    cell = headline(generation)
    facts = [[label, short(text), ""] for label, text in words.facts(generation)]
    if generation.watched:
        facts.append(["calls", "those of a program", "watched"])
    if generation.largest_batch is not None:
        text = words.largest_batch(generation.largest_batch)
        facts.append(["largest batch", text, ""])
    if cell is not None:
        calls = f"{len(cell.timed_calls):,} call{'s' * (len(cell.timed_calls) != 1)}"
        facts.append(["figures of", cell.label, f"{cell.new_tokens:,} new tokens, {calls}"])
    return facts


def _figures(generation: Generation) -> list[dict[str, str]]:
    cell = headline(generation)
    if cell is None:
        return []
    cards = [
        _time_card("time to first token", cell.ttft, "no token was made"),
        _time_card("time per token", cell.tpot, "of two tokens or more"),
        _rate_card("tokens per second", cell.tokens_per_second, shape=""),
    ]
    fastest = max(
        (other for other in generation.done if other.tokens_per_second is not None),
        key=lambda other: other.tokens_per_second.value,  # type: ignore[union-attr]
        default=None,
    )
    if fastest is not None and fastest is not cell:
        cards.append(_rate_card("most tokens per second", fastest.tokens_per_second, fastest.label))
    if cell.cache is not None:
        used = cell.cache.used
        note = "layout not known" if used is None else f"{units.size(used, 3)} used"
        cards.append(figure("cache held", units.size(cell.cache.held), note, "measured", "cache"))
    work = cell.work_of("decode")
    if work is not None and work.reached is not None:
        note = f"a step takes at least {units.time(work.lower_bound, 3)}, bound by {work.bound}"
        reached = units.percent(work.reached)
        cards.append(figure("share of the bound, decode", reached, note, "estimated", "shapes"))
    return cards


def _time_card(label: str, repeated: RepeatedTime | None, absent: str) -> dict[str, str]:
    if repeated is None:
        return figure(label, units.UNKNOWN, absent, "")
    interval = repeated.interval
    note = (
        f"95 %: {units.times(interval.low, interval.high, 3)}"
        if interval is not None
        else no_interval(repeated)
    )
    return figure(label, units.time(repeated.value), note, repeated.how, "growth")


def _rate_card(label: str, repeated: RepeatedTime | None, shape: str) -> dict[str, str]:
    if repeated is None:
        return figure(label, units.UNKNOWN, "not measured", "", "shapes")
    note = shape or "of all prompts, prefill included"
    return figure(label, units.rate(repeated.value, "tokens", 3), note, repeated.how, "shapes")


def no_interval(repeated: RepeatedTime) -> str:
    """Say why a figure has no interval."""
    if repeated.calls < FEWEST_CALLS:
        calls = f"{repeated.calls:,} call{'s' * (repeated.calls != 1)}"
        return f"of {calls}: no interval from fewer than {FEWEST_CALLS}"
    return f"of {repeated.calls:,} calls, no interval"


def calls(generation: Generation) -> dict[str, Any] | None:
    """Return the parts of each cell's middle call; None where no call is known."""
    has_kinds = len({cell.kind for cell in generation.cells}) > 1
    is_assisted = generation.assistant is not None
    rows = []
    for cell in generation.cells:
        if (call := words.middle_call(cell)) is not None:
            name = shapes.size(cell.batch, cell.prompt) + f", {cell.kind}" * has_kinds
            row = _call_row(short(name.removesuffix(" cache")), call)
            rows.append({**row, "more": row["more"][: 1 + is_assisted]})
    if not rows:
        return None
    return {
        "parts": [*words.FORWARDS.values(), words.BETWEEN],
        "more": ["new tokens", "tokens a step"][: 1 + is_assisted],
        "whole": "call",
        "note": "Of several calls of a shape, the one of median duration: its parts add up to it.",
        "rows": rows,
    }


def _call_row(name: str, call: GenerationCall) -> dict[str, Any]:
    parts = words.call_parts(call)
    ended = "Ctrl-C" if call.interrupted else call.error
    return bar(
        name,
        ns(call.duration),
        (ns(parts.get(part, 0.0)) for part in (*words.FORWARDS.values(), words.BETWEEN)),
        [f"{call.new_tokens:,}", _tokens_a_step(call)],
        f"ended by {ended}" if ended else "",
    )


def _tokens_a_step(call: GenerationCall) -> str:
    emitted = call.emitted
    return f"{statistics.mean(emitted):.2f}" if emitted else "–"


def choice(generation: Generation) -> Choice:
    """Return the trees of a prefill and a decode step, one shown at a time."""
    options = [
        Option(TREES[stage.stage], _tree_parts(generation, stage)) for stage in generation.trees
    ]
    return Choice("Forward", options or [Option("", {})], view="tree")


def _tree_parts(generation: Generation, stage: StageTree) -> dict[str, Any]:
    cell = generation.cells[stage.cell] if stage.cell < len(generation.cells) else None
    shape = "" if cell is None else f", {cell.label}"
    context = f", {stage.cached:,} positions in the cache" if stage.cached else ""
    note = f"One {TREES[stage.stage]}{shape}{context}."
    tables = page_tables.all_tables(stage.tree, generation.roofs)
    return {
        "tree": {**page_tree.columns(stage.tree), "note": note},
        "tables": [{**table, "note": note} for table in tables] or None,
    }


def method(generation: Generation) -> dict[str, Any]:
    """Return what the words mean, and how the figures were obtained."""
    parts: list[list[Any]] = [
        ["Generation", [*WORDS]],
        ["How a figure is known", [*page_method.KINDS]],
        ["Calls", list(_call_facts(generation))],
    ]
    parts += [
        [f"Tree of a {TREES[stage.stage]}", page_method.tree_facts(stage.tree)]
        for stage in generation.trees
    ]
    return {"parts": [part for part in parts if part[1]], "figures": []}


def _call_facts(generation: Generation) -> Iterable[list[str]]:
    warmup = max((cell.warmup for cell in generation.cells), default=0)
    yield ["intervals", "Student's t on the logarithms of calls", "none below three calls"]
    yield ["warm-up", f"{warmup:,} call{'s' * (warmup != 1)} a shape", "in no figure"]
    if generation.overhead is not None:
        yield ["watching", units.time(generation.overhead, 3), "added to each forward"]
    if generation.roofs is not None:
        yield ["roofs", description(generation.roofs), generation.roofs.method]
    for fit in generation.fits:
        spread = f"cells lie {units.percent(fit.spread)} around the line"
        yield [f"fit of {fit.stage}", f"{len(fit.cells):,} shapes, {fit.cache_kind} cache", spread]


PARTS = {
    "overview": overview,
    "shapes": shapes.shapes,
    "growth": growth,
    "cache": cache,
    "calls": calls,
    "method": method,
    "environment": page_method.environment,
}
