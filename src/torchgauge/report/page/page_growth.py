"""The page of memory growth between two snapshots, by stack; bytes."""

from __future__ import annotations

from typing import Any

from torchgauge import units
from torchgauge.records.snapshot import Growth, StackGrowth
from torchgauge.report.content.growth import signed
from torchgauge.report.page.page_comparison import BARS
from torchgauge.report.page.page_profile import warnings
from torchgauge.report.page.page_shorter import short
from torchgauge.report.page.page_snapshot import first_rows
from torchgauge.report.page.page_tables import Column, table
from torchgauge.report.tables.snapshot_tables import stack_text

FINDINGS = 3
_STACKS = (
    Column("stack", "allocated by", "text"),
    Column("growth", "growth", "growth"),
    Column("before", "before", "bytes"),
    Column("after", "after", "bytes"),
    Column("before_blocks", "blocks before", "count"),
    Column("after_blocks", "blocks after", "count"),
    Column("device", "GPU", "count"),
    Column("category", "category", "text"),
)


def overview(growth: Growth) -> dict[str, Any]:
    """Return the first screen of a growth."""
    largest = [change for change in growth.stacks if change.growth > 0][:FINDINGS]
    return {
        "facts": [
            [name, short(snapshot_name), ""]
            for name, snapshot_name in (("before", growth.baseline), ("after", growth.current))
        ],
        "created": "",
        "figures": [
            _figure("held", growth.before, growth.after),
            _figure("reserved", growth.reserved_before, growth.reserved_after),
        ],
        "bound": None,
        "phases": None,
        "findings": [_finding(change) for change in largest],
        "warnings": warnings(growth.warnings),
        "complete": True,
        "interrupted": False,
    }


def _figure(label: str, before: int, after: int) -> dict[str, str]:
    return {
        "label": label,
        "value": units.size(after),
        "note": f"{signed(after - before)}, was {units.size(before)}" * (after != before)
        or "as before",
        "how": "counted",
        "view": "contributions",
    }


def _finding(change: StackGrowth) -> dict[str, Any]:
    blocks = f"{change.after_blocks:,} blocks, before {change.before_blocks:,}"
    return {
        "title": short(f"{signed(change.growth)} by {stack_text(change.stack)}"),
        "text": f"{units.size(change.after)} in {blocks}.",
        "view": "tables",
        "node": None,
        "search": "",
    }


def contributions(growth: Growth) -> list[dict[str, Any]] | None:
    """Return each stack's share of the growth; None where no stack differs."""
    if not growth.stacks:
        return None
    bars = sorted(growth.stacks, key=lambda change: -abs(change.growth))[:BARS]
    total = growth.after - growth.before
    return [
        {
            "title": "",
            "note": "Bytes in use or pending, by who allocated them.",
            "bars": [
                [short(str(stack_text(change.stack))), change.growth, None] for change in bars
            ],
            "rest": total - sum(change.growth for change in bars),
            "others": f"{len(growth.stacks) - len(bars):,} other stacks",
            "total": total,
            "whole": "held as a whole",
            "unit": "growth",
        }
    ]


def tables(growth: Growth) -> list[dict[str, Any]] | None:
    """Return every stack that holds more or less than before."""
    if not growth.stacks:
        return None
    cells: dict[str, list[Any]] = {
        column.key: [getattr(change, column.key) for change in growth.stacks]
        for column in _STACKS
        if column.key not in ("stack", "category")
    }
    cells["stack"] = [short(str(stack_text(change.stack))) for change in growth.stacks]
    cells["category"] = [change.stack.category for change in growth.stacks]
    return [first_rows(table("stacks", _STACKS, cells))]


PARTS = {"overview": overview, "contributions": contributions, "tables": tables}
