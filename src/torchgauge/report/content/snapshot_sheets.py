"""The tables of a memory snapshot: how segments are filled, and which stacks hold memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from torchgauge import units
from torchgauge.records.snapshot import DeviceMemory, Holding, Peak, Snapshot
from torchgauge.report.console.bar import bar
from torchgauge.report.content.section import Row, Section
from torchgauge.report.content.sheet import Cell, Sheet
from torchgauge.report.content.snapshot_words import stack_text

BAR = 8
CAUSES = {
    "fragmentation": "fragmentation",
    "full": "really full",
    "elsewhere": "free elsewhere",
    "limit": "a limit",
    "unknown": "unknown",
}


def fill_section(device: DeviceMemory) -> Section:
    """Say how the device's memory is filled."""
    total = device.reserved or 1
    lost = device.fragmentation

    def row(label: str, value: int | None, note: str = "", *, share: bool = True) -> Row:
        has_share = value is not None and share
        return Row(label, units.size(value), note, (value or 0) / total if has_share else None)

    segments_text = f"{len(device.segments):,} segment{'s' * (len(device.segments) != 1)}"
    blocks_text = f"{device.blocks:,} block{'s' * (device.blocks != 1)}"
    rows = [
        row("reserved", device.reserved, segments_text, share=False),
        row(
            "in use",
            device.allocated,
            f"{blocks_text} with pending" if device.pending else blocks_text,
        ),
    ]
    if device.pending:
        rows.append(row("pending", device.pending, "freed"))
    rows.append(row("free", lost.cached, f"largest {units.size(lost.largest, 3)}"))
    if device.unlisted:
        rows.append(row("unlisted", device.unlisted))
    rows.append(row("split", lost.split, "between blocks"))
    rows.append(row("rounding", lost.internal, "not asked for"))
    return Section("Memory at the end", "counted", tuple(rows))


def timeline_figures(device: DeviceMemory, peak: Peak) -> list[tuple[str, str]]:
    """Return the largest value of each curve that is drawn over the window."""
    reserved = [point[2] for point in device.timeline if point[2] is not None]
    peak_reserved = [("reserved", units.size(max(reserved)))] if reserved else []
    return [("alive", units.size(peak.bytes)), *peak_reserved]


def peak_text(peak: Peak) -> str:
    """Say when the most was alive."""
    time_text = "" if peak.time is None else f", {units.time(peak.time)} after the first"
    position = "before the first event" if peak.event < 0 else f"at event {peak.event:,}{time_text}"
    return f"Peak {position}. Alive: as asked for, until the free is complete."


def segments(device: DeviceMemory) -> Sheet:
    """Return how the segments of each kind are filled, the largest kind first."""
    kinds: dict[tuple[str, str, int, bool], list[int]] = {}
    for segment in device.segments:
        sums = kinds.setdefault(
            (segment.kind, segment.pool, segment.stream, segment.expandable), [0] * 5
        )
        used = segment.allocated + segment.pending
        for column, value in enumerate((1, segment.size, used, segment.free)):
            sums[column] += value
        sums[4] = max(sums[4], segment.largest_free)
    rows = []
    for (kind, pool, stream, expandable), sums in sorted(
        kinds.items(), key=lambda segment: -segment[1][1]
    ):
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


def _share(part: int, total: int) -> tuple[str, str]:
    share = part / total if total else 0.0
    return units.percent(share), bar(share, BAR)


def stack_sheets(snapshot: Snapshot, device: DeviceMemory) -> Iterator[Sheet]:
    """Yield the stacks that held memory at the peak and the end, ran out of it, or kept it."""
    if device.peak is not None and device.peak.held:
        held, total = device.peak.held, device.peak.bytes
        yield _holders(snapshot, "Alive at the peak", held, total)
    if device.ooms:
        yield _ooms(snapshot, device)
    if device.alive:
        total = device.allocated + device.pending
        yield _holders(snapshot, "Alive at the end", device.alive, total)
    if device.possible_leaks:
        yield _persistent(snapshot, device)


def _holders(snapshot: Snapshot, title: str, held: Sequence[Holding], total: int) -> Sheet:
    categories: Counter[str] = Counter()
    for holding in held:
        kind = "unknown" if holding.stack is None else snapshot.stacks[holding.stack].category
        categories[kind] += holding.bytes
    rows = [
        (
            _stack_cell(snapshot, holding.stack),
            units.size(holding.bytes, 3),
            *_share(holding.bytes, total),
            f"{holding.blocks:,}",
        )
        for holding in held
    ]
    parts = [
        f"{name} {units.percent(size / (total or 1))}" for name, size in categories.most_common()
    ]
    note = f"By what stacks let guess (estimated): {', '.join(parts)}."
    notes = () if set(categories) <= {"unknown"} else (note,)
    names = ("bytes", "share", "", "blocks")
    return Sheet(title, "measured", names, rows, "allocated by", recorded=True, notes=notes)


def _stack_cell(snapshot: Snapshot, row: int | None) -> Cell:
    return stack_text(None if row is None else snapshot.stacks[row])


def _ooms(snapshot: Snapshot, device: DeviceMemory) -> Sheet:
    rows = [
        (
            _stack_cell(snapshot, oom.stack),
            units.size(oom.requested, 3),
            *(_size(value) for value in (oom.device_free, oom.cached, oom.largest)),
            CAUSES[oom.cause],
        )
        for oom in device.ooms[::-1]
    ]
    names = ("asked", "device left", "free", "largest", "cause")
    note = "The last first. free: in segments, and the largest such piece, by the events."
    title = "Allocations that failed"
    return Sheet(title, "estimated", names, rows, "by", recorded=True, notes=(note,))


def _size(value: int | None) -> str:
    return "–" if value is None else units.size(value, 3)


def _persistent(snapshot: Snapshot, device: DeviceMemory) -> Sheet:
    rows = [
        (
            _stack_cell(snapshot, holder.stack),
            units.size(holder.bytes, 3),
            f"{holder.blocks:,}",
            f"{holder.allocations:,}",
        )
        for holder in device.possible_leaks
    ]
    title = "Kept all through the window"
    return Sheet(title, "measured", ("bytes", "kept", "of"), rows, "allocated by", recorded=True)
