"""A memory snapshot, and what grew between two, as Markdown for an issue or a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.records.snapshot import DeviceMemory, Growth, Snapshot
from torchgauge.report.console import snapshot as snapshot_report
from torchgauge.report.content import growth as growth_report
from torchgauge.report.content import snapshot_sheets as sheets
from torchgauge.report.markdown import markdown_sheet
from torchgauge.report.markdown.markdown_text import (
    Markdown,
    code,
    cut,
    join,
    markdown,
    table,
    text,
    truncated_document,
)


def render(snapshot: Snapshot) -> str:
    """Return what stands out, then of each device how it is filled and by whom."""
    blocks = [markdown("### {}, a memory snapshot", code(snapshot.name))]
    blocks += [join("<br>", _facts(snapshot)), *markdown_sheet.finding_blocks(snapshot.findings)]
    blocks += markdown_sheet.warning_blocks(
        snapshot.warnings
    )  # of many devices the last ones are left out
    for device in snapshot.devices:
        if len(snapshot.devices) > 1:
            blocks.append(markdown("#### GPU {}", str(device.device)))
        blocks += _device(snapshot, device)
    return truncated_document(blocks)


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
    yield from markdown_sheet.section_blocks(sheets.fill_section(device))
    if device.segments:
        yield from markdown_sheet.sheet_blocks(sheets.segments(device))
    if device.peak is not None:
        yield markdown("**Over the window** (measured)")
        yield table(("", "most:"), sheets.timeline_figures(device, device.peak))
        yield text(sheets.peak_text(device.peak))
    for sheet in sheets.stack_sheets(snapshot, device):
        yield from markdown_sheet.sheet_blocks(sheet)


def render_growth(growth: Growth) -> str:
    """Return how much more is held, and by which stacks."""
    _, *rows = markdown_sheet.section_blocks(growth_report.head(growth))
    blocks = [markdown("### Memory of {} → {}", code(growth.baseline), code(growth.current)), *rows]
    for sheet in growth_report.stacks(growth):
        blocks += markdown_sheet.sheet_blocks(sheet)
    if not growth.stacks:
        blocks.append(text(growth_report.NO_CHANGE))
    return truncated_document([*blocks, *markdown_sheet.warning_blocks(growth.warnings)])
