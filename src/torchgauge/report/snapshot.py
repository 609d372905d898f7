"""What a memory snapshot says: what stands out, how memory is filled, and who holds it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table

from torchgauge import units
from torchgauge.model.snapshot import DeviceMemory, Peak, Snapshot
from torchgauge.report import snapshot_sheets as sheets
from torchgauge.report.console import section_view, warnings_view
from torchgauge.report.plain import plain
from torchgauge.report.snapshot_words import MOST, drawn, titled
from torchgauge.report.sparkline import stepped
from torchgauge.report.text import Text
from torchgauge.report.trace import findings


def render(snapshot: Snapshot) -> str:
    """Return the summary as plain text (see `plain`)."""
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
        grid.add_row("  window", window(device, several=len(snapshot.devices) > 1))
    said = ", ".join(f"{name} {value}" for name, value in sorted(snapshot.settings.items()))
    if said:
        grid.add_row("  settings", said if len(said) <= 300 else f"{said[:299]}…")
    title = (snapshot.name, "bold cyan"), ("  memory snapshot", "dim")
    return Group(Text.assemble(*title), grid)


def window(device: DeviceMemory, *, several: bool = False) -> str:
    """Return what was recorded of a device's events; of `several` devices, whose they are."""
    found = device.window
    of = f"GPU {device.device}: " if several else ""
    if found is None:
        return f"{of}none: the state of one moment"
    length = "" if found.length is None else f"{units.time(found.length)}, "
    told = sum(found.events.values())
    given = found.events.get("alloc", 0)
    events = f"{told:,} event{'s' * (told != 1)}"
    return f"{of}{length}{events}, {given:,} of them allocation{'s' * (given != 1)}"


def _device(
    snapshot: Snapshot, device: DeviceMemory, width: int, top: int
) -> Iterator[RenderableType]:
    yield section_view(sheets.now(device))
    if device.segments:
        yield drawn(sheets.segments(device), width, top)
    if device.peak is not None:
        yield _over_time(device, device.peak, width)
    for sheet in sheets.of_stacks(snapshot, device):
        yield drawn(sheet, width, top)


def _over_time(device: DeviceMemory, peak: Peak, width: int) -> RenderableType:
    wide = min(width, 120) - 30
    rows = [
        (name, most, Text(stepped(device.timeline, column, wide), style=style))
        for (name, most), column, style in zip(
            sheets.course(device, peak), (1, 2), ("cyan", "dim"), strict=False
        )
    ]
    title, figures = "Over the window", ("", "most", "")
    return titled(title, "measured", figures, rows, width=width, notes=(sheets.when(peak),))
