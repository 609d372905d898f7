"""Size limits of a page: short names, and only the largest rows and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from torchgauge.analyze.snapshot.growth import MarkedRange, ranges
from torchgauge.records.snapshot import DeviceMemory, Snapshot
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree
from torchgauge.report.content.document import Column
from torchgauge.report.page.page_tables import records_table
from torchgauge.report.page.page_tree import LACKING, OWN

LONGEST = 500  # characters of a name; templates of C++ have thousands
_END = 80


def ns(seconds: float) -> int:
    """Return whole nanoseconds."""
    return round(seconds * 1e9)


def known_ns(seconds: float | None) -> int | None:
    """Return whole nanoseconds; None where they are unknown."""
    return None if seconds is None else ns(seconds)


def short(text: str) -> str:
    """Return a name with its middle left out where it is very long."""
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - _END]}…{text[-_END:]}"


class ReducedTree(NamedTuple):
    """A tree of fewer nodes; `node_map` gives, for each original node, the node that shows it."""

    tree: Tree
    node_map: Sequence[int]


def largest(tree: Tree, max_nodes: int) -> ReducedTree:
    """Return the `max_nodes` nodes that take most; the others below each become one node.

    Every sum stays what it was.
    """
    rows = tuple(map(_with_short_names, tree.rows))
    if len(rows) <= max_nodes:
        return ReducedTree(msgspec.structs.replace(tree, rows=rows), range(len(rows)))
    is_kept = _largest_nodes(tree, max_nodes // 2)
    node_map: list[int] = []
    new_rows: list[TreeRow] = []
    remainders: dict[int, int] = {}  # by parent
    sums: dict[int, dict[str, int | None]] = {}
    nodes = tree.nodes
    for number, row in enumerate(rows):
        parent = node_map[row.parent] if row.parent >= 0 else -1
        if is_kept[number]:
            node_map.append(len(new_rows))
            new_rows.append(msgspec.structs.replace(row, parent=parent))
        elif not is_kept[row.parent]:
            node_map.append(parent)
        else:
            if parent not in remainders:
                remainders[parent] = len(new_rows)
                new_rows.append(row)  # its place: its figures come when all are known
                sums[parent] = dict.fromkeys((*OWN, "calls", "nodes"))
            node_map.append(remainders[parent])
            node = nodes[number]
            figures = {name: node.total(name) for name in OWN} | {"calls": row.calls, "nodes": 1}
            sums[parent] = {k: _sum(v, figures[k]) for k, v in sums[parent].items()}
    for parent, place in remainders.items():
        new_rows[place] = _remainder_row(parent, sums[parent])
    return ReducedTree(msgspec.structs.replace(tree, rows=tuple(new_rows)), node_map)


def _largest_nodes(tree: Tree, max_nodes: int) -> list[bool]:
    """Return which nodes take most; no node is kept without its parents."""
    figure = "host" if tree.root.total("device") is None else "device"
    sizes = [node.total(figure) or 0 for node in tree.nodes]
    for number in range(len(sizes) - 1, 0, -1):
        above = tree.rows[number].parent
        sizes[above] = max(sizes[above], sizes[number])
    order = sorted(range(len(sizes)), key=lambda number: (-sizes[number], number))
    is_kept = [False] * len(sizes)
    for number in order[: max(max_nodes, 1)]:
        is_kept[number] = True
    return is_kept


def _remainder_row(parent: int, sums: dict[str, int | None]) -> TreeRow:
    count = sums.pop("nodes") or 0
    calls = sums.pop("calls") or 0
    figures: dict[str, Any] = {**sums, **{name: sums[name] or 0 for name in LACKING}}
    name = f"{count:,} smaller"
    return TreeRow(name=name, kind="bucket", parent=parent, calls=calls, **figures)


def _sum(amount: int | None, other: int | None) -> int | None:
    return other if amount is None else amount if other is None else amount + other


def _with_short_names(row: TreeRow) -> TreeRow:
    if max(len(row.name), len(row.path), len(row.type), len(row.shapes)) <= LONGEST:
        return row
    return msgspec.structs.replace(
        row, **{name: short(getattr(row, name)) for name in ("name", "path", "type", "shapes")}
    )


def shortened_table(
    table: dict[str, Any], max_rows: int, node_map: Sequence[int] | None = None
) -> dict[str, Any]:
    """Return a table of the page with the rows that took longest, in their order.

    `node_map` gives the node that shows each node of the full tree.
    """
    columns = table["columns"]
    chosen: Sequence[int] = range(table["rows"])
    if table["rows"] > max_rows:
        times: list[int | None] | None = next(
            (column["values"] for column in columns if column["unit"] == "time"), None
        )
        if times is not None:
            chosen = sorted(chosen, key=lambda row: -(times[row] or 0))
        chosen = sorted(chosen[:max_rows])
    nodes = table["nodes"]
    if nodes:
        nodes = [nodes[row] if node_map is None else node_map[nodes[row]] for row in chosen]
    return {
        **table,
        "rows": len(chosen),
        "left": table["rows"] - len(chosen),
        "columns": [
            {
                **column,
                **{
                    key: [_value(column[key][row]) for row in chosen]
                    for key in ("values", "names")
                    if key in column
                },
            }
            for column in columns
        ],
        "nodes": nodes,
    }


def _value(value: Any) -> Any:
    return short(value) if isinstance(value, str) else value


MAX_RANGES = 2_000
_COLUMNS = (
    Column("name", "marked", "text", lambda marked_range: short(marked_range.name)),
    Column("begin", "begin", "time"),
    Column("end", "end", "time"),
    Column("length", "length", "time", lambda marked_range: _length(marked_range)),
    Column("calls", "overlapping", "count", lambda mark: mark.calls if mark.calls > 1 else None),
)


def marks(snapshot: Snapshot, device: DeviceMemory, *, timed: bool) -> dict[str, Any] | None:
    """Return the ranges to draw above memory over time, and the table of all; None without any.

    Of more than 2,000 the longest are kept. Of a range whose begin or end was not kept the other
    moment is drawn; none is where the events have no time.
    """
    marked_ranges = ranges(snapshot.marks, device.device)
    if not marked_ranges:
        return None
    longest = sorted(
        sorted(marked_ranges, key=lambda marked_range: -(_length(marked_range) or 0))[:MAX_RANGES],
        key=_moment,
    )
    drawn = [
        _drawn(marked_range)
        for marked_range in longest
        if timed and _moment(marked_range) < float("inf")
    ]
    marks_table = records_table("what was marked", _COLUMNS, longest)
    return {
        "drawn": drawn,
        "table": {**marks_table, "left": len(marked_ranges) - len(longest), "nodes": []},
    }


def _length(marked_range: MarkedRange) -> float | None:
    return (
        None
        if marked_range.begin is None or marked_range.end is None
        else marked_range.end - marked_range.begin
    )


def _moment(marked_range: MarkedRange) -> float:
    times = [time for time in (marked_range.begin, marked_range.end) if time is not None]
    return min(times, default=float("inf"))


def _drawn(marked_range: MarkedRange) -> dict[str, Any]:
    name = short(marked_range.name) or "without a name"
    label = (
        f"{name}, begun"
        if marked_range.end is None
        else f"{name}, ended"
        if marked_range.begin is None
        else name
    )
    ends = [time for time in (marked_range.begin, marked_range.end) if time is not None]
    return {"from": round(ends[0] * 1e9), "to": round(ends[-1] * 1e9), "label": label}
