"""A memory snapshot: findings, how memory is filled, and which stacks hold it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchgauge import units
from torchgauge.records.snapshot import DeviceMemory, Growth, Snapshot, StackGrowth
from torchgauge.report.content import document as doc
from torchgauge.report.content.section import Row, Section
from torchgauge.report.tables import snapshot_tables
from torchgauge.report.tables.snapshot_tables import stack_text

LONGEST_SETTINGS = 300  # characters


def title(snapshot: Snapshot) -> str:
    """Return the name of the snapshot's file."""
    return snapshot.name


def document(snapshot: Snapshot, options: doc.Options) -> doc.Document:
    """Return what stands out, then of each device how it is filled and by whom."""
    blocks: list[doc.Block] = [doc.Findings(snapshot.findings)] if snapshot.findings else []
    for device in snapshot.devices:
        if len(snapshot.devices) > 1:
            blocks.append(doc.Heading(f"GPU {device.device}"))
        blocks += _device(snapshot, device, options.top)
    blocks += [doc.Warnings(snapshot.warnings)] if snapshot.warnings else []
    return doc.Document(
        title(snapshot),
        "memory snapshot",
        facts=_facts(snapshot),
        blocks=blocks,
        names=(snapshot.name,),
    )


def _facts(snapshot: Snapshot) -> doc.Facts:
    several = len(snapshot.devices) > 1
    pairs = [("devices", f"{len(snapshot.devices)}")] if len(snapshot.devices) != 1 else []
    pairs += [("window", window(device, several=several)) for device in snapshot.devices]
    settings = settings_text(snapshot)
    if len(settings) > LONGEST_SETTINGS:
        settings = f"{settings[: LONGEST_SETTINGS - 1]}…"
    return doc.Facts(pairs + ([("settings", settings)] if settings else []))


def settings_text(snapshot: Snapshot) -> str:
    """Return the allocator's settings on one line."""
    return ", ".join(f"{name} {value}" for name, value in sorted(snapshot.settings.items()))


def window(device: DeviceMemory, *, several: bool = False) -> str:
    """Return how many events of a device were recorded; of `several`, with the device's name."""
    recorded_window = device.window
    prefix = f"GPU {device.device}: " if several else ""
    if recorded_window is None:
        return f"{prefix}none: the state of one moment"
    length = "" if recorded_window.length is None else f"{units.time(recorded_window.length)}, "
    event_count = sum(recorded_window.events.values())
    allocation_count = recorded_window.events.get("alloc", 0)
    events = f"{event_count:,} event{'s' * (event_count != 1)}"
    allocations = f"{allocation_count:,} of them allocation{'s' * (allocation_count != 1)}"
    return f"{prefix}{length}{events}, {allocations}"


def _device(snapshot: Snapshot, device: DeviceMemory, top: int) -> Iterator[doc.Block]:
    yield snapshot_tables.fill_section(device)
    if device.segments:
        yield snapshot_tables.segments(device, top)
    if device.peak is not None:
        yield snapshot_tables.over_time(device, device.peak)
    yield from snapshot_tables.stack_tables(snapshot, device, top)


STACKS = (
    doc.Column("growth", unit="growth"),
    doc.Column("before", unit="bytes", medium="page"),
    doc.Column("after", "now", "bytes"),
    doc.Column(
        "blocks",
        get=lambda change: units.with_minus(f"{change.after_blocks - change.before_blocks:+,}"),
        medium="text",
    ),
    doc.Column("before_blocks", "blocks before", "count", medium="page"),
    doc.Column("after_blocks", "blocks now", "count"),
    doc.Column("device", "GPU", "count", medium="page"),
    doc.Column("category", get=lambda change: change.stack.category, medium="page"),
)


def growth_title(growth: Growth) -> str:
    """Return the names of both snapshots."""
    return f"{growth.baseline} → {growth.current}"


def growth_document(growth: Growth, options: doc.Options) -> doc.Document:
    """Return how much more is held, which is in use or pending, and by which stacks."""
    rows = (
        _row("held", growth.before, growth.after),
        _row("reserved", growth.reserved_before, growth.reserved_after),
    )
    blocks: list[doc.Block] = [Section("", "counted", rows), *_stacks(growth, options.top)]
    if not growth.stacks:
        blocks.append(doc.Note("No stack holds more or less than before."))
    blocks += [doc.Warnings(growth.warnings)] if growth.warnings else []
    names = (growth.baseline, growth.current)
    return doc.Document(growth_title(growth), "memory snapshots", blocks=blocks, names=names)


def _row(label: str, before: int, after: int) -> Row:
    return Row(label, units.size(after), f"{signed(after - before)} from {units.size(before)}")


def signed(size: int) -> str:
    """Format a difference of sizes with its sign."""
    return doc.FORMATS["growth"](size)


def _stacks(growth: Growth, top: int) -> Iterator[doc.Table]:
    """Yield which stacks hold more, and which less, the most change first."""
    growing = [change for change in growth.stacks if change.growth > 0]
    shrinking = [change for change in growth.stacks if change.growth <= 0]
    for heading, listed in (("What grew", growing), ("What shrank", shrinking[::-1])):
        if listed:
            yield stacks(heading, listed, top)


def stacks(heading: str, changes: Sequence[StackGrowth], top: int | None = None) -> doc.Table:
    """Return how much more each stack holds."""
    rows = doc.rows_of(STACKS, changes, lambda change: stack_text(change.stack))
    return doc.Table(
        title=heading, how="counted", first="allocated by", columns=STACKS, rows=rows,
        recorded=True, top=top, layout="names last",
    )  # fmt: skip
