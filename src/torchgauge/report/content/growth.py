"""What grew between two memory snapshots, by stack."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.records.snapshot import Growth
from torchgauge.report.content.document import (
    Block,
    Column,
    Document,
    Note,
    Options,
    Table,
    Warnings,
    rows_of,
)
from torchgauge.report.content.section import Row, Section
from torchgauge.report.tables.snapshot_tables import stack_text

STACKS = (
    Column("bytes", get=lambda change: signed(change.growth)),
    Column("after", title="now", unit="bytes"),
    Column(
        "blocks",
        get=lambda change: units.with_minus(f"{change.after_blocks - change.before_blocks:+,}"),
    ),
    Column("after_blocks", title="now", unit="count"),
)


def title(growth: Growth) -> str:
    """Return the names of both snapshots."""
    return f"{growth.baseline} → {growth.current}"


def document(growth: Growth, options: Options) -> Document:
    """Return how much more is held, which is in use or pending, and by which stacks."""
    rows = (
        _row("held", growth.before, growth.after),
        _row("reserved", growth.reserved_before, growth.reserved_after),
    )
    blocks: list[Block] = [Section("", "counted", rows), *_stacks(growth, options.top)]
    if not growth.stacks:
        blocks.append(Note("No stack holds more or less than before."))
    blocks += [Warnings(growth.warnings)] if growth.warnings else []
    names = (growth.baseline, growth.current)
    return Document(title(growth), "memory snapshots", blocks=blocks, names=names)


def _row(label: str, before: int, after: int) -> Row:
    return Row(label, units.size(after), f"{signed(after - before)} from {units.size(before)}")


def signed(size: int) -> str:
    """Format a difference of sizes with its sign."""
    return f"{'−' if size < 0 else '+'}{units.size(abs(size), 3)}"


def _stacks(growth: Growth, top: int) -> Iterator[Table]:
    """Yield which stacks hold more, and which less, the most change first."""
    growing = [change for change in growth.stacks if change.growth > 0]
    shrinking = [change for change in growth.stacks if change.growth <= 0]
    for heading, listed in (("What grew", growing), ("What shrank", shrinking[::-1])):
        if listed:
            rows = rows_of(STACKS, listed, lambda change: stack_text(change.stack))
            yield Table(
                title=heading, how="counted", first="allocated by", columns=STACKS, rows=rows,
                recorded=True, top=top, layout="names last",
            )  # fmt: skip
