"""Where a step's time goes: its layers, what belongs to none, the operators that take most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge import units
from torchgauge.model import tables
from torchgauge.model.counted_at import BELOW, ITSELF, NOWHERE
from torchgauge.model.kernel_table import kernels
from torchgauge.model.tree import Node, Pass, Tree
from torchgauge.report import lines as lines_report
from torchgauge.report import sections
from torchgauge.report.alike_nodes import Alike
from torchgauge.report.bar import bar
from torchgauge.report.fitted_table import NAME, Column, Line, fitted_table
from torchgauge.report.operand_shapes import labels
from torchgauge.report.text import Text

BAR = 10
NOTHING = "–"

LAYERS = (
    Column("type", 9, left=True, style="dim", most=28),
    Column("parameters", 10),
    Column("calls", 6),
    Column("host", 7),
    Column("time"),
    Column("self", 5),
    Column("share"),
    Column("bar", 2, title="", left=True, style="cyan"),
    Column("FLOPs", 1),
    Column("FLOP/s", 3),
    Column("B/s", 8),
    Column("peak", 4),
    Column("kept", 6),
    Column("bound", 4, left=True),
)
OPERATORS = (
    Column("calls"),
    Column("self"),
    Column("share"),
    Column("bar", 2, title="", left=True, style="cyan"),
    Column("total", 1),
    Column("average", 5),
    Column("FLOPs", 3),
    Column("FLOP/s", 4),
    Column("bytes", 6),
    Column("memory", 7),
)
KERNELS = (
    Column("calls"),
    Column("time"),
    Column("share"),
    Column("bar", 6, title="", left=True, style="cyan"),
    Column("median", 3),
    Column("max", 5),
    Column("grid", 7),
    Column("block", 8),
    Column("occupancy", 2),
    Column("limiter", 4, left=True),
    Column("layer", 1, left=True, style="dim", most=26),
)
LONGEST_KERNEL = 36


class View(NamedTuple):
    """What of a tree is shown: layers to `depth`, `top` operators, by `sort` (see `ORDERS`)."""

    depth: int | None = 2
    top: int = 10
    sort: str = "self"
    by_shape: bool = False


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


def view(tree: Tree, shown: View | None = None, *, width: int) -> RenderableType:
    """Return layers, operators and how they were measured, in `width` columns."""
    shown = shown or View()
    root = tree.root
    blocks: list[RenderableType] = [
        Text.assemble(("Where the time goes", "bold"), (f"  {tree.how}", "dim italic")),
        fitted_table("layer", list(_layers(root, shown.depth)), LAYERS, width),
    ]
    lines, more = operators(tree, shown)
    if lines:
        blocks += [Text(""), _operator_table(lines, shown, width)]
        if more:
            blocks.append(Text(f"… {more} others", style="dim"))
    lines, more = launches(tree, shown)
    if lines:
        blocks += [Text(""), fitted_table("kernel", lines, KERNELS, width, LONGEST_KERNEL)]
        if more:
            blocks.append(Text(f"… {more} others", style="dim"))
    if tree.lines:
        blocks += [Text(""), lines_report.view(tree.lines, shown.top, width)]
    blocks += [Text(""), Padding(_method(tree, root), (0, 0, 0, 2))]
    return Group(*blocks)


def _layers(root: Node, depth: int | None) -> Iterator[Line]:
    """Yield the layers in calling order, then what belongs to none."""
    whole = root.time or 0.0
    pending = [(0, Alike(root.name, (root,)))]
    while pending:
        level, alike = pending.pop()
        yield Line(level, alike.name, _cells(alike, whole), "" if level else "bold")
        if depth is None or level < depth:
            pending += [(level + 1, child) for child in reversed(alike.children)]
    for bucket in root.children:
        if bucket.kind == "bucket" and bucket.time:
            yield Line(1, bucket.name, _time_cells(bucket.time, whole), "italic")


def _cells(alike: Alike, whole: float) -> dict[str, str]:
    time = alike.sum("time")
    selves = [tables.sum_of(tables.own(node), _axis(node)) for node in alike.nodes]
    own = [value for value in selves if value is not None]
    flops, moved = alike.sum("flops"), alike.sum("bytes")
    least = "≥ " if any(node.at_least for node in alike.nodes) else ""
    cells = {
        "type": alike.nodes[0].row.type,
        "calls": f"{alike.sum('calls'):,}",
        **_time_cells(time, whole),
        "self": units.time(sum(own), 3) if own else NOTHING,
    }
    if alike.nodes[0].device_time is not None:
        cells["host"] = units.time(alike.sum("host_time"), 3)
    if flops is None and least:
        cells["FLOPs"] = units.UNKNOWN
    elif flops is not None:
        cells["FLOPs"] = least + units.count(flops, 3) if flops else NOTHING
        cells["FLOP/s"] = least + _rate(flops, time)
        cells["B/s"] = least + _rate(moved, time)
    peaks = [node.peak for node in alike.nodes if node.peak is not None]
    if peaks:
        cells["peak"] = units.size(max(peaks), 3)
    kept = alike.sum("retained_for_backward")
    if kept is not None:
        cells["kept"] = units.size(kept, 3) if kept else NOTHING
    parameters = alike.sum("parameters")
    if parameters is not None:
        cells["parameters"] = units.count(parameters, 3) if parameters else NOTHING
    bounds = [node.bound for node in alike.nodes]
    if bound := max(bounds, key=bounds.count):
        cells["bound"] = bound
    return cells


def _axis(node: Node) -> str:
    return "host" if node.device_time is None else "device"


def _time_cells(time: float | None, whole: float) -> dict[str, str]:
    share = (time or 0.0) / whole if whole else 0.0
    return {
        "time": units.time(time, 3),
        "share": f"{100 * share:.1f} %",
        "bar": bar(share, BAR),
    }


def _rate(amount: float | None, time: float | None) -> str:
    return units.count(amount / time, 3) if amount and time else NOTHING


def operators(tree: Tree, shown: View) -> tuple[list[Line], int]:
    """Return the first operators, and how many are not shown."""
    found = tables.operators(tree, by_shape=shown.by_shape)
    clock = "CUDA" if "Self CUDA" in found.columns else "CPU"
    key = ORDERS[shown.sort][0].format(clock=clock, allocator=tree.allocator)
    rows = sorted(found.rows(), key=lambda row: -(row[key] or 0))
    names = [row["Name"] for row in rows]
    if shown.by_shape:
        names = labels(names, [row["Input Shapes"] for row in rows])
    figures = [_figures(row, clock, tree.allocator) for row in rows[: shown.top]]
    lines = [Line(0, name, cells) for name, cells in zip(names, figures, strict=False)]
    return lines, len(rows) - len(lines)


def _operator_table(lines: list[Line], shown: View, width: int) -> RenderableType:
    """Return the operators' table: it has the column they are sorted by, and shapes whole first."""
    sorted_by = ORDERS[shown.sort][1]
    columns = [
        column._replace(need=None) if column.name == sorted_by else column for column in OPERATORS
    ]
    return fitted_table("operator", lines, columns, width, width if shown.by_shape else NAME)


def _figures(row: dict[str, Any], clock: str, allocator: str) -> dict[str, str]:
    percent = row[f"Self {clock} %"] or 0.0
    cells = {
        "calls": f"{row['# of Calls']:,}",
        "self": units.time(row[f"Self {clock}"], 3),
        "share": f"{percent:.1f} %",
        "bar": bar(percent / 100, BAR),
        "total": units.time(row[f"{clock} total"], 3),
        "average": units.time(row[f"{clock} time avg"], 3),
    }
    if row["counted at"] is not None:
        cells |= _work(row, row[f"{clock} total"])
    if row[f"Self {allocator} Mem"] is not None:
        cells["memory"] = units.size(row[f"Self {allocator} Mem"], 3)
    return cells


def _work(row: dict[str, Any], time: float | None) -> dict[str, str]:
    """Return an operator's figures, or where its work is counted."""
    places = row["counted at"].split(", ")
    if ITSELF not in places:
        elsewhere = {BELOW: "in callees", NOWHERE: units.UNKNOWN}.get(places[0], "in caller")
        return {"FLOPs": elsewhere, "bytes": elsewhere}
    least = "≥ " if NOWHERE in places else ""
    cells = {}
    for title, amount, shown in (
        ("FLOPs", row["flops"], units.count),
        ("bytes", row["bytes"], units.size),
    ):
        cells[title] = least + shown(amount, 3) if amount else NOTHING
        if amount is None:
            cells[title] = units.UNKNOWN
    # Where some calls are counted elsewhere, the time is that of all.
    return cells | ({"FLOP/s": _rate(row["flops"], time)} if places == [ITSELF] else {})


def launches(tree: Tree, shown: View) -> tuple[list[Line], int]:
    """Return the kernels and copies that take most of the device's time, and how many others."""
    rows = kernels(tree).rows()
    return [Line(0, row["name"], _launch(row)) for row in rows[: shown.top]], max(
        0, len(rows) - shown.top
    )


def _launch(row: dict[str, Any]) -> dict[str, str]:
    share = row["share"] or 0.0
    cells = {
        "calls": f"{row['calls']:,}",
        "time": units.time(row["device_time"], 3),
        "share": f"{100 * share:.1f} %",
        "bar": bar(share, BAR),
        "median": units.time(row["median"], 3),
        "max": units.time(row["max"], 3),
        "layer": row["layers"],
    }
    for name in ("grid", "block"):
        if row[name] is not None:
            cells[name] = "×".join(map(str, row[name]))
    if row["occupancy"] is not None:
        cells["occupancy"] = units.percent(row["occupancy"])
        cells["limiter"] = row["limiter"] or ""
    return cells


def _method(tree: Tree, root: Node) -> RenderableType:
    """Say what the passes cost, and how the parts' sum compares with the undisturbed step."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    buckets = sum(child.time or 0.0 for child in root.children if child.kind == "bucket")
    if whole := root.time:
        layers = units.percent(1 - buckets / whole, 3)
        grid.add_row("coverage", f"{layers} in layers, {units.percent(buckets / whole)} in buckets")
    for one in tree.passes:
        grid.add_row(one.name, ", ".join(filter(None, (overhead(one), _steps(one.steps)))))
    bare = next((one.bare for one in tree.passes if one.bare), None)
    if tree.residual is not None and bare:
        side = "above" if tree.residual >= 0 else "below"
        share = units.percent(abs(tree.residual) / bare)
        text = f"{units.time(root.host_time, 4)}, {share} {side} the bare step's"
        grid.add_row("parts' sum", f"{text} {units.time(bare, 4)}")
    if tree.headline_ratio is not None:
        grid.add_row("headline", sections.beside_headline(tree.headline_ratio))
    return grid


def overhead(one: Pass) -> str:
    """Return what a pass cost; nothing where no bare step was timed."""
    if one.overhead is not None:
        return f"{one.overhead:.3f}× the bare step"
    if one.bare_interval is not None:
        low, high = one.bare_interval.low, one.bare_interval.high
        return f"cost not measurable: bare steps varied ({units.times(low, high, 3)})"
    return "cost not measurable: the bare steps took longer" if one.bare else ""


def _steps(count: int) -> str:
    return f"{count} step{'s' if count > 1 else ''}"
