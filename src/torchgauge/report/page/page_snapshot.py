"""The page of a memory snapshot, a device at a time: holders, timeline, segments, failures.

Sizes are bytes, times whole nanoseconds; None is unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torchgauge import units
from torchgauge.records.snapshot import DeviceMemory, Frame, Holding, Oom, Segment, Snapshot
from torchgauge.report.content.document import Column
from torchgauge.report.content.snapshot import window
from torchgauge.report.page import page_tree
from torchgauge.report.page.page_document import Choice, Option, figure, finding_entry, first_screen
from torchgauge.report.page.page_shorter import marks, short, shortened_table
from torchgauge.report.page.page_tables import document_table, records_table
from torchgauge.report.tables.snapshot_tables import (
    CAUSES,
    categories,
    frame_text,
    segment_kind,
    stack_tables,
    stack_text,
)
from torchgauge.visible import one_line

MAX_ROWS = 2_000  # of a table
SHOWN_OOMS = 3
_VIEWS = {"peak-holder": "held", "kept": "held", "no-stacks": "held"} | {
    f"oom-{cause}": "ooms" for cause in CAUSES
}


def choice(snapshot: Snapshot) -> Choice:
    """Return the parts of each device; the one that reserves most is shown first."""
    options = [
        Option(
            f"{device.device}",
            {
                "overview": overview(snapshot, device),
                "held": held(snapshot, device),
                "course": memory_timeline(snapshot, device),
                "tree": flame_graph(snapshot, device),
                "layout": layout(device),
                "ooms": ooms(snapshot, device),
            },
        )
        for device in snapshot.devices
    ]
    if not options:
        options = [Option("", {"overview": overview(snapshot, None)})]
    sizes = [device.reserved for device in snapshot.devices] or [0]
    return Choice("GPU", options, sizes.index(max(sizes)))


def overview(snapshot: Snapshot, device: DeviceMemory | None) -> dict[str, Any]:
    """Return the first screen of a device."""
    settings = ", ".join(f"{name} {value}" for name, value in sorted(snapshot.settings.items()))
    facts = [("window", window(device))] if device is not None else []
    if len(snapshot.devices) != 1:
        facts.insert(0, ("devices", f"{len(snapshot.devices)}"))
    facts += [("settings", settings)] if settings else []
    return first_screen(
        ([label, short(text), ""] for label, text in facts),
        [] if device is None else _figures(device),
        (finding_entry(finding, _VIEWS.get(finding.id, "layout")) for finding in snapshot.findings),
        snapshot.warnings,
    )


def _figures(device: DeviceMemory) -> Iterator[dict[str, str]]:
    lost, peak = device.fragmentation, device.peak
    if peak is not None:
        event_text = "before the first event" if peak.event < 0 else f"at event {peak.event:,}"
        moment = (
            event_text if peak.time is None else f"{units.time(peak.time)} after the first event"
        )
        yield figure("peak", units.size(peak.bytes), moment, "measured", "course")
    pending = ", with pending" * bool(device.pending)
    blocks = f"{device.blocks:,} block{'s' * (device.blocks != 1)} at the end{pending}"
    segments = f"{len(device.segments):,} segment{'s' * (len(device.segments) != 1)}"
    for name, size, note in (
        ("in use", device.allocated, blocks),
        ("reserved", device.reserved, segments),
        ("free", lost.cached, f"largest piece {units.size(lost.largest)}"),
    ):
        yield figure(name, units.size(size), note, "counted", "layout")
    if device.ooms:
        note = f"the last: {CAUSES[device.ooms[-1].cause]}"
        failed = f"{len(device.ooms):,}"
        yield figure("failed allocations", failed, note, "counted", "ooms")


def held(snapshot: Snapshot, device: DeviceMemory) -> list[dict[str, Any]] | None:
    """Return the stacks that held memory at the peak and at the end, or all through."""
    tables = _tables(snapshot, device)
    parts = []
    peak = device.peak
    if peak is not None and peak.held:
        table = tables["Alive at the peak"]
        parts.append(_holders(snapshot, "At the peak", peak.held, peak.bytes, table))
    if device.alive:
        total = device.allocated + device.pending
        table = tables["Alive at the end"]
        parts.append(_holders(snapshot, "At the end", device.alive, total, table))
    if device.possible_leaks:
        note = "Allocated all through the window, and almost none freed: a leak, or a cache."
        parts.append(
            {
                "title": "Kept all through",
                "note": note,
                "categories": [],
                "whole": sum(holder.bytes for holder in device.possible_leaks),
                "table": tables["Kept all through the window"],
            }
        )
    return parts or None


def _tables(snapshot: Snapshot, device: DeviceMemory) -> dict[str, dict[str, Any]]:
    """Return the device's tables of stacks by title."""
    return {
        block.title: shortened_table(document_table(block), MAX_ROWS) | {"nodes": []}
        for block in stack_tables(snapshot, device, MAX_ROWS)
    }


def _holders(
    snapshot: Snapshot, title: str, rows: Sequence[Holding], total: int, table: dict[str, Any]
) -> dict[str, Any]:
    sizes = categories(snapshot, rows)
    guess = "Categories are estimated from the stacks."
    return {
        "title": title,
        "note": guess if sizes else "The stacks do not show what the memory is for.",
        "categories": [list(pair) for pair in sizes.items()],
        "whole": total,
        "table": table,
    }


def _stack(snapshot: Snapshot, row: int | None) -> str:
    return short(str(stack_text(None if row is None else snapshot.stacks[row])))


def memory_timeline(snapshot: Snapshot, device: DeviceMemory) -> dict[str, Any] | None:
    """Return the bytes alive and reserved over the window, and its marks; None without a window."""
    points, peak = device.timeline, device.peak
    if len(points) < 2 or peak is None:
        return None
    timed = device.window is not None and device.window.length is not None
    x = [point[0] for point in points]
    failed = [oom.time if timed else oom.event + 1 for oom in device.ooms]
    reserved = [point[2] for point in points]
    peak_reserved = max((size for size in reserved if size is not None), default=None)
    marked = marks(snapshot, device, timed=timed)
    return {
        "x": [round(position * 1e9) for position in x] if timed else x,
        "timed": timed,
        "alive": [point[1] for point in points],
        "stacked": _by_stack(snapshot, device),
        "reserved": reserved if peak_reserved is not None else None,
        "failed": sorted(
            {max(bisect_right(x, position) - 1, 0) for position in failed if position is not None}
        ),
        "peak": peak.bytes,
        "marks": marked,
        "note": "Alive: requested bytes, without rounding, until the free is complete.",
        "summary": f"Alive at most {units.size(peak.bytes)}"
        + ("." if peak_reserved is None else f", reserved at most {units.size(peak_reserved)}.")
        + (f" With {len(marked['drawn']):,} marks, in the table below too." if marked else ""),
    }


def _by_stack(snapshot: Snapshot, device: DeviceMemory) -> list[list[Any]]:
    """Return bytes over time by stack, those of all other stacks first; empty where not known."""
    stacked = [(_stack(snapshot, held.stack), held.bytes) for held in device.held_over_time]
    if any(len(sizes) != len(device.timeline) for _, sizes in stacked) or not stacked:
        return []
    sums = [sum(sizes) for sizes in zip(*(sizes for _, sizes in stacked), strict=True)]
    other_stacks = [point[1] - size for point, size in zip(device.timeline, sums, strict=True)]
    return [["all other stacks", other_stacks], *([name, sizes] for name, sizes in stacked)]


def flame_graph(snapshot: Snapshot, device: DeviceMemory) -> dict[str, Any] | None:
    """Return what is held at the peak (without one: at the end) as a tree of frames.

    None where no stack was recorded.
    """
    holdings = device.alive if device.peak is None else device.peak.held
    sizes: dict[tuple[Frame, ...], list[int]] = {(): [0, 0]}  # by frames, the outermost first
    for holding in holdings:
        stack = None if holding.stack is None else snapshot.stacks[holding.stack]
        frames = () if stack is None else stack.frames[::-1]
        for depth in range(len(frames)):
            sizes.setdefault(frames[: depth + 1], [0, 0])
        sizes[frames][0] += holding.bytes
        sizes[frames][1] += holding.blocks
    if len(sizes) == 1:
        return None
    index = {frames: number for number, frames in enumerate(sizes)}
    texts = page_tree.Texts()
    cells = {
        "parent": [index[frames[:-1]] if frames else -1 for frames in sizes],
        "kind": texts.indices("frame" if frames else "memory" for frames in sizes),
        "name": texts.indices(
            short(frame_text(frames[-1])) if frames else "all stacks" for frames in sizes
        ),
        "path": [-1] * len(sizes),
        "type": texts.indices(short(_file(frames[-1])) if frames else None for frames in sizes),
        "bytes": [size for size, _ in sizes.values()],
        "blocks": [blocks for _, blocks in sizes.values()],
    }
    moment = "at the end" if device.peak is None else "at the peak"
    return {
        "title": "Flame graph",
        "types": "file",
        "texts": list(texts.index),
        "columns": cells,
        "figures": [("bytes", f"bytes {moment}", "bytes"), ("blocks", f"blocks {moment}", "count")],
        "kernels": {"node": [], "facts": []},
        "note": f"Who holds memory {moment}: a frame lies below its caller. The file has the whole "
        "stack; of each the innermost frames are shown, at most four.",
        "step": "inference",
        "steps": 1,
        "how": "measured",
    }


def _file(frame: Frame) -> str:
    return one_line(frame.file).rstrip("/").rsplit("/", 1)[-1]


def ooms(snapshot: Snapshot, device: DeviceMemory) -> dict[str, Any] | None:
    """Return the allocations that failed, the last first; None without any."""
    rows = device.ooms[::-1]
    if not rows:
        return None
    table = _tables(snapshot, device)["Allocations that failed"]
    return {"last": [_bars(oom) for oom in rows[:SHOWN_OOMS]], "table": table}


def _bars(oom: Oom) -> dict[str, Any]:
    sizes = (
        ("asked for", oom.requested),
        ("the device had left", oom.device_free),
        ("free in segments, all pieces", oom.cached),
        ("the largest piece", oom.largest),
        ("the largest of its stream and pool", oom.usable),
    )
    time_text = "" if oom.time is None else f" after {units.time(oom.time)}"
    return {
        "title": f"{units.size(oom.requested)} asked for{time_text}: {CAUSES[oom.cause]}",
        "bars": [[label, size] for label, size in sizes],
    }


PARTS: dict[str, Callable[[Any], object]] = {}


MAX_TILES = 600
ROWS = 5_000
THINNEST = 200  # a run of less than 1/200 of its segment joins its neighbour
_SEGMENTS = (
    Column("kind", "segment", "text", lambda segment: short(segment_kind(segment))),
    Column("address", "address", "text", lambda segment: f"{segment.address:#x}"),
    Column("size", "size", "bytes"),
    Column("fill", "in use", "share"),
    Column("allocated", "allocated", "bytes"),
    Column("pending", "pending", "bytes"),
    Column("free", "free", "bytes"),
    Column("largest_free", "largest piece", "bytes"),
    Column("blocks", "blocks", "count"),
)


def layout(device: DeviceMemory) -> dict[str, Any] | None:
    """Return how the segments are filled; None without any."""
    if not device.segments:
        return None
    largest = sorted(device.segments, key=lambda segment: -segment.size)
    drawn_segments = sorted(largest[:MAX_TILES], key=lambda segment: segment.address)
    return {
        "parts": _parts(device),
        "reserved": device.reserved,
        "rows": _definitions(device),
        "map": [_tile(segment) for segment in drawn_segments],
        "left": [
            len(largest) - len(drawn_segments),
            sum(segment.size for segment in largest[MAX_TILES:]),
        ],
        "table": _table(largest),
    }


def _parts(device: DeviceMemory) -> list[list[Any]]:
    lost = device.fragmentation
    parts = (
        ("in use", device.allocated),
        ("pending", device.pending),
        ("largest free piece", lost.largest),
        ("other free pieces", lost.cached - lost.largest),
        ("unlisted", device.unlisted),
    )
    return [[name, size] for name, size in parts if size > 0]


def _definitions(device: DeviceMemory) -> list[list[str]]:
    """Return the definitions of fragmentation, as there is no agreed one."""
    lost, reserved = device.fragmentation, device.reserved

    def row(label: str, size: int | None, note: str) -> list[str]:
        share = f"{units.percent(size / reserved)} of reserved; " if size and reserved else ""
        return [label, units.size(size), f"{share}{note}"]

    return [
        row("internal", lost.internal, "blocks in use less the requested bytes"),
        row("split", lost.split, "free between blocks in use: cannot go back to the device"),
        row("cached", lost.cached, "reserved and not in use, all free pieces"),
        row("largest piece", lost.largest, "no larger block fits into what is reserved"),
    ]


def _tile(segment: Segment) -> dict[str, Any]:
    used, free = segment.allocated + segment.pending, segment.free
    parts = (("in use", segment.allocated), ("pending", segment.pending), ("free", free))
    filling = ", ".join(f"{units.size(size, 3)} {name}" for name, size in parts if size)
    largest_text = f" (largest piece {units.size(segment.largest_free, 3)})" if free else ""
    other_free = segment.largest_free - free
    runs = segment.runs or tuple(size for size in (used, -segment.largest_free, other_free) if size)
    return {
        "size": segment.size,
        "runs": _drawn(runs, segment.size // THINNEST),
        "said": f"{short(segment_kind(segment))}: {units.size(segment.size, 3)}, "
        f"{segment.blocks:,} blocks; {filling}{largest_text}",
    }


def _drawn(runs: Sequence[int], min_size: int) -> list[int]:
    """Return runs of at least `min_size` bytes; thinner ones join their neighbour."""
    merged: list[int] = []
    for run in runs:
        if merged and (abs(run) < min_size or (run < 0) == (merged[-1] < 0)):
            merged[-1] += abs(run) if merged[-1] > 0 else -abs(run)
        else:
            merged.append(run)
    return merged


def _table(segments: Sequence[Segment]) -> dict[str, Any]:
    rows = segments[:ROWS]
    omitted_rows = len(segments) - len(rows)
    return {**records_table("segments", _SEGMENTS, rows), "left": omitted_rows, "nodes": []}
