"""How a device's memory is filled: shares of what is reserved, fragmentation, a map of segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgauge import units
from torchgauge.records.snapshot import DeviceMemory, Segment
from torchgauge.report.content.document import Column
from torchgauge.report.page.page_shorter import short
from torchgauge.report.page.page_tables import records_table
from torchgauge.report.tables.snapshot_tables import segment_kind

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
