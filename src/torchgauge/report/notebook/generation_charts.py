"""Small drawings of a generation: steps and cache by context, shapes as a map, parts of a call."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence

from torchgauge import units
from torchgauge.analyze.generation.cells import decode_steps
from torchgauge.records.generation.cell import GenerationCell
from torchgauge.records.generation.generation import Generation
from torchgauge.report.content.generation import generation_words as words
from torchgauge.report.notebook.charts import MAX_BARS, Chart, divided

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
        yield Chart(title, "line", [*sizes.values()], [*sizes], units.size(max(sizes.values()), 3))


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
    call = words.middle_call(cell)
    parts = {} if call is None else words.call_parts(call)
    if parts:
        yield divided(f"Time of a call, {cell.size_label}", parts, units.time)
