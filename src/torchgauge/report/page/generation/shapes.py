"""Every cell as a row of a table, and by batch and prompt where they make a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torchgauge.records.generation.cell import GenerationCell, RepeatedTime
from torchgauge.records.generation.fit import GenerationPrediction
from torchgauge.records.generation.generation import Generation
from torchgauge.records.record import Interval
from torchgauge.report.page import page_tables
from torchgauge.report.page.page_shorter import short
from torchgauge.report.page.page_tables import Column

MAX_SIDE = 12  # batches or prompts of a map
FILLED = 0.5  # of a map's places, at least


class Figure(NamedTuple):
    """A figure that a map can show: of a cell, and where it can be estimated of a prediction."""

    title: str
    unit: page_tables.Unit
    measured: Callable[[GenerationCell], RepeatedTime | float | None]
    estimated: Callable[[GenerationPrediction], tuple[float | None, Interval | None]] | None = None


FIGURES = (
    Figure("time to first token", "time", lambda cell: cell.ttft,
           lambda shape: (shape.ttft, shape.ttft_interval)),
    Figure("time per token", "time", lambda cell: cell.tpot,
           lambda shape: (shape.tpot, shape.tpot_interval)),
    Figure("tokens per second", "number", lambda cell: cell.tokens_per_second,
           lambda shape: (_estimated_rate(shape), None)),
    Figure("cache held", "bytes", lambda cell: cell.cache and cell.cache.held,
           lambda shape: (shape.cache_bytes, None)),
    Figure("share of the bound, prefill", "share", lambda cell: _reached(cell, "prefill")),
    Figure("share of the bound, decode", "share", lambda cell: _reached(cell, "decode")),
    Figure("peak memory", "bytes", lambda cell: cell.memory and cell.memory.peak),
)  # fmt: skip
COLUMNS = (
    Column("size", "batch × prompt", "text"),
    Column("kind", "cache", "text"),
    Column("status", "status", "text"),
    Column("calls", "calls", "count"),
    Column("new_tokens", "new tokens", "count"),
    Column("ttft", "TTFT", "time"),
    Column("ttft_low", "95 % from", "time"),
    Column("ttft_high", "95 % to", "time"),
    Column("tpot", "TPOT", "time"),
    Column("tpot_low", "95 % from", "time"),
    Column("tpot_high", "95 % to", "time"),
    Column("end_to_end", "call", "time"),
    Column("prefill", "prefill", "time"),
    Column("step", "decode forward", "time"),
    Column("between", "between", "time"),
    Column("tokens_per_second", "tokens/s", "number"),
    Column("prefill_tokens_per_second", "prompt tokens/s", "number"),
    Column("held", "cache held", "bytes"),
    Column("used", "cache used", "bytes"),
    Column("memory", "peak memory", "bytes"),
    Column("flops", "FLOPs of a step", "count"),
    Column("bound", "step bound by", "text"),
    Column("reached", "share of its bound", "share"),
    Column("experts", "experts hit", "number"),
    Column("reason", "why", "text"),
)
TIMES = ("ttft", "tpot", "end_to_end", "prefill", "step", "between", "tokens_per_second",
         "prefill_tokens_per_second")  # fmt: skip


def _reached(cell: GenerationCell, stage: Any) -> float | None:
    work = cell.work_of(stage)
    return None if work is None else work.reached


def _estimated_rate(shape: GenerationPrediction) -> float | None:
    seconds = shape.ttft + max(shape.new_tokens - 1, 0) * shape.tpot
    return shape.batch * shape.new_tokens / seconds if seconds > 0 else None


def size(batch: int, prompt: int) -> str:
    """Return batch and prompt, short enough for a phone: "4 × 1,024"."""
    return f"{batch:,} × {prompt:,}"


def shapes(generation: Generation) -> dict[str, Any] | None:
    """Return the table of all cells and a map for each kind of cache; None without cells."""
    if not generation.cells:
        return None
    return {"maps": list(_maps(generation)), "cells": _table(generation)}


def _maps(generation: Generation) -> Iterator[dict[str, Any]]:
    """Yield the groups of cells that fill a grid, with the predictions for it."""
    groups: dict[tuple[str, int], list[GenerationCell]] = {}
    for cell in generation.cells:
        groups.setdefault((cell.cache_kind, cell.beams), []).append(cell)
    for (kind, beams), cells in groups.items():
        predictions = [
            shape for shape in generation.predictions if shape.cache_kind == kind and beams == 1
        ]
        batches = sorted({shape.batch for shape in (*cells, *predictions)})
        prompts = sorted({shape.prompt for shape in (*cells, *predictions)})
        measured = len({cell.batch for cell in cells}) * len({cell.prompt for cell in cells})
        if len(cells) < 2 or len(cells) < FILLED * measured:
            continue
        if max(len(batches), len(prompts)) > MAX_SIDE:
            continue
        entries = [*map(_entry, cells), *map(_estimate, predictions)]
        yield {
            "title": short(cache_title(kind, beams)),
            "batches": batches,
            "prompts": prompts,
            "figures": [
                [figure.title, figure.unit]
                for index, figure in enumerate(FIGURES)
                if any(entry["values"][index] is not None for entry in entries)
            ],
            "cells": _without_unknown_figures(entries),
        }


def cache_title(kind: str, beams: int) -> str:
    """Return what a group of cells has in common, as a title."""
    named = {"none": "No cache", "dynamic": "Dynamic cache", "static": "Static cache"}
    return named.get(kind, kind) + f", {beams:,} beams" * (beams > 1)


def _without_unknown_figures(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    known = [
        index
        for index in range(len(FIGURES))
        if any(entry["values"][index] is not None for entry in entries)
    ]
    return [
        {
            **entry,
            "values": [entry["values"][index] for index in known],
            "intervals": [entry["intervals"][index] for index in known],
        }
        for entry in entries
    ]


def _entry(cell: GenerationCell) -> dict[str, Any]:
    figures = [figure.measured(cell) for figure in FIGURES]
    known = [
        (figure.value, figure.interval) if isinstance(figure, RepeatedTime) else (figure, None)
        for figure in figures
    ]
    return {
        "batch": cell.batch,
        "prompt": cell.prompt,
        "status": cell.status,
        "reason": short(cell.reason),
        **_scaled(known),
    }


def _estimate(shape: GenerationPrediction) -> dict[str, Any]:
    known = [(None, None) if f.estimated is None else f.estimated(shape) for f in FIGURES]
    return {
        "batch": shape.batch,
        "prompt": shape.prompt,
        "status": "estimated",
        "reason": "extrapolated" * shape.extrapolated,
        **_scaled(known),
    }


def _scaled(known: list[tuple[float | None, Interval | None]]) -> dict[str, Any]:
    """Return values and ends of intervals, times in nanoseconds."""
    scales = [1e9 if figure.unit == "time" else 1.0 for figure in FIGURES]
    return {
        "values": [
            None if value is None else float(f"{value * scale:.6g}")
            for (value, _), scale in zip(known, scales, strict=True)
        ],
        "intervals": [
            None if interval is None else [round(interval.low * scale, 3), round(interval.high * scale, 3)]
            for (_, interval), scale in zip(known, scales, strict=True)
        ],
    }


def _table(generation: Generation) -> dict[str, Any]:
    rows = [*map(_row, generation.cells), *map(_estimated_row, generation.predictions)]
    cells = {column.key: [row.get(column.key) for row in rows] for column in COLUMNS}
    return page_tables.table("shapes", COLUMNS, cells)


def _row(cell: GenerationCell) -> dict[str, Any]:
    row: dict[str, Any] = {
        "size": size(cell.batch, cell.prompt),
        "kind": short(cell.kind),
        "status": "measured" if cell.done else cell.status,
        "calls": len(cell.timed_calls),
        "new_tokens": cell.new_tokens,
        "reason": short(cell.reason),
        "memory": None if cell.memory is None else cell.memory.peak,
    }
    for name in TIMES:
        repeated: RepeatedTime | None = getattr(cell, name)
        if repeated is not None:
            row[name] = repeated.value
            if repeated.interval is not None:
                row |= {f"{name}_low": repeated.interval.low, f"{name}_high": repeated.interval.high}
    if cell.cache is not None:
        row |= {"held": cell.cache.held, "used": cell.cache.used}
    work = cell.work_of("decode")
    if work is not None:
        row |= {"flops": work.flops, "bound": work.bound, "reached": work.reached,
                "experts": work.experts}  # fmt: skip
    return row


def _estimated_row(shape: GenerationPrediction) -> dict[str, Any]:
    cache = "no cache" if shape.cache_kind == "none" else f"{shape.cache_kind} cache"
    row: dict[str, Any] = {
        "size": size(shape.batch, shape.prompt),
        "kind": short(cache),
        "status": "estimated",
        "new_tokens": shape.new_tokens,
        "ttft": shape.ttft,
        "tpot": shape.tpot,
        "tokens_per_second": _estimated_rate(shape),
        "held": shape.cache_bytes,
        "reason": "extrapolated" * shape.extrapolated,
    }
    for name in ("ttft", "tpot"):
        interval: Interval | None = getattr(shape, f"{name}_interval")
        if interval is not None:
            row |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    return row
