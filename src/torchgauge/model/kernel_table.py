"""Kernels and copies as a flat table: what the device spends its time on."""

from __future__ import annotations

from typing import Any

from torchgauge.model.kernel import Kernel, quantile
from torchgauge.model.tables import Table
from torchgauge.model.tree import Node, Tree


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
    whole = tree.root.total("device") or 0
    rows = [_row(found, whole) for found in groups.values()]
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


def _row(found: list[tuple[Node, Kernel]], whole: int) -> dict[str, Any]:
    found = sorted(found, key=lambda one: -(one[0].row.device or 0))
    node, kernel = found[0]
    time = sum(one.row.device or 0 for one, _ in found)
    calls = sum(one.calls for one, _ in found)
    durations = sorted(duration for _, one in found for duration in one.durations)
    sizes = [one.bytes for _, one in found if one.bytes is not None]
    size = sum(sizes) if len(sizes) == len(found) else None
    every = sum(durations)
    places = {_place(one): None for one, _ in found}
    return {
        "name": node.name,
        "calls": calls,
        "device_time": time * 1e-9,
        "share": time / whole if whole else None,
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
        "bandwidth": size / every * 1e9 if size is not None and every else None,
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
    more = len(places) - 1
    return places[0] + (f" and {more} more" if more else "")


def _operator(node: Node) -> str:
    """Return the name of the operator that launched it, empty where none did."""
    above = node.parent
    return above.name if above is not None and above.kind == "operator" else ""
