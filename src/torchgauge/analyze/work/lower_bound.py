"""The least time that counted work can take on a device: operator by operator, under its roofs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torchgauge.records.work.cost import Cost, CostRow
from torchgauge.records.work.roofline import Roofs

_ITEMSIZE = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "complex64": 8}


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
