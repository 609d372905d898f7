"""How a device's memory is filled: shares of what is reserved, fragmentation, a map of segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgauge import units
from torchgauge.model.snapshot import DeviceMemory, Segment
from torchgauge.report.page_shorter import short
from torchgauge.report.page_tables import Column, table

MOST = 600  # segments of the map
ROWS = 5_000
THINNEST = 200  # of a segment
_SEGMENTS = (
    Column("kind", "segment", "text"),
    Column("address", "address", "text"),
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
    largest = sorted(device.segments, key=lambda one: -one.size)
    shown = sorted(largest[:MOST], key=lambda one: one.address)
    return {
        "parts": _parts(device),
        "reserved": device.reserved,
        "rows": _definitions(device),
        "map": [_tile(one) for one in shown],
        "left": [len(largest) - len(shown), sum(one.size for one in largest[MOST:])],
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
    lost, of = device.fragmentation, device.reserved

    def row(label: str, size: int | None, note: str) -> list[str]:
        share = f"{units.percent(size / of)} of reserved; " if size and of else ""
        return [label, units.size(size), f"{share}{note}"]

    return [
        row("internal", lost.internal, "blocks in use less what was asked for"),
        row("split", lost.split, "free between blocks in use: cannot go back to the device"),
        row("cached", lost.cached, "reserved and not in use, all free pieces"),
        row("largest piece", lost.largest, "no larger block fits into what is reserved"),
    ]


def _tile(one: Segment) -> dict[str, Any]:
    used, free = one.allocated + one.pending, one.free
    parts = (("in use", one.allocated), ("pending", one.pending), ("free", free))
    said = ", ".join(f"{units.size(size, 3)} {name}" for name, size in parts if size)
    piece = f" (largest piece {units.size(one.largest_free, 3)})" if free else ""
    rest = one.largest_free - free
    runs = one.runs or tuple(size for size in (used, -one.largest_free, rest) if size)
    return {
        "size": one.size,
        "runs": _drawn(runs, one.size // THINNEST),
        "said": f"{_kind(one)}: {units.size(one.size, 3)}, {one.blocks:,} blocks; {said}{piece}",
    }


def _drawn(runs: Sequence[int], least: int) -> list[int]:
    """Return runs of at least `least` bytes; what is too thin to be seen joins its neighbour."""
    found: list[int] = []
    for run in runs:
        if found and (abs(run) < least or (run < 0) == (found[-1] < 0)):
            found[-1] += abs(run) if found[-1] > 0 else -abs(run)
        else:
            found.append(run)
    return found


def _kind(one: Segment) -> str:
    private = f"pool {one.pool}" if one.pool not in ("", "0.0") else ""
    parts = (one.kind, "expandable" if one.expandable else "", f"stream {one.stream}", private)
    return short(", ".join(part for part in parts if part))


def _table(segments: Sequence[Segment]) -> dict[str, Any]:
    rows = segments[:ROWS]
    found: dict[str, list[Any]] = {
        column.key: [getattr(one, column.key) for one in rows]
        for column in _SEGMENTS
        if column.key not in ("kind", "address")
    }
    found["kind"] = [_kind(one) for one in rows]
    found["address"] = [f"{one.address:#x}" for one in rows]
    left = len(segments) - len(rows)
    return {**table("segments", _SEGMENTS, found), "left": left, "nodes": []}
