"""What a memory snapshot says: what stands out, how memory is filled, and who holds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from torchgauge import units
from torchgauge.model.snapshot import DeviceMemory, Holding, Peak, Snapshot
from torchgauge.report.bar import bar
from torchgauge.report.console import section_view, warnings_view
from torchgauge.report.plain import plain
from torchgauge.report.sections import Row, Section
from torchgauge.report.snapshot_words import MOST, titled, where
from torchgauge.report.sparkline import sparkline
from torchgauge.report.trace import findings
from torchgauge.report.visible import visible

BAR = 8
CAUSES = {
    "fragmentation": "fragmentation",
    "full": "really full",
    "elsewhere": "free elsewhere",
    "limit": "a limit",
    "unknown": "unknown",
}


def render(snapshot: Snapshot) -> str:
    """Return the summary as plain text, 80 columns wide."""
    return plain(lambda width: view(snapshot, width=width))


def view(snapshot: Snapshot, *, width: int, top: int = MOST) -> RenderableType:
    """Return the summary as something rich prints in `width` columns, `top` stacks of each kind."""
    blocks: list[RenderableType] = [_head(snapshot)]
    if snapshot.findings:
        blocks += [Text(""), findings(snapshot.findings)]
    for device in snapshot.devices:
        if len(snapshot.devices) > 1:
            blocks += [Text(""), Text(f"GPU {device.device}", style="bold cyan")]
        for block in _device(snapshot, device, width, top):
            blocks += [Text(""), block]
    if snapshot.warnings:
        blocks += [Text(""), warnings_view("Warnings", list(snapshot.warnings))]
    return Group(*blocks)


def _head(snapshot: Snapshot) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", width=14, no_wrap=True)
    grid.add_column(overflow="fold")
    if len(snapshot.devices) != 1:
        grid.add_row("  devices", f"{len(snapshot.devices)}")
    for device in snapshot.devices:
        grid.add_row("  window", window(device))
    said = ", ".join(f"{name} {value}" for name, value in sorted(snapshot.settings.items()))
    if said:
        grid.add_row("  settings", visible(said if len(said) <= 300 else f"{said[:299]}…"))
    title = (visible(snapshot.name), "bold cyan"), ("  memory snapshot", "dim")
    return Group(Text.assemble(*title), grid)


def window(device: DeviceMemory) -> str:
    """Return what was recorded of a device's events."""
    found = device.window
    if found is None:
        return "none: the state of one moment"
    length = "" if found.length is None else f"{units.time(found.length)}, "
    told = sum(found.events.values())
    given = found.events.get("alloc", 0)
    return f"{length}{told:,} events, {given:,} of them allocations"


def _device(
    snapshot: Snapshot, device: DeviceMemory, width: int, top: int
) -> Iterator[RenderableType]:
    yield section_view(_now(device))
    if device.segments:
        yield _segments(device, width, top)
    if device.peak is not None:
        yield _over_time(device, device.peak, width)
        if device.peak.held:
            rows, total = device.peak.held, device.peak.bytes
            yield _holders(snapshot, "Alive at the peak", rows, total, width, top)
    if device.ooms:
        yield _ooms(snapshot, device, width)
    if device.alive:
        total = device.allocated + device.pending
        yield _holders(snapshot, "Alive at the end", device.alive, total, width, top)
    if device.kept:
        yield _kept(snapshot, device, width, top)


def _now(device: DeviceMemory) -> Section:
    of = device.reserved or 1
    lost = device.fragmentation

    def row(label: str, value: int | None, note: str = "", *, share: bool = True) -> Row:
        known = value is not None and share
        return Row(label, units.size(value), note, (value or 0) / of if known else None)

    rows = [
        row("reserved", device.reserved, f"{len(device.segments):,} segments", share=False),
        row("in use", device.allocated, f"{device.blocks:,} blocks"),
    ]
    if device.pending:
        rows.append(row("pending", device.pending, "freed"))
    rows.append(row("free", lost.cached, f"largest {units.size(lost.largest, 3)}"))
    if device.unlisted:
        rows.append(row("unlisted", device.unlisted))
    rows.append(row("split", lost.split, "between blocks"))
    rows.append(row("rounding", lost.internal, "not asked for"))
    return Section("Memory at the end", "counted", tuple(rows))


def _segments(device: DeviceMemory, width: int, top: int) -> RenderableType:
    figures = ("count", "size", "in use", "", "free", "largest", "")
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
                f"{count:,}",
                units.size(size, 3),
                *_share(used, size),
                units.size(free, 3),
                units.size(largest, 3),
                visible(", ".join(part for part in parts if part)),
            )
        )
    return titled("Segments", "counted", figures, rows, width=width, most=top)


def _share(part: int, whole: int) -> tuple[str, Text]:
    share = part / whole if whole else 0.0
    return units.percent(share), Text(bar(share, BAR), style="cyan")


def _over_time(device: DeviceMemory, peak: Peak, width: int) -> RenderableType:
    wide = min(width, 120) - 30
    rows: list[tuple[str | Text, ...]] = [
        ("alive", units.size(peak.bytes), Text(_drawn(device, 1, wide), style="cyan"))
    ]
    reserved = [point[2] for point in device.timeline if point[2] is not None]
    if reserved:
        drawn = Text(_drawn(device, 2, wide), style="dim")
        rows.append(("reserved", units.size(max(reserved)), drawn))
    at = "" if peak.at is None else f", {units.time(peak.at)} after the first"
    when = "before the first event" if peak.event < 0 else f"at event {peak.event:,}{at}"
    note = f"Peak {when}. Alive: as asked for, until the free is complete."
    figures = ("", "most", "")
    return titled("Over the window", "measured", figures, rows, width=width, note=note)


def _drawn(device: DeviceMemory, column: int, width: int) -> str:
    """Draw a column of the timeline by time: a point holds until the next."""
    points = device.timeline
    end = points[-1][0] or 1.0
    columns: list[float] = [0.0] * width
    for one, following in zip(points, (*points[1:], points[-1]), strict=True):
        begin = min(int(one[0] / end * width), width - 1)
        last = min(int(following[0] / end * width), width - 1)
        for at in range(begin, last + 1):
            columns[at] = max(columns[at], float(one[column] or 0))
    return sparkline(columns, width)


def _holders(
    snapshot: Snapshot, title: str, held: Sequence[Holding], total: int, width: int, top: int
) -> RenderableType:
    categories: Counter[str] = Counter()
    for one in held:
        kind = "unknown" if one.stack is None else snapshot.stacks[one.stack].category
        categories[kind] += one.bytes
    rows = [
        (
            units.size(one.bytes, 3),
            *_share(one.bytes, total),
            f"{one.blocks:,}",
            _where(snapshot, one.stack),
        )
        for one in held
    ]
    parts = [
        f"{name} {units.percent(size / (total or 1))}" for name, size in categories.most_common()
    ]
    note = f"By what stacks let guess (estimated): {', '.join(parts)}."
    return titled(
        title,
        "measured",
        ("bytes", "share", "", "blocks", "allocated by"),
        rows,
        width=width,
        most=top,
        note="" if set(categories) <= {"unknown"} else note,
    )


def _where(snapshot: Snapshot, row: int | None) -> Text:
    return where(None if row is None else snapshot.stacks[row])


def _ooms(snapshot: Snapshot, device: DeviceMemory, width: int) -> RenderableType:
    rows: list[tuple[str | Text, ...]] = [
        (
            units.size(one.asked, 3),
            *(_size(value) for value in (one.device_free, one.cached, one.largest)),
            CAUSES[one.cause],
            _where(snapshot, one.stack),
        )
        for one in device.ooms[::-1]
    ]
    return titled(
        "Allocations that failed",
        "estimated",
        ("asked", "device left", "free", "largest", "cause", "by"),
        rows,
        width=width,
        note="The last first. free: in segments, and the largest such piece, by the events.",
    )


def _size(value: int | None) -> str:
    return "–" if value is None else units.size(value, 3)


def _kept(snapshot: Snapshot, device: DeviceMemory, width: int, top: int) -> RenderableType:
    rows = [
        (
            units.size(one.bytes, 3),
            f"{one.blocks:,}",
            f"{one.allocations:,}",
            _where(snapshot, one.stack),
        )
        for one in device.kept
    ]
    figures = ("bytes", "kept", "of", "allocated by")
    return titled("Kept all through the window", "measured", figures, rows, width=width, most=top)
