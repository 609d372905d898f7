"""A generation: first token, tokens after it, what a step consists of, how it grows, the trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from torchgauge import units
from torchgauge.records.generation.cell import GenerationCell, GenerationPrediction, RepeatedTime
from torchgauge.records.generation.generation import Generation, StageTree
from torchgauge.records.work.energy import Energy
from torchgauge.report.content.document import (
    AtLeast,
    Block,
    Column,
    Document,
    Facts,
    Heading,
    Note,
    Options,
    Row,
    Table,
    Tone,
    Tree,
    Warnings,
)
from torchgauge.report.content.document import cells as row_cells
from torchgauge.report.content.findings import most_important
from torchgauge.report.content.generation import generation_words as words
from torchgauge.report.notebook import serving_charts

LABEL = 12


def _time(name: str) -> Callable[[GenerationCell], float | None]:
    """Return what gets a time of a cell."""
    return lambda cell: getattr(getattr(cell, name), "value", None)


def _half(name: str) -> Callable[[GenerationCell], str]:
    """Return what formats half of the interval of a time of a cell."""

    def text(cell: GenerationCell) -> str:
        time: RepeatedTime | None = getattr(cell, name)
        return "" if time is None else words.share_of(time.interval, time.value)

    return text


def _rate(rate: RepeatedTime | None) -> str:
    return "" if rate is None else words.rate(rate.value)


def _used(cell: GenerationCell) -> int | None:
    cache = cell.cache
    return None if cache is None or cache.used == cache.held else cache.used


def _energy(energy: Energy | None) -> str:
    if energy is None:
        return ""
    value, ends = energy.per_token, energy.interval
    text = "≥ " * energy.at_least + units.energy(value, 3)
    if not value or not energy.joules or ends is None:
        return text
    half = max(ends.high - energy.joules, energy.joules - ends.low) / energy.joules
    return f"{text} ± {units.percent(half)}"


def _between_share(cell: GenerationCell) -> str:
    step, between = cell.step, cell.between
    if step is not None and between is not None and (total := step.value + between.value):
        return units.percent(between.value / total)
    return ""


def _work(stage: Literal["prefill", "decode"], name: str) -> Callable[[GenerationCell], Any]:
    """Return what gets a figure of a stage's work."""
    return lambda cell: getattr(cell.work_of(stage), name, None)


def _bound(stage: Literal["prefill", "decode"]) -> tuple[Column, ...]:
    """Return the columns of a stage's lower bound."""

    def reached(cell: GenerationCell) -> float | None:
        work = cell.work_of(stage)
        share = None if work is None else work.reached
        return share if share is None or not work or not work.at_least else AtLeast(share)

    return (
        Column("bound", unit="time", get=_work(stage, "lower_bound"), priority=1),
        Column("bound by", get=_work(stage, "bound"), left_aligned=True),
        Column("reached", unit="percent", get=reached),
    )


def _flops(cell: GenerationCell) -> str:
    work = cell.work_of("prefill")
    return "" if work is None or work.flops is None else units.count(work.flops, 3)


SHAPES = (
    Column("TTFT", unit="time", get=_time("ttft")),
    Column("± TTFT", "±", priority=2, tone="faint", get=_half("ttft")),
    Column("TPOT", unit="time", get=_time("tpot")),
    Column("± TPOT", "±", priority=2, tone="faint", get=_half("tpot")),
    Column("tokens/s", tone="strong", get=lambda cell: _rate(cell.tokens_per_second)),
    Column("call", unit="time", get=_time("end_to_end"), priority=4, tone="faint"),
    Column("J/token", get=lambda cell: _energy(cell.energy)),
    Column("cache", unit="bytes", get=lambda cell: cell.cache and cell.cache.held, priority=1),
    Column("used", "cache used", "bytes", _used, priority=5),
    Column("memory", unit="bytes", get=lambda cell: cell.memory and cell.memory.peak, priority=3),
)
PREFILL = (
    Column("forward", unit="time", get=_time("prefill")),
    Column("tokens/s", get=lambda cell: _rate(cell.prefill_tokens_per_second)),
    Column("FLOPs", priority=2, get=_flops),
    *_bound("prefill"),
)
STEP = (
    Column("forward", unit="time", get=_time("step")),
    Column("between", unit="time", get=_time("between")),
    Column("share", get=_between_share),
    Column("bytes", unit="bytes", get=_work("decode", "bytes"), priority=2),
    *_bound("decode"),
)
PREDICTED = (
    Column("TTFT", unit="time", get=lambda shape: shape.ttft),
    Column("± TTFT", "±", priority=1, tone="faint",
           get=lambda shape: words.share_of(shape.ttft_interval, shape.ttft)),
    Column("TPOT", unit="time", get=lambda shape: shape.tpot),
    Column("± TPOT", "±", priority=1, tone="faint",
           get=lambda shape: words.share_of(shape.tpot_interval, shape.tpot)),
    Column("tokens/s", get=lambda shape: words.rate(shape.tokens_per_second)),
    Column("cache", unit="bytes", get=lambda shape: shape.cache_bytes),
)  # fmt: skip
STAGES = {"prefill": "Prefill", "decode": "Decode step"}


def title(generation: Generation) -> str:
    """Return the model's name."""
    return generation.target.name


def document(generation: Generation, options: Options) -> Document:
    """Return the figures by shape, the stages, how they grow, memory, and the trees."""
    blocks: list[Block] = [shapes(generation.cells)] if generation.cells else []
    blocks += stages(generation.done)
    blocks += _growth(generation)
    for heading, pairs in (
        ("Memory", words.memory(generation)),
        ("Cache", words.caches(generation)),
        ("Assistant", _drafts(generation)),
        ("Energy", words.energies(generation)),
        ("Without figures", _reasons(generation)),
    ):
        if listed := list(pairs):
            blocks.append(Facts(listed, heading, label=LABEL))
    for tree in generation.trees:
        blocks += [_tree_heading(generation, tree), Tree(tree.tree, options)]
    if generation.all_warnings:
        heading = "Warnings" if generation.complete else "Failed and warnings"
        blocks.append(Warnings(generation.all_warnings, heading))
    if generation.interrupted:
        blocks.append(Note("Interrupted before its end.", "doubtful"))
    short_pairs = list(words.in_short(generation))
    in_short = [Facts(short_pairs, "In short")] if short_pairs else []
    return Document(
        title(generation),
        "generation, watched" if generation.watched else "generation",
        facts=Facts(words.facts(generation), label=LABEL),
        blocks=blocks,
        conclusion=[*in_short, *most_important(generation)],
        names=(title(generation),),
        charts=serving_charts.generation(generation),
    )


def shapes(cells: Sequence[GenerationCell]) -> Table:
    """Return what a user waits for, by shape: first token, later ones, tokens per second."""
    rows = _rows(SHAPES, cells)
    notes = ["TTFT: time to the first token. TPOT: time per token after it."]
    if any("± TTFT" in row.cells or "± TPOT" in row.cells for row in rows):
        notes[0] += " ±: half of a 95 % interval."
    return Table(
        title="Shapes", how="measured", columns=SHAPES, rows=rows, layout="fitted", notes=notes
    )


def stages(cells: Sequence[GenerationCell]) -> list[Block]:
    """Return what prefill and a decode step consist of, by shape, beside their lower bounds."""
    tables = [
        Table(
            title=name, how="measured", columns=columns, rows=_rows(columns, cells), layout="fitted"
        )
        for name, columns in (("Prefill", PREFILL), ("Decode step", STEP))
    ]
    return [table for table in tables if any(row.cells for row in table.rows)]


def _rows(columns: Sequence[Column], cells: Sequence[GenerationCell]) -> list[Row]:
    """Return a row for each cell, by kind of cache and beams where these differ."""
    kinds: dict[str, list[GenerationCell]] = {}
    for cell in cells:
        kinds.setdefault(cell.kind, []).append(cell)
    rows = []
    for kind, same_kind in kinds.items():
        is_headed = len(kinds) > 1
        rows += [Row(kind, {}, 1, "strong")] * is_headed
        for cell in same_kind:
            values = row_cells(columns, cell) if cell.done else {"TTFT": cell.status}
            tone: Tone = "" if cell.done else "faint"
            rows.append(Row(cell.size_label, values, 1 + is_headed, tone))
    return rows


def _growth(generation: Generation) -> Iterator[Block]:
    """Yield how prefill and step grow, in words, and what that says of other shapes."""
    has_kinds = len({fit.cache_kind for fit in generation.fits}) > 1
    pairs = [
        (STAGES[fit.stage] + f", {fit.cache_kind}" * has_kinds, words.fit(fit))
        for fit in generation.fits
    ]
    if pairs:
        yield Facts(pairs, "How they grow", "estimated", label=LABEL)
    if generation.predictions:
        yield _predictions(generation.predictions)


def _predictions(predictions: Sequence[GenerationPrediction]) -> Table:
    rows = [
        Row(_predicted_name(prediction), row_cells(PREDICTED, prediction), 1)
        for prediction in predictions
    ]
    notes = ["± is half of the interval that holds a measurement in 95 % of cases."]
    outside = [row.name for row, p in zip(rows, predictions, strict=True) if p.extrapolated]
    notes += [f"Outside of what was measured: {'; '.join(map(str, outside))}."] * bool(outside)
    return Table(
        title="Predicted", how="estimated", columns=PREDICTED, rows=rows, layout="fitted",
        notes=notes[not any("± TTFT" in row.cells for row in rows) :],
    )  # fmt: skip


def _predicted_name(prediction: GenerationPrediction) -> str:
    cache = "" if prediction.cache_kind == "dynamic" else f", {prediction.cache_kind} cache"
    return f"batch {prediction.batch}, prompt {prediction.prompt:,}{cache}"


def _drafts(generation: Generation) -> list[tuple[str, str]]:
    drafts = [(words.name(generation, cell), words.drafts(cell)) for cell in generation.done]
    return [(label, text) for label, text in drafts if text]


def _reasons(generation: Generation) -> list[tuple[str, str]]:
    ended = [cell for cell in generation.cells if not cell.done and cell.reason]
    return [(words.name(generation, cell), cell.reason) for cell in ended]


def _tree_heading(generation: Generation, tree: StageTree) -> Heading:
    after = f" after {tree.cached:,} positions" if tree.cached else ""
    cells = generation.cells[tree.cell : tree.cell + 1]
    return Heading(STAGES[tree.stage] + after, "".join(words.name(generation, c) for c in cells))
