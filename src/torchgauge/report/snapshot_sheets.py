"""The tables of a memory snapshot: how memory is filled, and who holds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from torchgauge import units
from torchgauge.model.snapshot import DeviceMemory, Holding, Peak, Snapshot
from torchgauge.report.bar import bar
from torchgauge.report.section import Row, Section
from torchgauge.report.sheet import Cell, Sheet
from torchgauge.report.snapshot_words import where

BAR = 8
CAUSES = {
    "fragmentation": "fragmentation",
    "full": "really full",
    "elsewhere": "free elsewhere",
    "limit": "a limit",
    "unknown": "unknown",
}


def now(device: DeviceMemory) -> Section:
    """Say how the device's memory is filled."""
    of = device.reserved or 1
    lost = device.fragmentation

    def row(label: str, value: int | None, note: str = "", *, share: bool = True) -> Row:
        known = value is not None and share
        return Row(label, units.size(value), note, (value or 0) / of if known else None)

    pieces = f"{len(device.segments):,} segment{'s' * (len(device.segments) != 1)}"
    blocks = f"{device.blocks:,} block{'s' * (device.blocks != 1)}"
    rows = [
        row("reserved", device.reserved, pieces, share=False),
        row("in use", device.allocated, f"{blocks} with pending" if device.pending else blocks),
    ]
    if device.pending:
        rows.append(row("pending", device.pending, "freed"))
    rows.append(row("free", lost.cached, f"largest {units.size(lost.largest, 3)}"))
    if device.unlisted:
        rows.append(row("unlisted", device.unlisted))
    rows.append(row("split", lost.split, "between blocks"))
    rows.append(row("rounding", lost.internal, "not asked for"))
    return Section("Memory at the end", "counted", tuple(rows))


def course(device: DeviceMemory, peak: Peak) -> list[tuple[str, str]]:
    """Return what is drawn over the window, and the most of it."""
    reserved = [point[2] for point in device.timeline if point[2] is not None]
    most = [("reserved", units.size(max(reserved)))] if reserved else []
    return [("alive", units.size(peak.bytes)), *most]


def when(peak: Peak) -> str:
    """Say when the most was alive."""
    at = "" if peak.at is None else f", {units.time(peak.at)} after the first"
    said = "before the first event" if peak.event < 0 else f"at event {peak.event:,}{at}"
    return f"Peak {said}. Alive: as asked for, until the free is complete."


def segments(device: DeviceMemory) -> Sheet:
    """Return how the segments of each kind are filled, the largest kind first."""
    kinds: dict[tuple[str, str, int, bool], list[int]] = {}
    for one in device.segments:
        sums = kinds.setdefault((one.kind, one.pool, one.stream, one.expandable), [0] * 5)
        used = one.allocated + one.pending
        for at, value in enumerate((1, one.size, used, one.free)):
            sums[at] += value
        sums[4] = max(sums[4], one.largest_free)
    rows = []
    for (kind, pool, stream, expandable), sums in sorted(kinds.items(), key=lambda one: -one[1][1]):
        count, size, used, free, largest = sums
        private = f"pool {pool}" if pool not in ("", "0.0") else ""
        parts = (kind, "expandable" if expandable else "", f"stream {stream}", private)
        rows.append(
            (
                ", ".join(part for part in parts if part),
                f"{count:,}",
                units.size(size, 3),
                *_share(used, size),
                units.size(free, 3),
                units.size(largest, 3),
            )
        )
    names = ("count", "size", "in use", "", "free", "largest")
    return Sheet("Segments", "counted", names, rows, recorded=True)


def _share(part: int, whole: int) -> tuple[str, str]:
    share = part / whole if whole else 0.0
    return units.percent(share), bar(share, BAR)


def of_stacks(snapshot: Snapshot, device: DeviceMemory) -> Iterator[Sheet]:
    """Yield who held memory at the peak and at the end, who got none, who let go of nothing."""
    if device.peak is not None and device.peak.held:
        held, total = device.peak.held, device.peak.bytes
        yield _holders(snapshot, "Alive at the peak", held, total)
    if device.ooms:
        yield _ooms(snapshot, device)
    if device.alive:
        total = device.allocated + device.pending
        yield _holders(snapshot, "Alive at the end", device.alive, total)
    if device.kept:
        yield _kept(snapshot, device)


def _holders(snapshot: Snapshot, title: str, held: Sequence[Holding], total: int) -> Sheet:
    categories: Counter[str] = Counter()
    for one in held:
        kind = "unknown" if one.stack is None else snapshot.stacks[one.stack].category
        categories[kind] += one.bytes
    rows = [
        (
            _where(snapshot, one.stack),
            units.size(one.bytes, 3),
            *_share(one.bytes, total),
            f"{one.blocks:,}",
        )
        for one in held
    ]
    parts = [
        f"{name} {units.percent(size / (total or 1))}" for name, size in categories.most_common()
    ]
    note = f"By what stacks let guess (estimated): {', '.join(parts)}."
    notes = () if set(categories) <= {"unknown"} else (note,)
    names = ("bytes", "share", "", "blocks")
    return Sheet(title, "measured", names, rows, "allocated by", recorded=True, notes=notes)


def _where(snapshot: Snapshot, row: int | None) -> Cell:
    return where(None if row is None else snapshot.stacks[row])


def _ooms(snapshot: Snapshot, device: DeviceMemory) -> Sheet:
    rows = [
        (
            _where(snapshot, one.stack),
            units.size(one.asked, 3),
            *(_size(value) for value in (one.device_free, one.cached, one.largest)),
            CAUSES[one.cause],
        )
        for one in device.ooms[::-1]
    ]
    names = ("asked", "device left", "free", "largest", "cause")
    note = "The last first. free: in segments, and the largest such piece, by the events."
    title = "Allocations that failed"
    return Sheet(title, "estimated", names, rows, "by", recorded=True, notes=(note,))


def _size(value: int | None) -> str:
    return "–" if value is None else units.size(value, 3)


def _kept(snapshot: Snapshot, device: DeviceMemory) -> Sheet:
    rows = [
        (
            _where(snapshot, one.stack),
            units.size(one.bytes, 3),
            f"{one.blocks:,}",
            f"{one.allocations:,}",
        )
        for one in device.kept
    ]
    title = "Kept all through the window"
    return Sheet(title, "measured", ("bytes", "kept", "of"), rows, "allocated by", recorded=True)
