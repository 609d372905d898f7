"""Group the calls of a watch by their shape."""

from __future__ import annotations

from collections.abc import Iterable

from torchgauge.records.generation.call import GenerationCall
from torchgauge.records.generation.cell import GenerationCell


def cells(calls: Iterable[GenerationCall]) -> tuple[GenerationCell, ...]:
    """Return a cell for each shape, in the order in which they were seen."""
    groups: dict[tuple[int, int, int, str], list[GenerationCall]] = {}
    for call in calls:
        kind = "none" if call.cache is None else call.cache.kind
        beams = max(1, call.sequences // max(1, call.batch))
        groups.setdefault((call.batch, call.prompt, beams, kind), []).append(call)
    return tuple(
        GenerationCell(
            batch=batch,
            prompt=prompt,
            new_tokens=max(call.new_tokens for call in group),
            beams=beams,
            cache_kind={"DynamicCache": "dynamic", "StaticCache": "static"}.get(kind, kind),
            status="done" if any(not call.error for call in group) else "failed",
            calls=tuple(group),
        )
        for (batch, prompt, beams, kind), group in groups.items()
    )
