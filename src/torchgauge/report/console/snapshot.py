"""A memory snapshot for a terminal: findings, how memory is filled, and which stacks hold it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table

from torchgauge import units
from torchgauge.records.snapshot import DeviceMemory, Peak, Snapshot
from torchgauge.report.console.console import section_view, warnings_view
from torchgauge.report.console.plain import plain
from torchgauge.report.console.sparkline import stepped
from torchgauge.report.console.text import Text
from torchgauge.report.console.trace import findings
from torchgauge.report.content import snapshot_sheets as sheets
from torchgauge.report.content.snapshot_words import MAX_ROWS, drawn, titled


def render(snapshot: Snapshot) -> str:
    """Return the summary as plain text (see `plain`)."""
    return plain(lambda width: view(snapshot, width=width))


def view(snapshot: Snapshot, *, width: int, top: int = MAX_ROWS) -> RenderableType:
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
        grid.add_row("  window", window(device, several=len(snapshot.devices) > 1))
    settings = ", ".join(f"{name} {value}" for name, value in sorted(snapshot.settings.items()))
    if settings:
        grid.add_row("  settings", settings if len(settings) <= 300 else f"{settings[:299]}…")
    title = (snapshot.name, "bold cyan"), ("  memory snapshot", "dim")
    return Group(Text.assemble(*title), grid)


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


def _device(
    snapshot: Snapshot, device: DeviceMemory, width: int, top: int
) -> Iterator[RenderableType]:
    yield section_view(sheets.fill_section(device))
    if device.segments:
        yield drawn(sheets.segments(device), width, top)
    if device.peak is not None:
        yield _over_time(device, device.peak, width)
    for sheet in sheets.stack_sheets(snapshot, device):
        yield drawn(sheet, width, top)


def _over_time(device: DeviceMemory, peak: Peak, width: int) -> RenderableType:
    plot_width = min(width, 120) - 30
    rows = [
        (name, maximum, Text(stepped(device.timeline, column, plot_width), style=style))
        for (name, maximum), column, style in zip(
            sheets.timeline_figures(device, peak), (1, 2), ("cyan", "dim"), strict=False
        )
    ]
    title, figures = "Over the window", ("", "most", "")
    return titled(title, "measured", figures, rows, width=width, notes=(sheets.peak_text(peak),))
