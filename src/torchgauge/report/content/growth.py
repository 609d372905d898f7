"""What grew between two memory snapshots, by stack."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType

from torchgauge import units
from torchgauge.records.snapshot import Growth
from torchgauge.report.console.console import section_view, warnings_view
from torchgauge.report.console.plain import plain
from torchgauge.report.console.text import Text
from torchgauge.report.content.section import Row, Section
from torchgauge.report.content.sheet import Sheet
from torchgauge.report.content.snapshot_words import MAX_ROWS, drawn, stack_text

NO_CHANGE = "No stack holds more or less than before."


def render(growth: Growth) -> str:
    """Return the growth as plain text (see `plain`)."""
    return plain(lambda width: view(growth, width=width))


def view(growth: Growth, *, width: int, top: int = MAX_ROWS) -> RenderableType:
    """Return the growth as something rich prints in `width` columns, `top` stacks."""
    blocks: list[RenderableType] = [section_view(head(growth))]
    for sheet in stacks(growth):
        blocks += [Text(""), drawn(sheet, width, top)]
    if not growth.stacks:
        blocks += [Text(""), Text(NO_CHANGE)]
    if growth.warnings:
        blocks += [Text(""), warnings_view("Warnings", list(growth.warnings))]
    return Group(*blocks)


def head(growth: Growth) -> Section:
    """Say how much more is held, which is in use or pending, and reserved."""
    rows = (
        _row("held", growth.before, growth.after),
        _row("reserved", growth.reserved_before, growth.reserved_after),
    )
    names = f"{growth.baseline} → {growth.current}"
    return Section(names, "memory snapshots", rows)


def _row(label: str, before: int, after: int) -> Row:
    return Row(label, units.size(after), f"{signed(after - before)} from {units.size(before)}")


def signed(size: int) -> str:
    """Format a difference of sizes with its sign."""
    return f"{'−' if size < 0 else '+'}{units.size(abs(size), 3)}"


def stacks(growth: Growth) -> Iterator[Sheet]:
    """Yield which stacks hold more, and which less, the most change first."""
    growing = [change for change in growth.stacks if change.growth > 0]
    shrinking = [change for change in growth.stacks if change.growth <= 0]
    for title, listed in (("What grew", growing), ("What shrank", shrinking[::-1])):
        rows = [
            (
                stack_text(change.stack),
                signed(change.growth),
                units.size(change.after, 3),
                f"{change.after_blocks - change.before_blocks:+,}".replace("-", "−"),
                f"{change.after_blocks:,}",
            )
            for change in listed
        ]
        if rows:
            names = ("bytes", "now", "blocks", "now")
            yield Sheet(title, "counted", names, rows, "allocated by", recorded=True)
