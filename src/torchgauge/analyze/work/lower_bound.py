"""The least time that counted work can take on a device: operator by operator, under its roofs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torchgauge.analyze.work.weight_traffic import beyond_cache
from torchgauge.records.work.cost import Cost, CostRow
from torchgauge.records.work.roofline import Roofs

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
