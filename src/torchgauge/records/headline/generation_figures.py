"""Figures of a generation: those of each shape."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.records.generation.cell import GenerationCell
from torchgauge.records.generation.generation import Generation
from torchgauge.records.headline.figure import Figure, Named, by_name

GENERATION: Named = {
    "ttft": ("s", "Time to the first token"),
    "tpot": ("s", "Time per token after the first"),
    "tokens": ("1/s", "New tokens of all prompts per second"),
    "prefill": ("s", "Forwards before the first token"),
    "step": ("s", "Forward of a decode step"),
    "between": ("s", "Time between two forwards"),
    "cache_held": ("B", "Memory of the cache at the end of a call"),
    "cache_used": ("B", "Memory of the cache's positions that hold tokens"),
}


def generation_figures(cell: GenerationCell | None) -> Iterator[Figure]:
    """Yield the figures of one shape; all unknown of a profile that is not of one."""
    cache = None if cell is None else cell.cache
    for name, (unit, text) in GENERATION.items():
        value, interval = getattr(cache, name.removeprefix("cache_"), None), None
        if not name.startswith("cache"):
            time = getattr(cell, "tokens_per_second" if name == "tokens" else name, None)
            value, interval = getattr(time, "value", None), getattr(time, "interval", None)
        bounded = unit != "B"
        yield Figure(f"generation_{name}", unit, "measured", text, value, bounded, interval)


def all_generation_figures(generation: Generation) -> Iterator[Figure]:
    """Yield how many shapes there are, and the figures of those that were measured."""
    text = "Shapes, requested or seen"
    yield Figure("generation_cells", "", "counted", text, len(generation.cells))
    by_cell = [
        [figure._replace(labels=tuple(cell.shape.items())) for figure in generation_figures(cell)]
        for cell in generation.done
    ]
    yield from by_name(by_cell)
