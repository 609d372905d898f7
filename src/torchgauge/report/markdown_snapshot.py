"""A memory snapshot, and what grew between two, as Markdown for an issue or a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.model.snapshot import DeviceMemory, Growth, Snapshot
from torchgauge.report import growth as growth_report
from torchgauge.report import markdown_sheet as markdown
from torchgauge.report import snapshot as snapshot_report
from torchgauge.report import snapshot_sheets as sheets
from torchgauge.report.markdown_text import code, cut, joined, table, text


def render(snapshot: Snapshot) -> str:
    """Return what stands out, then of each device how it is filled and by whom."""
    blocks = [f"### {code(snapshot.name)}, a memory snapshot"]
    blocks += ["<br>".join(_facts(snapshot)), *markdown.findings(snapshot.findings)]
    blocks += markdown.warnings(snapshot.warnings)  # of many devices the last ones are left out
    for device in snapshot.devices:
        if len(snapshot.devices) > 1:
            blocks.append(f"#### GPU {device.device}")
        blocks += _device(snapshot, device)
    return joined([block for block in blocks if block])


def _facts(snapshot: Snapshot) -> Iterator[str]:
    if len(snapshot.devices) != 1:
        yield f"devices: {len(snapshot.devices)}"
    for device in snapshot.devices:
        yield f"window: {text(snapshot_report.window(device, several=len(snapshot.devices) > 1))}"
    settings = ", ".join(f"{name} {value}" for name, value in sorted(snapshot.settings.items()))
    if settings:
        yield f"settings: {cut(text(settings))}"


def _device(snapshot: Snapshot, device: DeviceMemory) -> Iterator[str]:
    yield from markdown.section(sheets.now(device))
    if device.segments:
        yield from markdown.sheet(sheets.segments(device))
    if device.peak is not None:
        yield "**Over the window** (measured)"
        yield table(("", "most:"), sheets.course(device, device.peak))
        yield text(sheets.when(device.peak))
    for sheet in sheets.of_stacks(snapshot, device):
        yield from markdown.sheet(sheet)


def render_growth(growth: Growth) -> str:
    """Return how much more is held, and by which stacks."""
    _, *rows = markdown.section(growth_report.head(growth))
    blocks = [f"### Memory of {code(growth.baseline)} → {code(growth.current)}", *rows]
    for sheet in growth_report.stacks(growth):
        blocks += markdown.sheet(sheet)
    if not growth.stacks:
        blocks.append(growth_report.SAME)
    return joined([*blocks, *markdown.warnings(growth.warnings)])
