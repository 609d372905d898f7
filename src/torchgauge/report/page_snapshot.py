"""The page of a memory snapshot: who held memory, when, and how it is filled, a device at a time.

Sizes are bytes, times whole nanoseconds; None is unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

from torchgauge import units
from torchgauge.model.snapshot import DeviceMemory, Holding, Oom, Snapshot
from torchgauge.report.page_choice import Choice, Option
from torchgauge.report.page_overview import warnings
from torchgauge.report.page_shorter import short
from torchgauge.report.page_snapshot_layout import layout
from torchgauge.report.page_snapshot_marks import marks
from torchgauge.report.page_tables import Column, table
from torchgauge.report.page_trace import finding
from torchgauge.report.snapshot import window
from torchgauge.report.snapshot_sheets import CAUSES
from torchgauge.report.snapshot_words import where

MOST = 2_000  # rows of a table
SHOWN_OOMS = 3
_VIEWS = {"peak-holder": "held", "kept": "held", "no-stacks": "held"} | {
    f"oom-{cause}": "ooms" for cause in CAUSES
}
_HELD = (
    Column("stack", "allocated by", "text"),
    Column("bytes", "bytes", "bytes"),
    Column("share", "share", "share"),
    Column("blocks", "blocks", "count"),
    Column("category", "category", "text"),
)
_KEPT = (
    Column("stack", "allocated by", "text"),
    Column("bytes", "bytes", "bytes"),
    Column("blocks", "kept", "count"),
    Column("allocations", "of allocations", "count"),
    Column("category", "category", "text"),
)
_OOMS = (
    Column("cause", "cause", "text"),
    Column("at", "at", "time"),
    Column("event", "event", "count"),
    Column("asked", "asked for", "bytes"),
    Column("device_free", "device had left", "bytes"),
    Column("cached", "free in segments", "bytes"),
    Column("largest", "largest piece", "bytes"),
    Column("usable", "largest it may use", "bytes"),
    Column("alive", "alive", "bytes"),
    Column("reserved", "reserved", "bytes"),
    Column("stack", "asked by", "text"),
)


def choice(snapshot: Snapshot) -> Choice:
    """Return the parts of each device, those of the one that holds most first."""
    options = [
        Option(
            f"{one.device}",
            {
                "overview": overview(snapshot, one),
                "held": held(snapshot, one),
                "course": course(snapshot, one),
                "layout": layout(one),
                "ooms": ooms(snapshot, one),
            },
        )
        for one in snapshot.devices
    ]
    if not options:
        options = [Option("", {"overview": overview(snapshot, None)})]
    sizes = [one.reserved for one in snapshot.devices] or [0]
    return Choice("GPU", options, sizes.index(max(sizes)))


def overview(snapshot: Snapshot, device: DeviceMemory | None) -> dict[str, Any]:
    """Return the first screen of a device."""
    settings = ", ".join(f"{name} {value}" for name, value in sorted(snapshot.settings.items()))
    facts = [("window", window(device))] if device is not None else []
    if len(snapshot.devices) != 1:
        facts.insert(0, ("devices", f"{len(snapshot.devices)}"))
    facts += [("settings", settings)] if settings else []
    return {
        "facts": [[label, short(said), ""] for label, said in facts],
        "created": "",
        "figures": [] if device is None else _figures(device),
        "bound": None,
        "phases": None,
        "findings": [finding(one, _VIEWS, "layout") for one in snapshot.findings],
        "warnings": warnings(snapshot.warnings),
        "complete": True,
        "interrupted": False,
    }


def _figures(one: DeviceMemory) -> list[dict[str, str]]:
    lost, peak = one.fragmentation, one.peak
    found = []
    if peak is not None:
        at = "before the first event" if peak.event < 0 else f"at event {peak.event:,}"
        when = at if peak.at is None else f"{units.time(peak.at)} after the first event"
        found.append(_figure("peak", peak.bytes, when, "measured", "course"))
    pending = ", with pending" * bool(one.pending)
    blocks = f"{one.blocks:,} block{'s' * (one.blocks != 1)} at the end{pending}"
    segments = f"{len(one.segments):,} segment{'s' * (len(one.segments) != 1)}"
    found += [
        _figure("in use", one.allocated, blocks, "counted", "layout"),
        _figure("reserved", one.reserved, segments, "counted", "layout"),
        _figure(
            "free", lost.cached, f"largest piece {units.size(lost.largest)}", "counted", "layout"
        ),
    ]
    if one.ooms:
        last = one.ooms[-1]
        note = f"the last: {CAUSES[last.cause]}"
        found.append(
            {
                "label": "failed allocations",
                "value": f"{len(one.ooms):,}",
                "note": note,
                "how": "counted",
                "view": "ooms",
            }
        )
    return found


def _figure(label: str, size: int, note: str, how: str, view: str) -> dict[str, str]:
    return {"label": label, "value": units.size(size), "note": note, "how": how, "view": view}


def held(snapshot: Snapshot, device: DeviceMemory) -> list[dict[str, Any]] | None:
    """Return who held memory at the peak and at the end, and who let go of nothing."""
    found = []
    peak = device.peak
    if peak is not None and peak.held:
        found.append(_held(snapshot, "At the peak", peak.held, peak.bytes))
    if device.alive:
        total = device.allocated + device.pending
        found.append(_held(snapshot, "At the end", device.alive, total))
    if device.kept:
        columns = {
            "stack": [_stack(snapshot, one.stack) for one in device.kept],
            "category": [_category(snapshot, one.stack) for one in device.kept],
            **{name: [getattr(one, name) for one in device.kept] for name in ("bytes", "blocks")},
            "allocations": [one.allocations for one in device.kept],
        }
        note = "Allocated all through the window, and almost none freed: a leak, or a cache."
        found.append(
            {
                "title": "Kept all through",
                "note": note,
                "categories": [],
                "whole": sum(one.bytes for one in device.kept),
                "table": cut(table("stacks that kept memory", _KEPT, columns)),
            }
        )
    return found or None


def _held(snapshot: Snapshot, title: str, rows: Sequence[Holding], whole: int) -> dict[str, Any]:
    categories: Counter[str] = Counter()
    for one in rows:
        categories[_category(snapshot, one.stack)] += one.bytes
    columns: dict[str, list[Any]] = {
        "stack": [_stack(snapshot, one.stack) for one in rows],
        "bytes": [one.bytes for one in rows],
        "share": [one.bytes / whole if whole else None for one in rows],
        "blocks": [one.blocks for one in rows],
        "category": [_category(snapshot, one.stack) for one in rows],
    }
    known = set(categories) > {"unknown"} or "unknown" not in categories
    guess = "Categories are what stacks let guess: estimated."
    return {
        "title": title,
        "note": guess if known else "No stack lets guess what the memory is for.",
        "categories": [list(pair) for pair in categories.most_common()] if known else [],
        "whole": whole,
        "table": cut(table("stacks", _HELD, columns)),
    }


def cut(found: dict[str, Any]) -> dict[str, Any]:
    """Return the first rows of a table, those with most bytes."""
    columns = [{**one, "values": one["values"][:MOST]} for one in found["columns"]]
    rows = min(found["rows"], MOST)
    return {**found, "columns": columns, "rows": rows, "left": found["rows"] - rows, "nodes": []}


def _stack(snapshot: Snapshot, row: int | None) -> str:
    return short(where(None if row is None else snapshot.stacks[row]).plain)


def _category(snapshot: Snapshot, row: int | None) -> str:
    return "unknown" if row is None else snapshot.stacks[row].category


def course(snapshot: Snapshot, device: DeviceMemory) -> dict[str, Any] | None:
    """Return the bytes alive and reserved over the window, and what was marked; None without."""
    points, peak = device.timeline, device.peak
    if len(points) < 2 or peak is None:
        return None
    timed = device.window is not None and device.window.length is not None
    x = [point[0] for point in points]
    failed = [one.at if timed else one.event + 1 for one in device.ooms]
    reserved = [point[2] for point in points]
    most = max((one for one in reserved if one is not None), default=None)
    marked = marks(snapshot, device, timed=timed)
    return {
        "x": [round(at * 1e9) for at in x] if timed else x,
        "timed": timed,
        "alive": [point[1] for point in points],
        "reserved": reserved if most is not None else None,
        "failed": sorted({max(bisect_right(x, at) - 1, 0) for at in failed if at is not None}),
        "peak": peak.bytes,
        "marks": marked,
        "note": "Alive: as asked for, without rounding, until the free is complete.",
        "summary": f"Alive at most {units.size(peak.bytes)}"
        + ("." if most is None else f", reserved at most {units.size(most)}.")
        + (f" With {len(marked['drawn']):,} marks, in the table below too." if marked else ""),
    }


def ooms(snapshot: Snapshot, device: DeviceMemory) -> dict[str, Any] | None:
    """Return the allocations that failed, the last first; None without any."""
    rows = device.ooms[::-1]
    if not rows:
        return None
    names = [column.key for column in _OOMS]
    columns: dict[str, list[Any]] = {
        name: [getattr(one, name) for one in rows] for name in names if name != "stack"
    }
    columns["cause"] = [CAUSES[one.cause] for one in rows]
    columns["stack"] = [_stack(snapshot, one.stack) for one in rows]
    found = table("allocations that failed", _OOMS, columns)
    return {"last": [_bars(one) for one in rows[:SHOWN_OOMS]], "table": cut(found)}


def _bars(one: Oom) -> dict[str, Any]:
    sizes = (
        ("asked for", one.asked),
        ("the device had left", one.device_free),
        ("free in segments, all pieces", one.cached),
        ("the largest piece", one.largest),
        ("the largest of its stream and pool", one.usable),
    )
    at = "" if one.at is None else f" after {units.time(one.at)}"
    return {
        "title": f"{units.size(one.asked)} asked for{at}: {CAUSES[one.cause]}",
        "bars": [[label, size] for label, size in sizes],
    }
