"""Every cell as a row of a table, and by batch and prompt where they make a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from torchgauge.analyze.generation.stage_points import fitted_cells
from torchgauge.records.generation.cell import GenerationCell, GenerationPrediction, RepeatedTime
from torchgauge.records.generation.generation import Generation
from torchgauge.records.record import Interval
from torchgauge.report.content.document import Column, Unit
from torchgauge.report.page import page_tables
from torchgauge.report.page.page_shorter import short

MAX_SIDE = 12  # batches or prompts of a map
ENDS = {"low": "95 % from", "high": "95 % to"}
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


def _step(name: str) -> Callable[[GenerationCell], Amount]:
    return lambda cell: Amount(getattr(cell.work_of("decode"), name, None))


FIGURES = (
    Figure("time to first token", "time", lambda cell: _repeated(cell.ttft),
           lambda shape: Amount(shape.ttft, shape.ttft_interval)),
    Figure("time per token", "time", lambda cell: _repeated(cell.tpot),
           lambda shape: Amount(shape.tpot, shape.tpot_interval)),
    Figure("tokens per second", "number", lambda cell: _repeated(cell.tokens_per_second),
           lambda shape: Amount(shape.tokens_per_second)),
    Figure("cache held", "bytes", lambda cell: Amount(cell.cache.held if cell.cache else None),
           lambda shape: Amount(shape.cache_bytes)),
    Figure("share of the bound, prefill", "share",
           lambda cell: Amount(getattr(cell.work_of("prefill"), "reached", None))),
    Figure("share of the bound, decode", "share", _step("reached")),
    Figure("peak memory", "bytes", lambda cell: Amount(cell.memory.peak if cell.memory else None)),
)  # fmt: skip
# Of the table alone.
DETAILS = (
    Figure("call", "time", lambda cell: _repeated(cell.end_to_end)),
    Figure("prefill", "time", lambda cell: _repeated(cell.prefill)),
    Figure("decode forward", "time", lambda cell: _repeated(cell.step)),
    Figure("between", "time", lambda cell: _repeated(cell.between)),
    Figure("prompt tokens/s", "number", lambda cell: _repeated(cell.prefill_tokens_per_second)),
    Figure("cache used", "bytes", lambda cell: Amount(cell.cache.used if cell.cache else None)),
    Figure("J/token", "number", lambda cell: Amount(getattr(cell.energy, "per_token", None))),
    Figure("FLOPs of a step", "count", _step("flops")),
    Figure("experts hit", "number", _step("experts")),
)


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
    """Return a row for each cell, then for each prediction, with all figures."""
    cells, predictions = generation.cells, generation.predictions
    blank = [None] * len(predictions)
    rows: list[GenerationCell | GenerationPrediction] = [*cells, *predictions]
    values: dict[str, list[Any]] = {
        "batch × prompt": [size(row.batch, row.prompt) for row in rows],
        "cache": [
            *(short(cell.kind) for cell in cells),
            *(short(_kind(generation, shape)) for shape in predictions),
        ],
        "status": ["measured" if cell.done else cell.status for cell in cells],
    }
    values["status"] += ["estimated" for _ in predictions]
    columns = [Column(name) for name in values]
    columns += [Column("calls", unit="count"), Column("new tokens", unit="count")]
    values["calls"] = [*(len(cell.timed_calls) for cell in cells), *blank]
    values["new tokens"] = [row.new_tokens for row in rows]
    for figure in (*FIGURES, *DETAILS):
        amounts = [*map(figure.measured, cells), *map(figure.estimated, predictions)]
        columns.append(Column(figure.title, unit=figure.unit))
        values[figure.title] = [amount.value for amount in amounts]
        for end, title in ENDS.items() if figure.unit == "time" and figure in FIGURES else ():
            columns.append(Column(f"{figure.title} {end}", title, "time"))
            values[f"{figure.title} {end}"] = [
                getattr(amount.interval, end, None) for amount in amounts
            ]
    columns += [Column("step bound by"), Column("why")]
    works = [cell.work_of("decode") for cell in cells]
    values["step bound by"] = [*(getattr(work, "bound", None) for work in works), *blank]
    values["why"] = [short(cell.reason) for cell in cells]
    values["why"] += ["extrapolated" * shape.extrapolated for shape in predictions]
    return page_tables.table("shapes", columns, values)
