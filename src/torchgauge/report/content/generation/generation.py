"""A generation: first token, tokens after it, what a step consists of, how it grows, the trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torchgauge import units
from torchgauge.records.generation.cell import (
    GenerationCell,
    GenerationPrediction,
    RepeatedTime,
    StageWork,
)
from torchgauge.records.generation.generation import Generation, StageTree
from torchgauge.records.work.energy import Energy
from torchgauge.report.content.document import (
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
    Value,
    Warnings,
)
from torchgauge.report.content.findings import most_important
from torchgauge.report.content.generation import generation_words as words
from torchgauge.report.notebook import generation_charts

LABEL = 12
SHAPES = (
    Column("TTFT"),
    Column("± TTFT", title="±", priority=2, tone="faint"),
    Column("TPOT"),
    Column("± TPOT", title="±", priority=2, tone="faint"),
    Column("tokens/s", tone="strong"),
    Column("call", priority=4, tone="faint"),
    Column("J/token"),
    Column("cache", priority=1),
    Column("used", title="cache used", priority=5),
    Column("memory", priority=3),
)
PREFILL = (
    Column("forward"),
    Column("tokens/s"),
    Column("FLOPs", priority=2),
    Column("bound", priority=1),
    Column("bound by", left_aligned=True),
    Column("reached"),
)
STEP = (
    Column("forward"),
    Column("between", title="between"),
    Column("share"),
    Column("bytes", priority=2),
    Column("bound", priority=1),
    Column("bound by", left_aligned=True),
    Column("reached"),
)
PREDICTED = (
    Column("TTFT"),
    Column("± TTFT", title="±", priority=1, tone="faint"),
    Column("TPOT"),
    Column("± TPOT", title="±", priority=1, tone="faint"),
    Column("tokens/s"),
    Column("cache"),
)
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
        charts=generation_charts.generation(generation),
    )


def shapes(cells: Sequence[GenerationCell]) -> Table:
    """Return what a user waits for, by shape: first token, later ones, tokens per second."""
    rows = _rows(cells, _shape)
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
            title=name, how="measured", columns=columns, rows=_rows(cells, figures), layout="fitted"
        )
        for name, columns, figures in (("Prefill", PREFILL, _prefill), ("Decode step", STEP, _step))
    ]
    return [table for table in tables if any(row.cells for row in table.rows)]


def _rows(
    cells: Sequence[GenerationCell], figures: Callable[[GenerationCell], dict[str, Value]]
) -> list[Row]:
    """Return a row for each cell, by kind of cache and beams where these differ."""
    kinds: dict[str, list[GenerationCell]] = {}
    for cell in cells:
        kinds.setdefault(cell.kind, []).append(cell)
    rows = []
    for kind, same_kind in kinds.items():
        is_headed = len(kinds) > 1
        rows += [Row(kind, {}, 1, "strong")] * is_headed
        for cell in same_kind:
            values = {key: text for key, text in figures(cell).items() if text}
            tone: Tone = "" if cell.done else "faint"
            rows.append(Row(cell.size_label, values, 1 + is_headed, tone))
    return rows


def _shape(cell: GenerationCell) -> dict[str, Value]:
    if not cell.done:
        return {"TTFT": cell.status}
    cache, memory = cell.cache, cell.memory
    is_partly_used = cache is not None and cache.used not in (None, cache.held)
    return {
        "TTFT": _time(cell.ttft),
        "± TTFT": _half(cell.ttft),
        "TPOT": _time(cell.tpot),
        "± TPOT": _half(cell.tpot),
        "tokens/s": _rate(cell.tokens_per_second),
        "J/token": _energy(cell.energy),
        "call": _time(cell.end_to_end),
        "cache": "" if cache is None else units.size(cache.held, 3),
        "used": units.size(cache.used, 3) if cache is not None and is_partly_used else "",
        "memory": "" if memory is None else units.size(memory.peak, 3),
    }


def _energy(energy: Energy | None) -> Value:
    if energy is None:
        return ""
    value, ends = energy.per_token, energy.interval
    text = "≥ " * energy.at_least + units.energy(value, 3)
    if not value or not energy.joules or ends is None:
        return text
    half = max(ends.high - energy.joules, energy.joules - ends.low) / energy.joules
    return f"{text} ± {units.percent(half)}"


def _prefill(cell: GenerationCell) -> dict[str, Value]:
    work = cell.work_of("prefill")
    flops = None if work is None else work.flops
    return {
        "forward": _time(cell.prefill),
        "tokens/s": _rate(cell.prefill_tokens_per_second),
        "FLOPs": "" if flops is None else units.count(flops, 3),
    } | _bound(work)


def _step(cell: GenerationCell) -> dict[str, Value]:
    work, step, between = cell.work_of("decode"), cell.step, cell.between
    moved = None if work is None else work.bytes
    share = ""
    if step is not None and between is not None and (total := step.value + between.value):
        share = units.percent(between.value / total)
    return {
        "forward": _time(step),
        "between": _time(between),
        "share": share,
        "bytes": "" if moved is None else units.size(moved, 3),
    } | _bound(work)


def _bound(work: StageWork | None) -> dict[str, Value]:
    if work is None or work.lower_bound is None:
        return {}
    at_least = "≥ " * work.at_least
    return {
        "bound": units.time(work.lower_bound, 3),
        "bound by": work.bound or "",
        "reached": "" if work.reached is None else at_least + units.percent(work.reached),
    }


def _time(time: RepeatedTime | None) -> str:
    return "" if time is None else units.time(time.value, 3)


def _half(time: RepeatedTime | None) -> str:
    return "" if time is None else words.share_of(time.interval, time.value)


def _rate(rate: RepeatedTime | None) -> str:
    return "" if rate is None else words.rate(rate.value)


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
        Row(_predicted_name(prediction), _predicted(prediction), 1) for prediction in predictions
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


def _predicted(prediction: GenerationPrediction) -> dict[str, Value]:
    later = max(0, prediction.new_tokens - 1)
    seconds = prediction.ttft + later * prediction.tpot
    rate = prediction.batch * prediction.new_tokens / seconds if seconds else None
    values = {
        "TTFT": units.time(prediction.ttft, 3),
        "± TTFT": words.share_of(prediction.ttft_interval, prediction.ttft),
        "TPOT": units.time(prediction.tpot, 3),
        "± TPOT": words.share_of(prediction.tpot_interval, prediction.tpot),
        "tokens/s": words.rate(rate),
        "cache": "" if prediction.cache_bytes is None else units.size(prediction.cache_bytes, 3),
    }
    return {key: text for key, text in values.items() if text}


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
