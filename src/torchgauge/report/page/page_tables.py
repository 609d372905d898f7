"""The tables of the page: their columns and values; the script sorts and formats them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from torchgauge.records.timeline import tree as line_table
from torchgauge.records.timeline.node import Node
from torchgauge.records.timeline.quantity import REPORT_COLUMNS, RepeatedLayers, single_layers
from torchgauge.records.timeline.tree import TracedFunction, Tree
from torchgauge.records.work.roofline import Roofs
from torchgauge.report.content.document import Column, Table, Unit
from torchgauge.report.tables import category_table, tree_tables
from torchgauge.report.tables.kernel_names import kernel_labels

BUCKETS = (
    Column("name", "bucket", "text", lambda node: node.name + f" in {node.path}" * bool(node.path)),
    Column("calls", "calls", "count"),
    Column("time", "time", "time"),
    Column("share", "share of time", "share"),
    Column("host_time", "host time", "time"),
    Column("flops", "FLOPs", "count"),
    Column("allocations", "allocated", "bytes"),
)
LINES = (
    Column("place", "line", "text", lambda line: f"{line.file}:{line.line}"),
    Column("source", "source", "text"),
    Column("layer", "layer", "text"),
    Column("time", "time", "time"),
    Column("share", "share of time", "share"),
    Column("samples", "samples", "count"),
)


TRACED_LINES = (
    Column("function", "function", "text"),
    Column("place", "line", "text", lambda line: f"{line['file']}:{line['line']}"),
    Column("source", "source", "text"),
    Column("hits", "hits", "count"),
    Column("time", "time", "time"),
    Column("share", "share of the function", "share"),
    Column("allocated", "allocated", "bytes"),
)


def all_tables(tree: Tree, roofs: Roofs | None = None) -> list[dict[str, Any]]:
    """Return the tables that have rows: layers, what calls them, operators, kernels and so on.

    `roofs` are those of the device, for the categories.
    """
    nodes = tree.nodes
    layers = single_layers(tree.root)
    leaves = [layer for layer in layers if _is_leaf(layer)]
    listed_tables = [
        _layers("layers", leaves),
        _layers("containers", [layer for layer in layers if not _is_leaf(layer)]),
        _operators(tree),
        _kernels(tree),
        _categories(tree, roofs),
        _buckets(nodes),
        records_table("lines", LINES, tree.lines),
    ]
    return [table for table in listed_tables if table["rows"]]


def _is_leaf(layer: RepeatedLayers) -> bool:
    node = layer.nodes[0]
    return node.kind == "layer" and not node.layers


def _layers(name: str, layers: Sequence[RepeatedLayers]) -> dict[str, Any]:
    """Return layers as a table, at first by the time that is their own."""
    columns = [Column(column.title, column.title, column.unit) for column in REPORT_COLUMNS]
    cells = {column.title: list(map(column.get, layers)) for column in REPORT_COLUMNS}
    first = columns[0].key
    cells[first] = [layer.nodes[0].row.path or layer.root.name for layer in layers]
    nodes = [layer.nodes[0].index for layer in layers]
    return {**table(name, columns, cells, nodes), "sorted": "self"}


def _operators(tree: Tree) -> dict[str, Any]:
    shown_table = tree_tables.all_operators(tree, by_shape=True)
    return {**document_table(shown_table), "name": "operators", "sorted": "self"}


def _kernels(tree: Tree) -> dict[str, Any]:
    page_table = with_kernel_labels(document_table(tree_tables.all_kernels(tree)))
    return {**page_table, "name": "kernels", "sorted": "time"}


def _categories(tree: Tree, roofs: Roofs | None) -> dict[str, Any]:
    cells = category_table.figures(tree, roofs)
    return {**table("categories", category_table.FIGURES, cells), "sorted": "time"}


def with_kernel_labels(page_table: dict[str, Any]) -> dict[str, Any]:
    """Return a table with short names of kernels in its first column, beside their whole names."""
    if not page_table["rows"]:
        return page_table
    first, *further_columns = page_table["columns"]
    names = first["values"]
    labelled = {**first, "values": kernel_labels(names), "names": names}
    return {**page_table, "columns": [labelled, *further_columns]}


def _buckets(nodes: list[Node]) -> dict[str, Any]:
    buckets = [node for node in nodes if node.kind == "bucket"]
    total = nodes[0]
    of_host = {} if total.device_time is not None else {"host_time": [None] * len(buckets)}
    shares = [_part(node.time, total.time) for node in buckets]
    indices = [node.index for node in buckets]
    return records_table("buckets", BUCKETS, buckets, indices, share=shares, **of_host)


def traced_lines(functions: Sequence[TracedFunction]) -> dict[str, Any]:
    """Return all lines of traced functions."""
    return records_table("lines of functions", TRACED_LINES, line_table.traced(functions).rows())


def records_table(
    name: str,
    columns: Sequence[Column],
    records: Sequence[Any],
    nodes: list[int] | None = None,
    **cells: list[Any],
) -> dict[str, Any]:
    """Return a table with a row for each record; `cells` are columns that no record has alone."""
    values = {
        column.key: [column.value(r) for r in records]
        for column in columns
        if column.key not in cells
    }
    return table(name, columns, values | cells, nodes)


def document_table(block: Table) -> dict[str, Any]:
    """Return a table of a document, each figure in its unit; texts where a column has others.

    A table whose first column is the page's alone has its names from it.
    """
    named = bool(block.columns) and block.columns[0].medium == "page"
    columns = [] if named else [Column("", block.first)]
    cells: dict[str, list[Any]] = {"": [str(row.name) for row in block.rows]}
    for column in block.columns:
        if column.drawn or column.medium == "text":
            continue
        values = [row.cells.get(column.key) for row in block.rows]
        if not all(value is None or isinstance(value, int | float) for value in values):
            values = [column.text(row) for row in block.rows]
            column = dataclasses.replace(column, unit="text")
        columns.append(column)
        cells[column.key] = values
    return table(block.key or block.title or "rows", columns, cells)


def table(
    name: str,
    columns: Sequence[Column],
    cells: dict[str, list[Any]],
    nodes: list[int] | None = None,
) -> dict[str, Any]:
    """Return the columns that hold anything, times as whole nanoseconds."""
    filled_columns = []
    for column in columns:
        values = cells.get(column.key, [])
        if any(value is not None and value != "" for value in values):
            unit = "share" if column.unit == "percent" else column.unit
            filled_columns.append(
                {"title": column.header, "unit": unit, "values": _values(values, unit)}
            )
    rows = len(next(iter(cells.values()), []))
    return {"name": name, "rows": rows, "columns": filled_columns, "nodes": nodes}


def _values(values: list[Any], unit: Unit) -> list[Any]:
    if unit == "text":
        return [value or "" for value in values]
    if unit in ("time", "delta"):
        return [None if value is None else round(value * 1e9) for value in values]
    return [float(f"{value:.6g}") if isinstance(value, float) else value for value in values]


def _part(part: float | None, total: float | None) -> float | None:
    return part / total if part is not None and total else None
