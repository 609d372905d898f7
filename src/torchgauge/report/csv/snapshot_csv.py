"""A memory snapshot as tables: devices, stacks, segments, the timeline, failed allocations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from torchgauge.errors import InputError
from torchgauge.records.snapshot import DeviceMemory, Growth, Holding, Snapshot, Stack

_OMITTED_FIELDS = {
    "segments",
    "alive",
    "timeline",
    "ooms",
    "possible_leaks",
    "window",
    "peak",
    "fragmentation",
}

# Of failed allocations these columns have names of their own.
_COLUMNS = {"time": "at", "requested": "asked"}


def table(record: Snapshot | Growth, name: str) -> tuple[list[str], list[list[Any]]]:
    """Return names and rows; raises InputError `no-tree` for tables of a tree."""
    return _growth(record) if isinstance(record, Growth) else _snapshot(record, name)


def _snapshot(snapshot: Snapshot, name: str) -> tuple[list[str], list[list[Any]]]:
    if name not in _TABLES:
        raise InputError(
            f"A memory snapshot has no {name}.",
            id="no-tree",
            cause="It records memory, and who asked for it.",
            remedy=f"Choose from {', '.join(_TABLES)}.",
        )
    records = [row for device in snapshot.devices for row in _TABLES[name](snapshot, device)]
    names = list(dict.fromkeys(name for row in records for name in row)) or ["device"]
    return names, [[row.get(name) for name in names] for row in records]


def _growth(growth: Growth) -> tuple[list[str], list[list[Any]]]:
    numbers = ["device", "before", "after", "before_blocks", "after_blocks"]
    rows = [
        [*(getattr(stack_growth, name) for name in numbers), _text(stack_growth.stack)]
        for stack_growth in growth.stacks
    ]
    return [*numbers, "stack"], rows


def _text(stack: Stack | None) -> str:
    frames = () if stack is None else stack.frames
    return ";".join(f"{frame.file}:{frame.line}:{frame.name}" for frame in frames)


def _figures(_: Snapshot, device: DeviceMemory) -> list[dict[str, Any]]:
    plain = {
        name: getattr(device, name)
        for name in device.__struct_fields__
        if name not in _OMITTED_FIELDS
    }
    fragmentation = {
        "largest_free" if name == "largest" else name: value
        for name, value in _fields(device.fragmentation).items()
    }
    window, peak = device.window, device.peak
    totals = {
        "segments": len(device.segments),
        "peak": None if peak is None else peak.bytes,
        "peak_at": None if peak is None else peak.time,
        "peak_reserved": None if peak is None else peak.reserved,
        "window": None if window is None else window.length,
        "events": None if window is None else sum(window.events.values()),
        "before": None if window is None else window.before,
        "ooms": len(device.ooms),
    }
    return [plain | fragmentation | totals]


def _stacks(snapshot: Snapshot, device: DeviceMemory) -> Iterator[dict[str, Any]]:
    held = {} if device.peak is None else {holding.stack: holding for holding in device.peak.held}
    alive = {holding.stack: holding for holding in device.alive}
    has_peak = device.peak is not None
    for row in dict.fromkeys((*held, *alive)):
        stack = None if row is None else snapshot.stacks[row]
        yield {
            "device": device.device,
            "peak_bytes": _held_figure(held, row, "bytes") if has_peak else None,
            "peak_blocks": _held_figure(held, row, "blocks") if has_peak else None,
            "end_bytes": _held_figure(alive, row, "bytes"),
            "end_blocks": _held_figure(alive, row, "blocks"),
            "category": "unknown" if stack is None else stack.category,
            "stack": _text(stack),
        }


def _held_figure(held: dict[int | None, Holding], row: int | None, name: str) -> int:
    return getattr(held[row], name) if row in held else 0


def _segments(_: Snapshot, device: DeviceMemory) -> list[dict[str, Any]]:
    segments = [{"device": device.device, **_fields(segment)} for segment in device.segments]
    return [{name: value for name, value in row.items() if name != "runs"} for row in segments]


def _ooms(snapshot: Snapshot, device: DeviceMemory) -> list[dict[str, Any]]:
    def stack(row: int | None) -> str:
        return _text(None if row is None else snapshot.stacks[row])

    return [
        {
            "device": device.device,
            **{_COLUMNS.get(name, name): value for name, value in _fields(failure).items()},
            "stack": stack(failure.stack),
        }
        for failure in device.ooms
    ]


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(struct)


_TABLES = {
    "figures": _figures,
    "stacks": _stacks,
    "segments": _segments,
    "timeline": lambda _, device: [
        {"device": device.device, "at": time, "alive": alive, "reserved": reserved}
        for time, alive, reserved in device.timeline
    ],
    "ooms": _ooms,
}
