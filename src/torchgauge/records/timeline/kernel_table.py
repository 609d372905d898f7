"""Kernels and copies as a flat table, by device time."""

from __future__ import annotations

from typing import Any

from torchgauge.records.timeline.node import Node
from torchgauge.records.timeline.table import Table
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.breakdown import Kernel, quantile


def kernels(tree: Tree) -> Table:
    """Return one row per kernel and launch configuration, most device time first.

    Times in seconds, of the tree's steps; `min`, `median`, `max` are those of single calls in all
    that was recorded. `share` is that of all device time. `layers` names the layer or bucket with
    most of the time, and how many others; `operator` the operator that launched it there.
    """
    groups: dict[tuple[Any, ...], list[tuple[Node, Kernel]]] = {}
    for node in tree.root.walk():
        kernel = node.row.kernel
        if kernel is not None:
            groups.setdefault(_configuration(node.name, kernel), []).append((node, kernel))
    device_time = tree.root.total("device") or 0
    rows = [_row(group, device_time) for group in groups.values()]
    rows.sort(key=lambda row: -row["device_time"])
    columns: dict[str, list[Any]] = {name: [] for name in (rows[0] if rows else {})}
    for row in rows:
        for name, value in row.items():
            columns[name].append(value)
    return Table(columns)


def _configuration(name: str, kernel: Kernel) -> tuple[Any, ...]:
    return (
        name,
        kernel.device,
        kernel.grid,
        kernel.block,
        kernel.registers,
        kernel.shared_memory,
        kernel.collective,
    )


def _row(group: list[tuple[Node, Kernel]], total_time: int) -> dict[str, Any]:
    group = sorted(group, key=lambda pair: -(pair[0].row.device or 0))
    nodes = [node for node, _ in group]
    kernel_records = [kernel for _, kernel in group]
    node, kernel = group[0]
    time = sum(node.row.device or 0 for node in nodes)
    calls = sum(node.calls for node in nodes)
    durations = sorted(duration for kernel in kernel_records for duration in kernel.durations)
    sizes = [kernel.bytes for kernel in kernel_records if kernel.bytes is not None]
    size = sum(sizes) if len(sizes) == len(kernel_records) else None
    recorded_time = sum(durations)
    places = dict.fromkeys(map(_place, nodes))
    return {
        "name": node.name,
        "calls": calls,
        "device_time": time * 1e-9,
        "share": time / total_time if total_time else None,
        "avg": time * 1e-9 / calls if calls else None,
        "min": durations[0] * 1e-9,
        "median": quantile(durations, 0.5) * 1e-9,
        "max": durations[-1] * 1e-9,
        "grid": kernel.grid,
        "block": kernel.block,
        "registers": kernel.registers,
        "shared_memory": kernel.shared_memory,
        "occupancy": kernel.occupancy,
        "limiter": kernel.limiter,
        "bandwidth": size / recorded_time * 1e9 if size is not None and recorded_time else None,
        "layers": _several(list(places)),
        "operator": _operator(node),
    }


def _place(node: Node) -> str:
    """Return the path of the layer, or the bucket's name."""
    above: Node | None = node
    while above is not None and above.kind not in ("layer", "model", "bucket"):
        above = above.parent
    if above is None:
        return ""
    return above.row.path if above.kind == "layer" else above.name


def _several(places: list[str]) -> str:
    further = len(places) - 1
    return places[0] + (f" and {further} more" if further else "")


def _operator(node: Node) -> str:
    """Return the name of the operator that launched it, empty where none did."""
    above = node.parent
    return above.name if above is not None and above.kind == "operator" else ""
