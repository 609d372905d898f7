"""The timeline of a page: packed events by lane, and counters on the same axis."""

from __future__ import annotations

from typing import Any

from torchgauge.records.timeline.tree import Timeline, Tree
from torchgauge.records.trace.trace import MemoryUse, RankTrace
from torchgauge.records.trace.trace_diff import TraceDiff
from torchgauge.report.page.page_shorter import short
from torchgauge.report.tables.kernel_names import kernel_labels

_KERNELS = ("compute", "communication")
_ABSENT = (
    "The timeline needs the trace file, of which this record has the sums alone: "
    "`torchgauge trace FILE --html page.html` writes a page with it."
)


def timeline(tree: Tree | None, note: str = "") -> dict[str, Any] | None:
    """Return the timeline of a tree's recording; None without one."""
    if tree is None or tree.timeline is None or not tree.timeline.lanes:
        return None
    return {**_packed(tree.timeline), "counters": [], "note": note}


def rank_timeline(rank: RankTrace) -> dict[str, Any]:
    """Return the timeline of a rank with what its allocators held, or why there is none."""
    part = timeline(rank.tree)
    if part is None:
        return {"missing": _ABSENT}
    return {**part, "counters": [_memory(rank, used) for used in rank.memory if used.timeline]}


def two_timelines(diff: TraceDiff) -> dict[str, Any] | None:
    """Return the timelines of two traces; None unless both have one."""
    sides = (diff.baseline, diff.current)
    drawn = [(side.label, side.timeline) for side in sides if side.timeline is not None]
    if len(drawn) < len(sides):
        return None
    return {
        "sides": [
            {**_packed(packed), "counters": [], "note": "", "title": short(label)}
            for label, packed in drawn
        ]
    }


def _packed(packed: Timeline) -> dict[str, Any]:
    return {
        "duration": packed.duration,
        "names": packed.names,
        "labels": _labels(packed),
        "kinds": packed.kinds,
        "places": packed.places,
        "lanes": [
            {"name": lane.name, "group": lane.group, "rows": lane.rows, "left": lane.left_out}
            for lane in packed.lanes
        ],
        "events": packed.events,
        "sizes": packed.sizes,
        "columns": packed.columns,
    }


def _labels(packed: Timeline) -> list[tuple[int, str]]:
    """Return the short names of kernels by the number of the name."""
    numbers = [number for number, kind in enumerate(packed.kinds) if kind in _KERNELS]
    labels = kernel_labels([packed.names[number] for number in numbers])
    return list(zip(numbers, labels, strict=True))


def _memory(rank: RankTrace, used: MemoryUse) -> dict[str, Any]:
    name = "the host" if used.device is None else rank.called(used.device)
    return {
        "name": f"Tensors of {name}",
        "unit": "bytes",
        "time": [round(point[0] * 1e9) for point in used.timeline],
        "values": [point[1] for point in used.timeline],
    }
