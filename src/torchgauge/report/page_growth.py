"""The page of what grew between two memory snapshots, by stack; bytes."""

from __future__ import annotations

from typing import Any

from torchgauge import units
from torchgauge.model.snapshot import Grown, Growth
from torchgauge.report.growth import signed
from torchgauge.report.page_comparison import BARS
from torchgauge.report.page_overview import warnings
from torchgauge.report.page_shorter import short
from torchgauge.report.page_snapshot import cut
from torchgauge.report.page_tables import Column, table
from torchgauge.report.snapshot_words import where

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
    most = [one for one in growth.stacks if one.growth > 0][:FINDINGS]
    return {
        "facts": [
            [name, short(said), ""]
            for name, said in (("before", growth.baseline), ("after", growth.current))
        ],
        "created": "",
        "figures": [
            _figure("held", growth.before, growth.after),
            _figure("reserved", growth.reserved_before, growth.reserved_after),
        ],
        "bound": None,
        "phases": None,
        "findings": [_finding(one) for one in most],
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


def _finding(one: Grown) -> dict[str, Any]:
    blocks = f"{one.after_blocks:,} blocks, before {one.before_blocks:,}"
    return {
        "title": short(f"{signed(one.growth)} by {where(one.stack).plain}"),
        "text": f"{units.size(one.after)} in {blocks}.",
        "view": "tables",
        "node": None,
        "search": "",
    }


def contributions(growth: Growth) -> list[dict[str, Any]] | None:
    """Return what adds up to the growth of what is held; None where no stack differs."""
    if not growth.stacks:
        return None
    bars = sorted(growth.stacks, key=lambda one: -abs(one.growth))[:BARS]
    total = growth.after - growth.before
    return [
        {
            "title": "",
            "note": "Bytes in use or pending, by who allocated them.",
            "bars": [[short(where(one.stack).plain), one.growth, None] for one in bars],
            "rest": total - sum(one.growth for one in bars),
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
    found: dict[str, list[Any]] = {
        column.key: [getattr(one, column.key) for one in growth.stacks]
        for column in _STACKS
        if column.key not in ("stack", "category")
    }
    found["stack"] = [short(where(one.stack).plain) for one in growth.stacks]
    found["category"] = [one.stack.category for one in growth.stacks]
    return [cut(table("stacks", _STACKS, found))]
