"""A call beside the roofs of its device, or of one that is not here: least time, rates, fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from torchgauge.analyze.memory.training_memory import HIGH, LOW
from torchgauge.records.latency.latency import Latency
from torchgauge.records.memory.memory import TrainingMemory
from torchgauge.records.work.cost import Cost, CostRow, LayerCost, Phase, Work
from torchgauge.records.work.roofline import LayerRoofline, OtherDevice, Roofline, Roofs
from torchgauge.records.work.size import Size

_ITEMSIZE = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "complex64": 8}
_EXECUTED: tuple[Phase, ...] = ("forward", "backward", "recompute")
METHOD = (
    "Lower bound: for each operator the longer of operations over the dtype's dense peak and bytes "
    "over the memory's bandwidth, summed. Memory: parameters, buffers and inputs; of a training "
    "step the peak, with the workspaces of the CPU's kernels."
)


def beyond_cache(cost: Cost, cache: int | None) -> dict[int, float]:
    """Return by index of `Cost.rows` the bytes of weights that come from memory in each call.

    An operator's own bytes may fit the cache, and its weights still come from memory: between two
    uses of them the model reads all its other weights. Of W bytes of weights at most `cache` bytes
    survive, so a share of 1 − cache/W comes from memory at least. A layer's own parameters are laid
    to its forward operator with the most bytes, no more than it moves, each layer once however
    often it is called. Empty where the weights fit, or the cache is unknown.
    """
    weights: dict[int, float] = {}
    own = _own_parameters(cost)
    for node, index in _heaviest(cost).items():
        row = cost.rows[index]
        size = own.get(node, 0) * _itemsize(row.dtype)
        if size:
            weights[index] = float(min(size, row.bytes))
    total = sum(weights.values())
    if cache is None or total <= cache:
        return {}
    return {index: size * (1 - cache / total) for index, size in weights.items()}


def _own_parameters(cost: Cost) -> dict[int, int]:
    """Return the elements of each layer's own parameters, at the first of its call paths."""
    below: dict[int, dict[str, int]] = {}
    for node in cost.nodes:
        below.setdefault(node.parent, {})[node.path] = node.parameters or 0
    own: dict[int, int] = {}
    visited_paths: set[str] = set()
    for index, node in enumerate(cost.nodes):
        if node.path not in visited_paths:
            visited_paths.add(node.path)
            own[index] = max(0, (node.parameters or 0) - sum(below.get(index, {}).values()))
    return own


def _heaviest(cost: Cost) -> dict[int, int]:
    """Return for each node the index of its forward row with the most bytes."""
    best: dict[int, int] = {}
    for index, row in enumerate(cost.rows):
        if row.phase == "forward" and row.bytes > _bytes(cost, best.get(row.node)):
            best[row.node] = index
    return best


def _bytes(cost: Cost, index: int | None) -> int:
    row: CostRow | None = None if index is None else cost.rows[index]
    return 0 if row is None else row.bytes


def _itemsize(dtype: str) -> int:
    if dtype.startswith("float8") or dtype in ("int8", "uint8", "qint8", "quint8"):
        return 1
    return _ITEMSIZE.get(dtype, 0)


Fp32 = tuple[str, str]
"""How float32 products and convolutions are computed: "ieee" or "tf32", as in `Settings`."""

TORCH_DEFAULT: Fp32 = ("ieee", "tf32")


class RowBound(NamedTuple):
    """Seconds that an operator's calls take at least, for their operations and for their bytes.

    `complete` is False where an operator has no formula or its dtype no peak.
    """

    compute: float
    memory: float
    complete: bool


class LowerBound(NamedTuple):
    """Sums over operators: of those bound by compute, of those bound by memory, in seconds."""

    compute: float
    memory: float
    at_least: bool

    @property
    def time(self) -> float:
        """Seconds in all: operators run one after the other."""
        return self.compute + self.memory


def row_bounds(cost: Cost, roofs: Roofs, fp32: Fp32 = TORCH_DEFAULT) -> tuple[RowBound, ...]:
    """Return the bound of each of `Cost.rows`, recomputation included.

    Operations (causal attention at its triangle, since kernels skip the rest) at the peak of their
    dtype; bytes at the bandwidth of a working set of one call's bytes, but weights that no cache
    can hold until they are used again at the memory's bandwidth (`weight_traffic.py`). Elementwise
    work is held to the peak of products, which it never reaches: memory bounds it. A datasheet
    knows no caches, so there the bound is one for operators that find their data in memory.
    """
    weights = beyond_cache(cost, roofs.last_level_cache)
    return tuple(
        _row_bound(row, roofs, fp32, weights.get(index, 0.0)) for index, row in enumerate(cost.rows)
    )


def summed(bounds: Iterable[RowBound]) -> LowerBound:
    """Return the sums of the longer times: operations and bytes of one operator go on at once."""
    compute = memory = 0.0
    at_least = False
    for bound in bounds:
        at_least |= not bound.complete
        if bound.compute > bound.memory:
            compute += bound.compute
        else:
            memory += bound.memory
    return LowerBound(compute, memory, at_least)


def _row_bound(row: CostRow, roofs: Roofs, fp32: Fp32, weights: float) -> RowBound:
    complete = row.has_formula
    # Products have units of their own, beside which other work goes on.
    operations = max(row.causal_matmul_flops, row.vector_flops + row.integer_ops)
    peak = roofs.peak(row.dtype, tf32=_rounded(row.operator, fp32))
    if peak is None:
        # Fewer operations than bytes are never what takes the time.
        complete &= operations <= row.bytes
    compute = operations / peak if peak else 0.0
    cached = roofs.bandwidth_at(row.bytes / max(1, row.calls))
    far = roofs.memory_bandwidth
    if cached is None or far is None:
        return RowBound(compute, 0.0, complete and not row.bytes)
    return RowBound(compute, (row.bytes - weights) / cached + weights / far, complete)


def _rounded(operator: str, fp32: Fp32) -> bool:
    matmul, convolution = fp32
    of_cudnn = "conv" in operator or "rnn" in operator
    return (convolution if of_cudnn else matmul) == "tf32"


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


def estimate_on_device(
    cost: Cost,
    size: Size,
    roofs: Roofs,
    training: TrainingMemory | None = None,
    *,
    inputs: int = 0,
    fp32: Fp32 = TORCH_DEFAULT,
) -> OtherDevice:
    """Return the least latency of `cost` on a device, the memory it needs, and whether that fits.

    Latency is the sum over operators of the longer of two times: their operations at the dense peak
    of their dtype, and their bytes at the memory's bandwidth. Kernels reach 40 to 80 % of that, and
    launching them takes time too: expect longer. Shorter is possible where fusion or a cache saves
    traffic between operators. Memory is that of `training` with the optimizer it assumes; without
    it, or where no total is known, a lower bound: it can show that a call does not fit, never that
    it does. A step that is estimated nearer to the device's memory than estimates are to what was
    measured may fit or not.
    """
    bound = summed(row_bounds(cost, roofs, fp32))
    minimum_memory, total = size.bytes + inputs, None
    if training is not None:
        minimum_memory, total = training.assumed.lower_bound, training.assumed.total
    at_least = total is None or bool(size.uninitialized)
    memory = minimum_memory if total is None else total
    fits: bool | None = None
    if roofs.memory is not None and (
        minimum_memory > roofs.memory or (total or 0) / HIGH > roofs.memory
    ):
        fits = False
    elif roofs.memory is not None and not at_least and memory / LOW <= roofs.memory:
        fits = True
    return OtherDevice(
        device=roofs.device,
        latency=bound.time if bound.time or not bound.at_least else None,
        memory=memory,
        memory_available=roofs.memory,
        fits=fits,
        latency_at_least=bound.at_least,
        memory_at_least=at_least,
        method=METHOD,
        sources=roofs.sources,
    )
