"""A memory snapshot as tables: devices, stacks, segments, the timeline, failed allocations."""

from __future__ import annotations

from typing import Any

import msgspec

from torchgauge.errors import InputError
from torchgauge.model.snapshot import DeviceMemory, Growth, Holding, Snapshot, Stack

_LEFT = {"segments", "alive", "timeline", "ooms", "kept", "window", "peak", "fragmentation"}


def rows(snapshot: Snapshot, table: str) -> tuple[list[str], list[list[Any]]]:
    """Return names and rows; raises InputError `no-tree` for tables of a tree."""
    if table not in _TABLES:
        raise InputError(
            f"A memory snapshot has no {table}.",
            id="no-tree",
            cause="It records memory, and who asked for it.",
            remedy=f"Choose from {', '.join(_TABLES)}.",
        )
    found = [row for device in snapshot.devices for row in _TABLES[table](snapshot, device)]
    names = list(dict.fromkeys(name for row in found for name in row)) or ["device"]
    return names, [[row.get(name) for name in names] for row in found]


def grown(growth: Growth) -> tuple[list[str], list[list[Any]]]:
    """Return names and rows of what grew, by stack."""
    numbers = ["device", "before", "after", "before_blocks", "after_blocks"]
    found = [[*(getattr(one, name) for name in numbers), _text(one.stack)] for one in growth.stacks]
    return [*numbers, "stack"], found


def _text(stack: Stack | None) -> str:
    frames = () if stack is None else stack.frames
    return ";".join(f"{each.file}:{each.line}:{each.name}" for each in frames)


def _figures(_: Snapshot, one: DeviceMemory) -> list[dict[str, Any]]:
    plain = {name: getattr(one, name) for name in one.__struct_fields__ if name not in _LEFT}
    lost = {f"{k}_free" if k == "largest" else k: v for k, v in _fields(one.fragmentation).items()}
    window, peak = one.window, one.peak
    more = {
        "segments": len(one.segments),
        "peak": None if peak is None else peak.bytes,
        "peak_at": None if peak is None else peak.at,
        "peak_reserved": None if peak is None else peak.reserved,
        "window": None if window is None else window.length,
        "events": None if window is None else sum(window.events.values()),
        "before": None if window is None else window.before,
        "ooms": len(one.ooms),
    }
    return [plain | lost | more]


def _stacks(snapshot: Snapshot, one: DeviceMemory) -> list[dict[str, Any]]:
    held = {} if one.peak is None else {each.stack: each for each in one.peak.held}
    alive = {each.stack: each for each in one.alive}
    found = []
    for row in dict.fromkeys((*held, *alive)):
        stack = None if row is None else snapshot.stacks[row]
        found.append(
            {
                "device": one.device,
                "peak_bytes": _of(held, row, "bytes") if one.peak is not None else None,
                "peak_blocks": _of(held, row, "blocks") if one.peak is not None else None,
                "end_bytes": _of(alive, row, "bytes"),
                "end_blocks": _of(alive, row, "blocks"),
                "category": "unknown" if stack is None else stack.category,
                "stack": _text(stack),
            }
        )
    return found


def _of(held: dict[int | None, Holding], row: int | None, name: str) -> int:
    return getattr(held[row], name) if row in held else 0


def _segments(_: Snapshot, one: DeviceMemory) -> list[dict[str, Any]]:
    found = [{"device": one.device, **_fields(each)} for each in one.segments]
    return [{name: value for name, value in row.items() if name != "runs"} for row in found]


def _timeline(_: Snapshot, one: DeviceMemory) -> list[dict[str, Any]]:
    return [
        {"device": one.device, "at": at, "alive": alive, "reserved": reserved}
        for at, alive, reserved in one.timeline
    ]


def _ooms(snapshot: Snapshot, one: DeviceMemory) -> list[dict[str, Any]]:
    def stack(row: int | None) -> str:
        return _text(None if row is None else snapshot.stacks[row])

    return [
        {"device": one.device, **_fields(each), "stack": stack(each.stack)} for each in one.ooms
    ]


def _fields(one: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(one)


_TABLES = {
    "figures": _figures,
    "stacks": _stacks,
    "segments": _segments,
    "timeline": _timeline,
    "ooms": _ooms,
}
