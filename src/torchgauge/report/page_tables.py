"""The tables of the page: which columns, and what each holds; the page sorts and formats them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from torchgauge.model import tables
from torchgauge.model.kernel_table import kernels
from torchgauge.model.profile import Profile
from torchgauge.model.tree import Node, Tree

Unit = Literal[
    "text",
    "time",
    "bytes",
    "count",
    "number",
    "share",
    "flop/s",
    "bytes/s",
    "flop/byte",
    "delta",
    "change",
    "growth",
]


class Column(NamedTuple):
    """A column's key in the table of `model.tables`, its title, and what its figures are."""

    key: str
    title: str
    unit: Unit


LAYERS = (
    Column("path", "layer", "text"),
    Column("type", "type", "text"),
    Column("calls", "calls", "count"),
    Column("time", "time", "time"),
    Column("share", "share of time", "share"),
    Column("self", "of its own", "time"),
    Column("host_time", "host time", "time"),
    Column("flops", "FLOPs", "count"),
    Column("bytes", "bytes", "bytes"),
    Column("flops_per_second", "FLOP/s", "flop/s"),
    Column("bytes_per_second", "B/s", "bytes/s"),
    Column("intensity", "FLOP/B", "flop/byte"),
    Column("bound", "bound by", "text"),
    Column("efficiency", "efficiency", "share"),
    Column("peak", "peak memory", "bytes"),
    Column("allocations", "allocated", "bytes"),
    Column("retained_for_backward", "kept for backward", "bytes"),
    Column("parameters", "parameters", "count"),
)
OPERATORS = (
    Column("Name", "operator", "text"),
    Column("Input Shapes", "input shapes", "text"),
    Column("# of Calls", "calls", "count"),
    Column("Self {clock}", "of its own", "time"),
    Column("share", "share of time", "share"),
    Column("{clock} total", "with what it calls", "time"),
    Column("{clock} time avg", "per call", "time"),
    Column("Self {other}", "host, of its own", "time"),
    Column("flops", "FLOPs", "count"),
    Column("bytes", "bytes", "bytes"),
    Column("Self {allocator} Mem", "memory kept", "bytes"),
)
KERNELS = (
    Column("name", "kernel", "text"),
    Column("calls", "calls", "count"),
    Column("device_time", "device time", "time"),
    Column("share", "share of device", "share"),
    Column("median", "median", "time"),
    Column("max", "longest", "time"),
    Column("grid", "grid", "text"),
    Column("block", "block", "text"),
    Column("registers", "registers", "count"),
    Column("shared_memory", "shared memory", "bytes"),
    Column("occupancy", "occupancy", "share"),
    Column("limiter", "limited by", "text"),
    Column("bandwidth", "B/s", "bytes/s"),
    Column("operator", "operator", "text"),
    Column("layers", "layer", "text"),
)
BUCKETS = (
    Column("name", "bucket", "text"),
    Column("calls", "calls", "count"),
    Column("time", "time", "time"),
    Column("share", "share of time", "share"),
    Column("host_time", "host time", "time"),
    Column("flops", "FLOPs", "count"),
    Column("allocations", "allocated", "bytes"),
)
LINES = (
    Column("place", "line", "text"),
    Column("source", "source", "text"),
    Column("layer", "layer", "text"),
    Column("time", "time", "time"),
    Column("share", "share of time", "share"),
    Column("samples", "samples", "count"),
)


def of_profile(profile: Profile) -> list[dict[str, Any]] | None:
    """Return the tables of a profile's tree; None without one."""
    return None if profile.tree is None else of_tree(profile.tree)


def of_tree(tree: Tree) -> list[dict[str, Any]]:
    """Return the tables that have rows: layers, operators, kernels, buckets, lines."""
    nodes = tree.nodes
    made = [
        _layers(tree, nodes),
        _operators(tree),
        _kernels(tree),
        _buckets(nodes),
        _lines(tree),
    ]
    return [table for table in made if table["rows"]]


def _layers(tree: Tree, nodes: list[Node]) -> dict[str, Any]:
    found = tables.layers(tree).columns
    on_device = any(time is not None for time in found["device_time"])
    times = found["device_time"] if on_device else found["host_time"]
    whole = times[0] if times else None
    found["path"] = [path or tree.rows[0].name for path in found["path"]]
    found["time"] = times
    found["share"] = [_part(time, whole) for time in times]
    found["self"] = found["device_time_self" if on_device else "host_time_self"]
    if not on_device:
        del found["host_time"]
    at = [node.at for node in nodes[0].walk() if node.kind in ("model", "layer")]
    return table("layers", LAYERS, found, at)


def _operators(tree: Tree) -> dict[str, Any]:
    found = tables.operators(tree, by_shape=True).columns
    clock, other = ("CUDA", "CPU") if "Self CUDA" in found else ("CPU", "CUDA")
    names = {"clock": clock, "other": other, "allocator": tree.allocator}
    columns = [one._replace(key=one.key.format(**names)) for one in OPERATORS]
    percents = found.get(f"Self {clock} %", [])
    found["share"] = [_part(percent, 100) for percent in percents]
    return table("operators", columns, found)


def _kernels(tree: Tree) -> dict[str, Any]:
    found = kernels(tree).columns
    for name in ("grid", "block"):
        found[name] = ["×".join(map(str, size or ())) for size in found.get(name, [])]
    return table("kernels", KERNELS, found)


def _buckets(nodes: list[Node]) -> dict[str, Any]:
    buckets = [node for node in nodes if node.kind == "bucket"]
    found: dict[str, list[Any]] = {
        "name": [_with_layer(node) for node in buckets],
        "calls": [node.calls for node in buckets],
        "time": [node.time for node in buckets],
        "share": [_part(node.time, nodes[0].time) for node in buckets],
        "flops": [node.flops for node in buckets],
        "allocations": [node.allocations for node in buckets],
    }
    if nodes[0].device_time is not None:
        found["host_time"] = [node.host_time for node in buckets]
    return table("buckets", BUCKETS, found, [node.at for node in buckets])


def _with_layer(bucket: Node) -> str:
    return bucket.name + (f" in {bucket.path}" if bucket.path else "")


def _lines(tree: Tree) -> dict[str, Any]:
    found: dict[str, list[Any]] = {
        "place": [f"{one.file}:{one.line}" for one in tree.lines],
        **{
            name: [getattr(one, name) for one in tree.lines]
            for name in ("source", "layer", "time", "share", "samples")
        },
    }
    return table("lines", LINES, found)


def table(
    name: str,
    columns: Sequence[Column],
    found: dict[str, list[Any]],
    nodes: list[int] | None = None,
) -> dict[str, Any]:
    """Return the columns that hold anything, times as whole nanoseconds."""
    shown = []
    for column in columns:
        values = found.get(column.key, [])
        if any(value is not None and value != "" for value in values):
            shown.append(
                {"title": column.title, "unit": column.unit, "values": _values(values, column.unit)}
            )
    rows = len(next(iter(found.values()), []))
    return {"name": name, "rows": rows, "columns": shown, "nodes": nodes}


def _values(values: list[Any], unit: Unit) -> list[Any]:
    if unit == "text":
        return [value or "" for value in values]
    if unit in ("time", "delta"):
        return [None if value is None else round(value * 1e9) for value in values]
    return [float(f"{value:.6g}") if isinstance(value, float) else value for value in values]


def _part(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
