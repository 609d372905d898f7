"""A call beside the roofs of its device: intensity, lower bound, efficiency, rates."""

from __future__ import annotations

from collections.abc import Mapping

from torchgauge.analyze.work.lower_bound import TORCH_DEFAULT, Fp32, RowBound, row_bounds, summed
from torchgauge.records.latency.latency import Latency
from torchgauge.records.work.cost import Cost, LayerCost, Phase, Work
from torchgauge.records.work.roofline import LayerRoofline, Roofline, Roofs

_EXECUTED: tuple[Phase, ...] = ("forward", "backward", "recompute")


def roofline(
    cost: Cost,
    latency: Latency | None,
    roofs: Roofs,
    *,
    layer_times: Mapping[int, float] | None = None,
    fp32: Fp32 = TORCH_DEFAULT,
) -> Roofline | None:
    """Return how near the measured median comes to the lower bound of `lower_bound.py`.

    `cost` and `latency` must be of the same call: a forward, or a step without its optimizer.
    `layer_times` is seconds per call of the model by index of `Cost.nodes`. Rates are of executed
    work, attention counted in full. Without `latency` the times and what follows are None.
    There is no roofline of a call of whose work nothing is known.
    """
    bounds = row_bounds(cost, roofs, fp32)
    bound = summed(bounds)
    if bound.at_least and not bound.time:
        return None
    work = cost.total(_EXECUTED)
    time = latency.median if latency is not None and latency.median > 0 else None
    return Roofline(
        roofs=roofs,
        intensity=work.intensity,
        lower_bound=bound.time,
        time=time,
        flops_per_second=_per(work.flops, time),
        bytes_per_second=_per(work.bytes, time),
        efficiency=_per(bound.time, time),
        at_least=bound.at_least,
        layers=_layers(cost, bounds, layer_times or {}),
    )


def _layers(
    cost: Cost, bounds: tuple[RowBound, ...], times: Mapping[int, float]
) -> tuple[LayerRoofline, ...]:
    """Return one entry for each node, with all below it, in the nodes' order."""
    if not cost.nodes:
        return ()
    own: list[list[RowBound]] = [[] for _ in cost.nodes]
    for row, bound in zip(cost.rows, bounds, strict=True):
        own[row.node].append(bound)
    sums = [summed(group)[:2] for group in own]
    for index in range(len(cost.nodes) - 1, 0, -1):  # a parent comes before its children
        parent = cost.nodes[index].parent
        sums[parent] = (sums[parent][0] + sums[index][0], sums[parent][1] + sums[index][1])
    works = {layer.number: layer for _, layer in cost.tree.walk()}
    return tuple(
        _layer(works[index], sums[index], times.get(index)) for index in range(len(cost.nodes))
    )


def _layer(layer: LayerCost, sums: tuple[float, float], time: float | None) -> LayerRoofline:
    work: Work = layer.work
    compute, memory = sums
    return LayerRoofline(
        node=layer.number,
        intensity=work.intensity,
        lower_bound=compute + memory,
        bound=None if not compute + memory else ("compute" if compute > memory else "memory"),
        time=time,
        flops_per_second=_per(work.flops, time),
        bytes_per_second=_per(work.bytes, time),
        efficiency=_per(compute + memory, time),
    )


def _per(amount: float, time: float | None) -> float | None:
    return amount / time if time else None
