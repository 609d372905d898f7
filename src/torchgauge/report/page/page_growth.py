"""The page of memory growth between two snapshots, by stack; bytes."""

from __future__ import annotations

from typing import Any

from torchgauge import units
from torchgauge.records.snapshot import Growth, StackGrowth
from torchgauge.report.content.snapshot import growth_title, signed, stacks
from torchgauge.report.page.page_comparison import BARS, chart
from torchgauge.report.page.page_document import figure, finding, first_screen
from torchgauge.report.page.page_shorter import short, shortened_table
from torchgauge.report.page.page_snapshot import MAX_ROWS
from torchgauge.report.page.page_tables import document_table
from torchgauge.report.tables.snapshot_tables import stack_text

FINDINGS = 3


def overview(growth: Growth) -> dict[str, Any]:
    """Return the first screen of a growth."""
    largest = [change for change in growth.stacks if change.growth > 0][:FINDINGS]
    return first_screen(
        (
            [name, short(snapshot_name), ""]
            for name, snapshot_name in (("before", growth.baseline), ("after", growth.current))
        ),
        (
            _figure("held", growth.before, growth.after),
            _figure("reserved", growth.reserved_before, growth.reserved_after),
        ),
        map(_finding, largest),
        growth.warnings,
    )


def _figure(label: str, before: int, after: int) -> dict[str, str]:
    change = f"{signed(after - before)}, was {units.size(before)}" * (after != before)
    return figure(label, units.size(after), change or "as before", "counted", "contributions")


def _finding(change: StackGrowth) -> dict[str, Any]:
    blocks = f"{change.after_blocks:,} blocks, before {change.before_blocks:,}"
    title = short(f"{signed(change.growth)} by {stack_text(change.stack)}")
    return finding(title, f"{units.size(change.after)} in {blocks}.", "tables")


def contributions(growth: Growth) -> list[dict[str, Any]] | None:
    """Return each stack's share of the growth; None where no stack differs."""
    if not growth.stacks:
        return None
    largest = sorted(growth.stacks, key=lambda change: -abs(change.growth))[:BARS]
    total = growth.after - growth.before
    remainder = total - sum(change.growth for change in largest)
    return [
        chart(
            "",
            [[_stack(change), change.growth, None] for change in largest],
            (remainder, f"{len(growth.stacks) - len(largest):,} other stacks"),
            (total, "held as a whole"),
            "Bytes in use or pending, by who allocated them.",
            "growth",
        )
    ]


def tables(growth: Growth) -> list[dict[str, Any]] | None:
    """Return every stack that holds more or less than before."""
    if not growth.stacks:
        return None
    return [
        shortened_table(document_table(stacks("stacks", growth.stacks)), MAX_ROWS) | {"nodes": []}
    ]


def _stack(change: StackGrowth) -> str:
    return short(str(stack_text(change.stack)))


title = growth_title
PARTS = {"overview": overview, "contributions": contributions, "tables": tables}
