"""Two traces side by side: what differs around them, then what changed where."""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.trace.trace_diff import Changes, TraceDiff, TraceSide
from torchgauge.report.content.comparison import PLACES, differences, relative, sides, signed
from torchgauge.report.content.document import (
    Block,
    Column,
    Document,
    Options,
    Row,
    Table,
    Value,
    Warnings,
    cells,
)

TITLES = {
    "layers": "Layers",
    "operators": "Operators",
    "shapes": "Operators by shape",
    "kernels": "Kernels",
}
PARTS = (Column("baseline"), Column("current"), Column("adds"), Column("change"))
LONGEST = 40


def title(diff: TraceDiff) -> str:
    """Return the names of both traces."""
    return f"{diff.baseline.label} → {diff.current.label}"


def document(diff: TraceDiff, options: Options) -> Document:
    """Return what differs around two traces, then what changed where."""
    blocks: list[Block] = differences(diff.differences)
    if diff.parts:
        blocks.append(_parts(diff))
    if any(change.contribution for change in diff.delays):
        blocks.append(_delays(diff))
    blocks += [
        _places(changes, options.top)
        for changes in diff.tables
        # That of layers says something only where there is more than the model.
        if len(changes.places) > 1 or changes.kind != "layers"
    ]
    blocks += [Warnings(diff.warnings)] if diff.warnings else []
    facts = sides((diff.baseline, diff.current), side_details)
    return Document("Two traces", "recorded", facts=facts, blocks=blocks)


def side_details(side: TraceSide) -> str:
    """Return a side's device, rank and number of steps."""
    parts = [side.device]
    if side.rank is not None:
        parts.append(f"rank {side.rank}" + (f" of {side.world}" if side.world else ""))
    if side.steps > 1:
        parts.append(f"{side.steps} steps")
    return ", ".join(part for part in parts if part)


def _parts(diff: TraceDiff) -> Table:
    """Return how each part of the devices' time changed, and what the times are of."""
    rows = [
        Row(part.part, _texts(diff, part.baseline, part.current, part.contribution), 1)
        for part in diff.parts
    ]
    windows = (diff.baseline.window, diff.current.window)
    rows.append(Row("window", _texts(diff, *windows, diff.window), tone="strong"))
    return Table(
        title="Time of the devices", how=f"measured, {_scope(diff)}", columns=PARTS, rows=rows,
        layout="fitted",
    )  # fmt: skip


def _scope(diff: TraceDiff) -> str:
    several = max(diff.baseline.steps, diff.current.steps) > 1
    return "of a step" if several else "of the whole window"


def _delays(diff: TraceDiff) -> Table:
    """Return what kept the hosts from launching work, and the costliest spans of each cause."""
    rows = [
        Row(
            change.cause,
            _texts(diff, change.baseline, change.current, change.contribution),
            1,
        )
        for change in diff.delays
    ]
    notes = tuple(
        f"{change.cause}: {_renamed(change.baseline_name, change.current_name)}"
        for change in diff.delays
    )
    subject = "time that a device waited for it" if diff.parts else "time of the host"
    return Table(
        title="What kept the host from launching", how=f"measured, {subject}, {_scope(diff)}",
        columns=PARTS, rows=rows, notes=notes, layout="fitted",
    )  # fmt: skip


def _renamed(old: str, new: str) -> str:
    """Return the name of both sides, or that of each: "a → b"."""
    return old if old == new else f"{old or 'none'} → {new or 'none'}"


def _texts(diff: TraceDiff, old: float, new: float, adds: float) -> dict[str, Value]:
    return {
        "baseline": units.time(old),
        "current": units.time(new),
        "adds": signed(adds),
        "change": relative(new / old - 1) if old and diff.timing_comparable else "",
    }


def _places(changes: Changes, top: int) -> Table:
    """Return the places that changed, those that add most first, and what the others add."""
    listed = [place for place in changes.places if place.contribution or place.work_changed][:top]
    rows = [Row(place.name or "(the model itself)", cells(PLACES, place), 1) for place in listed]
    note = f"none of {len(changes.places)} changed"
    if listed or changes.total:
        other_change = changes.total - sum(place.contribution for place in listed)
        note = f"{len(listed)} of {len(changes.places)}; all others {signed(other_change)}, "
        note += f"together {signed(changes.total)}"
    return Table(
        title=TITLES[changes.kind], how="by their own time", columns=PLACES, rows=rows,
        recorded=True, notes=(note,), layout="fitted", longest=LONGEST,
    )  # fmt: skip
