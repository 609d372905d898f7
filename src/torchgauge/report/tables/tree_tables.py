"""Where a step's time goes: its layers, what belongs to none, the operators that take most."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator
from typing import Any

from torchgauge import units
from torchgauge.records.timeline import tables
from torchgauge.records.timeline.node import Node
from torchgauge.records.timeline.quantity import (
    FORMATS,
    REPORT_COLUMNS,
    RepeatedLayers,
    single_layers,
)
from torchgauge.records.timeline.tables import kernels
from torchgauge.records.timeline.tree import Pass, Tree
from torchgauge.records.work.size import BELOW, ITSELF, NOWHERE
from torchgauge.report.content import document as doc
from torchgauge.report.content import sections
from torchgauge.report.tables import line_table
from torchgauge.report.tables.kernel_names import kernel_labels
from torchgauge.report.tables.operator_replay import labels

DEPTH = 2
BUCKET = ("host", "time", "share", "bar")
LEAF_HIDDEN = ("self", "calls")  # a leaf's own time is its time
LONGEST_TEXT = 28
WIDEST = 10_000  # columns: no name is cut
EMPTY_CELL = "–"

_NAME, *_FIGURES = REPORT_COLUMNS
_BAR = doc.Column("bar", priority=2, unit="bar")


def _limiter(kernel: dict[str, Any]) -> str | None:
    return None if kernel["occupancy"] is None else kernel["limiter"]


KERNELS = (
    doc.Column("calls", unit="count"),
    doc.Column("device_time", "time", "time"),
    doc.Column("share", unit="share"),
    doc.Column("bar", unit="bar", get=lambda row: row["share"], priority=6),
    doc.Column("median", unit="time", priority=3),
    doc.Column("max", unit="time", priority=5),
    doc.Column("grid", get=lambda row: FORMATS["text"](row["grid"] or ()), priority=7),
    doc.Column("block", get=lambda row: FORMATS["text"](row["block"] or ()), priority=8),
    doc.Column("registers", unit="count", medium="page"),
    doc.Column("shared_memory", "shared memory", "bytes", medium="page"),
    doc.Column("occupancy", unit="percent", priority=2),
    doc.Column("limiter", get=_limiter, priority=4, left_aligned=True),
    doc.Column("bandwidth", unit="bytes/s", medium="page"),
    doc.Column("operator", medium="page"),
    doc.Column("layers", "layer", priority=1, left_aligned=True, tone="faint", max_width=26),
)
LONGEST, LONGEST_KERNEL = 48, 36


# By order: the figure of `tables.operators`, and the column here that shows it.
ORDERS = {
    "self": ("Self {clock}", "self"),
    "total": ("{clock} total", "total"),
    "average": ("{clock} time avg", "average"),
    "calls": ("# of Calls", "calls"),
    "flops": ("flops", "FLOPs"),
    "bytes": ("bytes", "bytes"),
    "memory": ("Self {allocator} Mem", "memory"),
}


def blocks(tree: Tree, options: doc.Options) -> list[doc.Block]:
    """Return layers, operators, kernels and lines, and how they were measured."""
    lines = [] if not tree.lines else [line_table.table(tree.lines, options.top)]
    tables_and_notes = [
        layers(tree, options.depth),
        leaves(tree, options.top),
        operators(tree, options),
        launches(tree, options),
    ]
    return [
        *(block for block in tables_and_notes if block.rows),
        *lines,
        doc.Facts(list(_method(tree, tree.root)), label=0),
    ]


def layers(tree: Tree, depth: int | None) -> doc.Table:
    """Return the layers in calling order, then what belongs to none."""
    rows = list(_layers(tree.root, DEPTH if depth is None else depth))
    return doc.Table(
        title="Where the time goes", how=tree.how, first=_NAME.title,
        columns=list(_layer_columns()), rows=rows, recorded=True, layout="fitted", ranked_by="bar",
    )  # fmt: skip


def leaves(tree: Tree, top: int) -> doc.Table:
    """Return the layers that call no other, those first that take most of the time."""
    leaf_layers = [group for group in single_layers(tree.root) if group.nodes[0].is_leaf]
    leaf_layers.sort(key=lambda group: -(group.nodes[0].time or 0.0))
    rows = [doc.Row(group.nodes[0].path, _cells(group)) for group in leaf_layers[:top]]
    shown_rows = rows if len(leaf_layers) > 1 else []
    return doc.Table(
        first="leaf layer", columns=list(_layer_columns(hidden=LEAF_HIDDEN)), rows=shown_rows,
        recorded=True, total_rows=len(leaf_layers), layout="fitted",
    )  # fmt: skip


def _layer_columns(hidden: tuple[str, ...] = ()) -> Iterator[doc.Column]:
    for column in _FIGURES:
        if column.title in hidden:
            continue
        is_text = column.unit == "text"
        priority = 0 if hidden and column.title == "type" else column.priority
        yield doc.Column(
            column.title, priority=priority, left_aligned=is_text, tone="faint" if is_text else "",
            max_width=LONGEST_TEXT,
        )  # fmt: skip
        yield from [_BAR] * (column.title == "share")


def _layers(root: Node, depth: int) -> Iterator[doc.Row]:
    """Yield the layers in calling order, then what belongs to none."""
    pending = [(0, RepeatedLayers(root.name, (root,), root))]
    while pending:
        level, group = pending.pop()
        tone: doc.Tone = "" if level else "strong"
        name, cells = _name(group), _cells(group)
        if name.endswith(str(cells.get("type"))):  # it is said once
            cells["type"] = ""
        yield doc.Row(name, cells, level, tone)
        if level < depth:
            pending += [(level + 1, child) for child in reversed(group.children)]
    for bucket in root.children:
        if bucket.kind == "bucket" and bucket.time:
            cells = _cells(RepeatedLayers(bucket.name, (bucket,), root))
            yield doc.Row(
                bucket.name, {key: cells[key] for key in BUCKET if key in cells}, 1, "remark"
            )


def _name(group: RepeatedLayers) -> str:
    """Return a layer's name; a number alone says nothing, so the class stands behind it."""
    type_name = group.nodes[0].row.type
    return f"{group.name} {type_name}" if group.name[:1].isdecimal() and type_name else group.name


def _cells(group: RepeatedLayers) -> dict[str, doc.Value]:
    """Return the known facts about a layer, or of several that repeat; what is 0 is a dash."""
    cells: dict[str, doc.Value] = {}
    at_least = any(node.at_least for node in group.nodes)
    for column in _FIGURES:
        value = column.get(group)
        incomplete = column.work and at_least
        if value or (value == 0 and column.unit in ("time", "share")):
            cells[column.title] = "≥ " * incomplete + FORMATS[column.unit](value)
        elif incomplete:
            cells[column.title] = units.UNKNOWN
        elif value == 0 or column.priority is None:
            cells[column.title] = EMPTY_CELL
        if column.title == "share":
            cells["bar"] = value or 0.0
    return cells


def _rate(amount: float | None, time: float | None) -> str:
    return units.count(amount / time, 3) if amount and time else EMPTY_CELL


def operators(tree: Tree, options: doc.Options) -> doc.Table:
    """Return the operators with most time of their own, or first in another order.

    The column that they are sorted by is always there, and shapes are never cut.
    """
    _, sorted_by = ORDERS[options.sort]
    table = all_operators(tree, options.sort, by_shape=options.by_shape)
    columns = [
        dataclasses.replace(column, priority=None) if column.header == sorted_by else column
        for column in table.columns
    ]
    return dataclasses.replace(
        table, columns=columns, rows=table.rows[: options.top], total_rows=len(table.rows),
        longest=WIDEST if options.by_shape else LONGEST,
    )  # fmt: skip


def all_operators(tree: Tree, sort: str = "self", *, by_shape: bool) -> doc.Table:
    """Return all operators in an order of `ORDERS`."""
    clock, other = ("CPU", "CUDA") if tree.root.device_time is None else ("CUDA", "CPU")
    key = ORDERS[sort][0].format(clock=clock, allocator=tree.allocator)
    records = tables.operators(tree, by_shape=by_shape).rows()
    records.sort(key=lambda record: -(record[key] or 0))
    names = [record["Name"] for record in records]
    if by_shape:
        names = labels(names, [record["Input Shapes"] for record in records])

    def share(record: dict[str, Any]) -> float | None:
        percent: float | None = record[f"Self {clock} %"]
        return None if percent is None else percent / 100

    def work(title: str) -> Callable[[dict[str, Any]], doc.Value]:
        return lambda record: _work(record, record[f"{clock} total"]).get(title)

    columns = (
        doc.Column("Name", "operator", medium="page"),
        doc.Column("Input Shapes", "input shapes", medium="page"),
        doc.Column("# of Calls", "calls", "count"),
        doc.Column(f"Self {clock}", "self", "time", empty=units.UNKNOWN),
        doc.Column("share", unit="share", get=share),
        doc.Column("bar", unit="bar", get=share, priority=2),
        doc.Column(f"{clock} total", "total", "time", priority=1, empty=units.UNKNOWN),
        doc.Column(f"{clock} time avg", "average", "time", priority=5, empty=units.UNKNOWN),
        doc.Column(f"Self {other}", "self on the host", "time", medium="page"),
        doc.Column("flops", "FLOPs", "count", medium="page"),
        doc.Column("FLOPs", get=work("FLOPs"), priority=3, medium="text"),
        doc.Column("FLOP/s", get=work("FLOP/s"), priority=4, medium="text"),
        doc.Column("bytes", unit="bytes", medium="page"),
        doc.Column("moved", "bytes", get=work("bytes"), priority=6, medium="text"),
        doc.Column(f"Self {tree.allocator} Mem", "memory", "bytes", priority=7),
    )
    rows = [
        doc.Row(name, doc.cells(columns, row)) for name, row in zip(names, records, strict=True)
    ]
    return doc.Table(first="operator", columns=columns, rows=rows, recorded=True, layout="fitted")


def _work(row: dict[str, Any], time: float | None) -> dict[str, doc.Value]:
    """Return an operator's figures, or where its work is counted."""
    if row["counted at"] is None:
        return {}
    places = row["counted at"].split(", ")
    if ITSELF not in places:
        location = {BELOW: "in callees", NOWHERE: units.UNKNOWN}.get(places[0], "in caller")
        return {"FLOPs": location, "bytes": location}
    prefix = "≥ " if NOWHERE in places else ""
    cells: dict[str, doc.Value] = {}
    for title, amount, format_amount in (
        ("FLOPs", row["flops"], units.count),
        ("bytes", row["bytes"], units.size),
    ):
        cells[title] = prefix + format_amount(amount, 3) if amount else EMPTY_CELL
        if amount is None:
            cells[title] = units.UNKNOWN
    # Where some calls are counted at another operator, the time is still that of all calls.
    return cells | ({"FLOP/s": _rate(row["flops"], time)} if places == [ITSELF] else {})


def launches(tree: Tree, options: doc.Options) -> doc.Table:
    """Return the kernels and copies that take most of the device's time."""
    table = all_kernels(tree)
    rows = table.rows
    names = kernel_labels([str(row.name) for row in rows])
    labelled = [
        row._replace(name=name) for row, name in zip(rows[: options.top], names, strict=False)
    ]
    return dataclasses.replace(table, rows=labelled, total_rows=len(rows))


def all_kernels(tree: Tree) -> doc.Table:
    """Return all kernels and copies by their whole names, most of the device's time first."""
    rows = doc.rows_of(KERNELS, kernels(tree).rows(), operator.itemgetter("name"))
    return doc.Table(
        first="kernel", columns=KERNELS, rows=rows, recorded=True, layout="fitted",
        longest=LONGEST_KERNEL,
    )  # fmt: skip


def _method(tree: Tree, root: Node) -> Iterator[tuple[str, str]]:
    """Say what the passes cost, and how the parts' sum compares with the undisturbed step."""
    if covered := coverage(root):
        yield ("coverage", ", ".join(covered))
    for probe_pass in tree.passes:
        parts = (overhead(probe_pass), _steps(probe_pass.steps), per_node(probe_pass))
        yield (probe_pass.name, ", ".join(filter(None, parts)))
    bare = next((probe_pass.bare for probe_pass in tree.passes if probe_pass.bare), None)
    if tree.residual is not None and bare:
        side = "above" if tree.residual >= 0 else "below"
        share = units.percent(abs(tree.residual) / bare)
        text = f"{units.time(root.host_time, 4)}, {share} {side} the bare step's"
        yield ("parts' sum", f"{text} {units.time(bare, 4)}")
    if tree.headline_ratio is not None:
        yield ("headline", sections.tree_latency_note(tree.headline_ratio))


def coverage(root: Node) -> tuple[str, str] | None:
    """Return which share of the time is in layers and in buckets; None where no time is known.

    The root of a trace that was recorded without layers has no type: its operators are covered.
    """
    if not root.time:
        return None
    outside = sum(child.time or 0.0 for child in root.children if child.kind == "bucket")
    covered = "layers" if root.row.type or root.layers else "operators"
    inside = units.percent(1 - outside / root.time, 3)
    return f"{inside} in {covered}", f"{units.percent(outside / root.time)} in buckets"


def overhead(probe_pass: Pass) -> str:
    """Return what a pass cost; nothing where no bare step was timed."""
    if probe_pass.overhead is not None:
        return f"{probe_pass.overhead:.3f}× the bare step"
    if probe_pass.bare_interval is not None:
        low, high = probe_pass.bare_interval.low, probe_pass.bare_interval.high
        return f"cost not measurable: bare steps varied ({units.times(low, high, 3)})"
    return "cost not measurable: the bare steps took longer" if probe_pass.bare else ""


def per_node(probe_pass: Pass) -> str:
    """Return what recording a node cost and was taken off its time; "" where it is not known."""
    if probe_pass.per_node is None or probe_pass.per_tiny_node is None:
        return ""
    tiny = units.time(probe_pass.per_tiny_node, 2)
    return f"{units.time(probe_pass.per_node, 2)} a node taken off ({tiny} for tiny nodes)"


def _steps(count: int) -> str:
    return f"{count} step{'s' if count > 1 else ''}"
