"""The page of a loop: its steps in order, and where a recorded one went."""

from __future__ import annotations

from typing import Any

from torchgauge.records.timeline.loop import Loop
from torchgauge.report.content import loop as loop_report
from torchgauge.report.page import page_method, page_tables, page_tree
from torchgauge.report.page.page_profile import warnings
from torchgauge.report.page.page_series import rows


def overview(loop: Loop) -> dict[str, Any]:
    """Return the first screen of a loop."""
    section = loop_report.steps(loop)
    figures = [
        {
            "label": row.label,
            "value": row.value,
            "note": row.note,
            "how": section.how,
            "view": "steps",
        }
        for row in section.rows
    ]
    ended = [["steps", f"{loop.count:,}", loop_report.ENDS[loop.by]]]
    rank = loop.rank
    return {
        "facts": [*ended, *([["rank", f"{rank.number} of {rank.world}", ""]] if rank else [])],
        "created": loop.environment.created,
        "figures": figures,
        "bound": None,
        "phases": None,
        "findings": [],
        "warnings": warnings(loop.all_warnings),
        "complete": loop.complete,
        "interrupted": loop.interrupted,
    }


def tree(loop: Loop) -> dict[str, Any] | None:
    """Return the tree of a step."""
    return None if loop.tree is None else page_tree.columns(loop.tree)


def tables(loop: Loop) -> list[dict[str, Any]] | None:
    """Return the tables of a step, and the lines of traced functions."""
    listed_tables = [] if loop.tree is None else page_tables.tree_tables(loop.tree)
    if loop.functions:
        listed_tables.append(page_tables.traced_lines(loop.functions))
    return listed_tables or None


def steps(loop: Loop) -> dict[str, Any] | None:
    """Return every step's duration in whole nanoseconds, and its phase."""
    if not loop.steps:
        return None
    return {
        "durations": [round(seconds * 1e9) for seconds in loop.steps],
        "phases": [[stretch.phase, len(stretch.durations)] for stretch in loop.stretches],
        "rows": rows(loop_report.steps(loop).rows),
    }


def method(loop: Loop) -> dict[str, Any]:
    """Return how the loop's figures were obtained."""
    parts: list[list[Any]] = [["What the words mean", [*page_method.KINDS]]]
    if loop.tree is not None:
        parts.append(["Tree", page_method.tree_facts(loop.tree)])
    return {"parts": parts, "figures": []}


PARTS = {
    "overview": overview,
    "tree": tree,
    "tables": tables,
    "steps": steps,
    "method": method,
    "environment": page_method.environment,
}
