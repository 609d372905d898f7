"""The roofline for the page: the roofs, and a point for each layer that does work itself."""

from __future__ import annotations

from typing import Any

from torchgauge.analyze.work.roof_quality import shortcomings
from torchgauge.records.profile import Profile
from torchgauge.records.timeline.node import Node
from torchgauge.records.work.roofline import Roofs

# Layers that take less of the step are too small to see and too many to draw.
SMALLEST_SHARE = 1e-4


def roofline(profile: Profile) -> dict[str, Any] | None:
    """Return roofs and points (FLOPs per byte, FLOP/s, ns), or why there are no roofs.

    None where no layer was timed: there would be nothing under the roofs. A training step has no
    roofs: it is timed with its optimizer.
    """
    points = [] if profile.tree is None else _points(profile.tree.nodes)
    if not points:
        return None
    record = profile.roofline
    roof_sets = (
        []
        if record is None
        else [roofs for roofs in (record.roofs, record.datasheet) if roofs is not None]
    )
    if not roof_sets:
        return None if profile.target.training else _missing()
    dtypes = (
        {}
        if profile.cost is None
        else {row.dtype: None for row in profile.cost.rows if row.matmul_flops}
    )
    names = ("node", "path", "type", "intensity", "speed", "time", "bound", "efficiency")
    return {
        "points": dict(zip(names, map(list, zip(*points, strict=True)), strict=True)),
        "roofs": [_roofs(roofs, list(dtypes)) for roofs in roof_sets],
        "how": "measured" if record is None else record.how,
    }


def _missing() -> dict[str, str]:
    """Say why there are no roofs, and how to measure them."""
    reason = "How fast this device can be was not measured. This command does that:"
    return {"missing": reason, "command": "torchgauge profile TARGET --roofs"}


def _points(nodes: list[Node]) -> list[tuple[Any, ...]]:
    """Return the model and the layers that call no other, where both their axes are known."""
    total_time = nodes[0].time or 0.0
    points = []
    for number, node in enumerate(nodes):
        leaf = node.kind == "layer" and not node.layers
        if not (leaf or node.kind == "model") or (node.time or 0.0) < SMALLEST_SHARE * total_time:
            continue
        intensity, speed = node.intensity, node.flops_per_second
        if intensity and speed:
            time = round((node.time or 0.0) * 1e9)
            name = node.row.path or node.name
            points.append(
                (number, name, node.row.type, intensity, speed, time, node.bound, node.efficiency)
            )
    return points


def _roofs(roofs: Roofs, dtypes: list[str]) -> dict[str, Any]:
    """Return the peaks of the dtypes that the model uses and the widest and narrowest traffic."""
    peaks = {dtype: peak for dtype in dtypes if (peak := roofs.peak(dtype)) is not None}
    if "float32" in dtypes and "tf32" in roofs.peaks:
        peaks["tf32"] = roofs.peaks["tf32"]
    traffic = {}
    if roofs.memory_bandwidth is not None:
        traffic["memory"] = roofs.memory_bandwidth
        fastest = roofs.bandwidth[0].bytes_per_second
        if fastest > 1.5 * roofs.memory_bandwidth:
            traffic["cache"] = fastest
    return {
        "device": ", ".join((roofs.device, *shortcomings(roofs))),
        "source": roofs.source,
        "peaks": peaks or roofs.peaks,
        "traffic": traffic,
    }
