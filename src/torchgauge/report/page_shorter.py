"""What keeps a page small, whatever was recorded: short names, and the largest rows and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from torchgauge.model.tree import Tree, TreeRow
from torchgauge.report.page_tree import LACKING, OWN

LONGEST = 500  # characters of a name; templates of C++ have thousands
_END = 80


def short(text: str) -> str:
    """Return a name with its middle left out where it is very long."""
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - _END]}…{text[-_END:]}"


class Kept(NamedTuple):
    """A tree of fewer nodes; `at` is for each node of the whole one the node that shows it."""

    tree: Tree
    at: Sequence[int]


def largest(tree: Tree, most: int) -> Kept:
    """Return the nodes that take most, at most `most`; below each the others are one node.

    Every sum stays what it was.
    """
    rows = tuple(map(_named, tree.rows))
    if len(rows) <= most:
        return Kept(msgspec.structs.replace(tree, rows=rows), range(len(rows)))
    kept = _kept(tree, most // 2)
    at: list[int] = []
    found: list[TreeRow] = []
    others: dict[int, int] = {}  # by parent
    sums: dict[int, dict[str, int | None]] = {}
    nodes = tree.nodes
    for number, row in enumerate(rows):
        parent = at[row.parent] if row.parent >= 0 else -1
        if kept[number]:
            at.append(len(found))
            found.append(msgspec.structs.replace(row, parent=parent))
        elif not kept[row.parent]:
            at.append(parent)
        else:
            if parent not in others:
                others[parent] = len(found)
                found.append(row)  # its place: its figures come when all are known
                sums[parent] = dict.fromkeys((*OWN, "calls", "nodes"))
            at.append(others[parent])
            node = nodes[number]
            more = {name: node.total(name) for name in OWN} | {"calls": row.calls, "nodes": 1}
            sums[parent] = {k: _sum(v, more[k]) for k, v in sums[parent].items()}
    for parent, place in others.items():
        found[place] = _others(parent, sums[parent])
    return Kept(msgspec.structs.replace(tree, rows=tuple(found)), at)


def _kept(tree: Tree, most: int) -> list[bool]:
    """Return which nodes take most, each with all above it: none takes more than its parent."""
    figure = "host" if tree.root.total("device") is None else "device"
    sizes = [node.total(figure) or 0 for node in tree.nodes]
    for number in range(len(sizes) - 1, 0, -1):
        above = tree.rows[number].parent
        sizes[above] = max(sizes[above], sizes[number])
    order = sorted(range(len(sizes)), key=lambda number: (-sizes[number], number))
    kept = [False] * len(sizes)
    for number in order[: max(most, 1)]:
        kept[number] = True
    return kept


def _others(parent: int, sums: dict[str, int | None]) -> TreeRow:
    count = sums.pop("nodes") or 0
    calls = sums.pop("calls") or 0
    figures: dict[str, Any] = {**sums, **{name: sums[name] or 0 for name in LACKING}}
    name = f"{count:,} smaller"
    return TreeRow(name=name, kind="bucket", parent=parent, calls=calls, **figures)


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


def _named(row: TreeRow) -> TreeRow:
    if max(len(row.name), len(row.path), len(row.type), len(row.shapes)) <= LONGEST:
        return row
    return msgspec.structs.replace(
        row, **{name: short(getattr(row, name)) for name in ("name", "path", "type", "shapes")}
    )


def shorter(table: dict[str, Any], most: int, at: Sequence[int] | None = None) -> dict[str, Any]:
    """Return a table of the page with the rows that took longest, in their order.

    `at` is where a node of the whole tree is shown.
    """
    columns = table["columns"]
    chosen: Sequence[int] = range(table["rows"])
    if table["rows"] > most:
        times: list[int | None] | None = next(
            (one["values"] for one in columns if one["unit"] == "time"), None
        )
        if times is not None:
            chosen = sorted(chosen, key=lambda row: -(times[row] or 0))
        chosen = sorted(chosen[:most])
    nodes = table["nodes"]
    if nodes:
        nodes = [nodes[row] if at is None else at[nodes[row]] for row in chosen]
    return {
        **table,
        "rows": len(chosen),
        "left": table["rows"] - len(chosen),
        "columns": [
            {**one, "values": [_value(one["values"][row]) for row in chosen]} for one in columns
        ],
        "nodes": nodes,
    }


def _value(value: Any) -> Any:
    return short(value) if isinstance(value, str) else value
