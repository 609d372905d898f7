"""What grew between two memory snapshots, by stack."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType

from torchgauge import units
from torchgauge.model.snapshot import Growth
from torchgauge.report.console import section_view, warnings_view
from torchgauge.report.plain import plain
from torchgauge.report.section import Row, Section
from torchgauge.report.sheet import Sheet
from torchgauge.report.snapshot_words import MOST, drawn, where
from torchgauge.report.text import Text

SAME = "No stack holds more or less than before."


def render(growth: Growth) -> str:
    """Return the growth as plain text (see `plain`)."""
    return plain(lambda width: view(growth, width=width))


def view(growth: Growth, *, width: int, top: int = MOST) -> RenderableType:
    """Return the growth as something rich prints in `width` columns, `top` stacks."""
    blocks: list[RenderableType] = [section_view(head(growth))]
    for sheet in stacks(growth):
        blocks += [Text(""), drawn(sheet, width, top)]
    if not growth.stacks:
        blocks += [Text(""), Text(SAME)]
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
    more = [one for one in growth.stacks if one.growth > 0]
    less = [one for one in growth.stacks if one.growth <= 0]
    for title, listed in (("What grew", more), ("What shrank", less[::-1])):
        rows = [
            (
                where(one.stack),
                signed(one.growth),
                units.size(one.after, 3),
                f"{one.after_blocks - one.before_blocks:+,}".replace("-", "−"),
                f"{one.after_blocks:,}",
            )
            for one in listed
        ]
        if rows:
            names = ("bytes", "now", "blocks", "now")
            yield Sheet(title, "counted", names, rows, "allocated by", recorded=True)
