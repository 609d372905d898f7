"""Every cell as a row of a table, and by batch and prompt where they make a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from torchgauge.analyze.generation.stage_points import fitted_cells
from torchgauge.records.generation.cell import GenerationCell, GenerationPrediction, RepeatedTime
from torchgauge.records.generation.generation import Generation
from torchgauge.records.record import Interval
from torchgauge.report.content.document import Column, Unit
from torchgauge.report.page import page_tables
from torchgauge.report.page.page_shorter import short

MAX_SIDE = 12  # batches or prompts of a map
FILLED = 0.5  # of a map's places, at least


class Amount(NamedTuple):
    """A figure of a shape in SI units; None is unknown."""

    value: float | None = None
    interval: Interval | None = None


class Figure(NamedTuple):
    """A figure that a map shows: of a cell, and of a prediction where it can be estimated."""

    title: str
    unit: Unit
    measured: Callable[[GenerationCell], Amount]
    estimated: Callable[[GenerationPrediction], Amount] = lambda _: Amount()


def _repeated(repeated: RepeatedTime | None) -> Amount:
    return Amount() if repeated is None else Amount(repeated.value, repeated.interval)


def _reached(cell: GenerationCell, stage: Literal["prefill", "decode"]) -> Amount:
    work = cell.work_of(stage)
    return Amount(None if work is None else work.reached)


FIGURES = (
    Figure("time to first token", "time", lambda cell: _repeated(cell.ttft),
           lambda shape: Amount(shape.ttft, shape.ttft_interval)),
    Figure("time per token", "time", lambda cell: _repeated(cell.tpot),
           lambda shape: Amount(shape.tpot, shape.tpot_interval)),
    Figure("tokens per second", "number", lambda cell: _repeated(cell.tokens_per_second),
           lambda shape: Amount(_estimated_rate(shape))),
    Figure("cache held", "bytes", lambda cell: Amount(cell.cache.held if cell.cache else None),
           lambda shape: Amount(shape.cache_bytes)),
    Figure("share of the bound, prefill", "share", lambda cell: _reached(cell, "prefill")),
    Figure("share of the bound, decode", "share", lambda cell: _reached(cell, "decode")),
    Figure("peak memory", "bytes", lambda cell: Amount(cell.memory.peak if cell.memory else None)),
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
    Column("energy", "J/token", "number"),
    Column("flops", "FLOPs of a step", "count"),
    Column("bound", "step bound by", "text"),
    Column("reached", "share of its bound", "share"),
    Column("experts", "experts hit", "number"),
    Column("reason", "why", "text"),
)
TIMES = ("ttft", "tpot", "end_to_end", "prefill", "step", "between", "tokens_per_second",
         "prefill_tokens_per_second")  # fmt: skip


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
    groups: dict[str, list[GenerationCell]] = {}
    for cell in generation.cells:
        groups.setdefault(cell.kind, []).append(cell)
    for kind, cells in groups.items():
        predictions = [
            shape for shape in generation.predictions if _kind(generation, shape) == kind
        ]
        entries = [*map(_entry, cells), *map(_estimate, predictions)]
        if _is_grid(cells, entries):
            yield _map(f"{kind[:1].upper()}{kind[1:]}", entries)


def _is_grid(cells: Sequence[GenerationCell], entries: Sequence[dict[str, Any]]) -> bool:
    """Whether cells of different sizes fill a map well enough, and it is not too large."""
    sizes = {(cell.batch, cell.prompt) for cell in cells}
    places = len({batch for batch, _ in sizes}) * len({prompt for _, prompt in sizes})
    sides = [len({entry[name] for entry in entries}) for name in ("batch", "prompt")]
    is_filled = len(sizes) == len(cells) >= max(2, FILLED * places)
    return is_filled and max(sides) <= MAX_SIDE


def _map(title: str, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a map without the figures that are unknown in all of it."""
    shown_indices = [
        index
        for index in range(len(FIGURES))
        if any(entry["values"][index] is not None for entry in entries)
    ]
    chosen = [
        {
            **entry,
            **{name: [entry[name][i] for i in shown_indices] for name in ("values", "intervals")},
        }
        for entry in entries
    ]
    return {
        "title": short(title),
        "batches": sorted({entry["batch"] for entry in entries}),
        "prompts": sorted({entry["prompt"] for entry in entries}),
        "figures": [[FIGURES[index].title, FIGURES[index].unit] for index in shown_indices],
        "cells": chosen,
    }


def _kind(generation: Generation, shape: GenerationPrediction) -> str:
    """Return the kind of the cells that a prediction is made from."""
    fitted = fitted_cells(generation.cells, shape.cache_kind)
    return fitted[0].kind if fitted else f"{shape.cache_kind} cache"


def _entry(cell: GenerationCell) -> dict[str, Any]:
    return {
        "batch": cell.batch,
        "prompt": cell.prompt,
        "status": cell.status,
        "reason": short(cell.reason),
        **_scaled([figure.measured(cell) for figure in FIGURES]),
    }


def _estimate(shape: GenerationPrediction) -> dict[str, Any]:
    return {
        "batch": shape.batch,
        "prompt": shape.prompt,
        "status": "estimated",
        "reason": "extrapolated" * shape.extrapolated,
        **_scaled([figure.estimated(shape) for figure in FIGURES]),
    }


def _scaled(amounts: Sequence[Amount]) -> dict[str, Any]:
    """Return values and ends of intervals, times in nanoseconds."""
    values: list[float | None] = []
    intervals: list[list[float] | None] = []
    for figure, (value, interval) in zip(FIGURES, amounts, strict=True):
        scale = 1e9 if figure.unit == "time" else 1.0
        values.append(None if value is None else float(f"{value * scale:.6g}"))
        ends = None if interval is None else (interval.low, interval.high)
        intervals.append(ends and [float(f"{end * scale:.6g}") for end in ends])
    return {"values": values, "intervals": intervals}


def _table(generation: Generation) -> dict[str, Any]:
    rows = [_row(cell) for cell in generation.cells]
    rows += [_estimated_row(_kind(generation, shape), shape) for shape in generation.predictions]
    return page_tables.records_table("shapes", COLUMNS, rows)


def _row(cell: GenerationCell) -> dict[str, Any]:
    row: dict[str, Any] = {
        "size": size(cell.batch, cell.prompt),
        "kind": short(cell.kind),
        "status": "measured" if cell.done else cell.status,
        "calls": len(cell.timed_calls),
        "new_tokens": cell.new_tokens,
        "reason": short(cell.reason),
        "memory": None if cell.memory is None else cell.memory.peak,
        "energy": None if cell.energy is None else cell.energy.per_token,
    }
    for name in TIMES:
        repeated: RepeatedTime | None = getattr(cell, name)
        if repeated is not None:
            row[name] = repeated.value
            if repeated.interval is not None:
                row |= {
                    f"{name}_low": repeated.interval.low,
                    f"{name}_high": repeated.interval.high,
                }
    if cell.cache is not None:
        row |= {"held": cell.cache.held, "used": cell.cache.used}
    work = cell.work_of("decode")
    if work is not None:
        row |= {"flops": work.flops, "bound": work.bound, "reached": work.reached,
                "experts": work.experts}  # fmt: skip
    return row


def _estimated_row(kind: str, shape: GenerationPrediction) -> dict[str, Any]:
    row: dict[str, Any] = {
        "size": size(shape.batch, shape.prompt),
        "kind": short(kind),
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
