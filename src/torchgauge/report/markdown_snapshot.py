"""A memory snapshot, and what grew between two, as Markdown for an issue or a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.model.snapshot import DeviceMemory, Growth, Snapshot
from torchgauge.report import growth as growth_report
from torchgauge.report import markdown_sheet
from torchgauge.report import snapshot as snapshot_report
from torchgauge.report import snapshot_sheets as sheets
from torchgauge.report.markdown_text import (
    Markdown,
    code,
    cut,
    joined,
    markdown,
    table,
    text,
    together,
)


def render(snapshot: Snapshot) -> str:
    """Return what stands out, then of each device how it is filled and by whom."""
    blocks = [markdown("### {}, a memory snapshot", code(snapshot.name))]
    blocks += [together("<br>", _facts(snapshot)), *markdown_sheet.findings(snapshot.findings)]
    blocks += markdown_sheet.warnings(
        snapshot.warnings
    )  # of many devices the last ones are left out
    for device in snapshot.devices:
        if len(snapshot.devices) > 1:
            blocks.append(markdown("#### GPU {}", str(device.device)))
        blocks += _device(snapshot, device)
    return joined(blocks)


def _facts(snapshot: Snapshot) -> Iterator[Markdown]:
    if len(snapshot.devices) != 1:
        yield text(f"devices: {len(snapshot.devices)}")
    for device in snapshot.devices:
        window = snapshot_report.window(device, several=len(snapshot.devices) > 1)
        yield text(f"window: {window}")
    settings = ", ".join(f"{name} {value}" for name, value in sorted(snapshot.settings.items()))
    if settings:
        yield markdown("settings: {}", cut(settings))


def _device(snapshot: Snapshot, device: DeviceMemory) -> Iterator[Markdown]:
    yield from markdown_sheet.section(sheets.now(device))
    if device.segments:
        yield from markdown_sheet.sheet(sheets.segments(device))
    if device.peak is not None:
        yield markdown("**Over the window** (measured)")
        yield table(("", "most:"), sheets.course(device, device.peak))
        yield text(sheets.when(device.peak))
    for sheet in sheets.of_stacks(snapshot, device):
        yield from markdown_sheet.sheet(sheet)


def render_growth(growth: Growth) -> str:
    """Return how much more is held, and by which stacks."""
    _, *rows = markdown_sheet.section(growth_report.head(growth))
    blocks = [markdown("### Memory of {} → {}", code(growth.baseline), code(growth.current)), *rows]
    for sheet in growth_report.stacks(growth):
        blocks += markdown_sheet.sheet(sheet)
    if not growth.stacks:
        blocks.append(text(growth_report.SAME))
    return joined([*blocks, *markdown_sheet.warnings(growth.warnings)])
