"""What grew between two memory snapshots, by stack."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from torchgauge import units
from torchgauge.model.snapshot import Grown, Growth
from torchgauge.report.console import section_view, warnings_view
from torchgauge.report.plain import plain
from torchgauge.report.sections import Row, Section
from torchgauge.report.snapshot_words import MOST, titled, where
from torchgauge.report.visible import visible


def render(growth: Growth) -> str:
    """Return the growth as plain text, 80 columns wide."""
    return plain(lambda width: view(growth, width=width))


def view(growth: Growth, *, width: int, top: int = MOST) -> RenderableType:
    """Return the growth as something rich prints in `width` columns, `top` stacks."""
    rows = (
        _row("in use", growth.before, growth.after),
        _row("reserved", growth.reserved_before, growth.reserved_after),
    )
    names = f"{visible(growth.baseline)} → {visible(growth.current)}"
    blocks: list[RenderableType] = [section_view(Section(names, "memory snapshots", rows))]
    more = [one for one in growth.stacks if one.growth > 0]
    less = [one for one in growth.stacks if one.growth <= 0]
    for title, listed in (("What grew", more), ("What shrank", less[::-1])):
        if listed:
            blocks += [Text(""), _stacks(title, listed, width, top)]
    if not growth.stacks:
        blocks += [Text(""), Text("No stack holds more or less than before.")]
    if growth.warnings:
        blocks += [Text(""), warnings_view("Warnings", list(growth.warnings))]
    return Group(*blocks)


def _row(label: str, before: int, after: int) -> Row:
    return Row(label, units.size(after), f"{signed(after - before)} from {units.size(before)}")


def signed(size: int) -> str:
    """Format a difference of sizes with its sign."""
    return f"{'−' if size < 0 else '+'}{units.size(abs(size), 3)}"


def _stacks(title: str, listed: list[Grown], width: int, top: int) -> RenderableType:
    rows = [
        (
            signed(one.growth),
            units.size(one.after, 3),
            f"{one.after_blocks - one.before_blocks:+,}".replace("-", "−"),
            f"{one.after_blocks:,}",
            where(one.stack),
        )
        for one in listed
    ]
    figures = ("bytes", "now", "blocks", "now", "allocated by")
    return titled(title, "counted", figures, rows, width=width, most=top)
