"""What torch does for every rank and for every pair of parameters, done no more than is needed.

A job of 1,024 ranks would make 1,024 chunks of each parameter to keep one of them, and the sharding
of an optimizer's operator on n parameters would take a time that grows with n².
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.distributed.tensor.placement_types import _StridedShard


class Chunks:
    """What `torch.chunk` returns, empty chunks after the last, each made when it is needed."""

    def __init__(self, tensor: torch.Tensor, number: int, dim: int) -> None:
        self._tensor, self._dim = tensor, dim
        self._size = -(-tensor.size(dim) // number)

    def __getitem__(self, index: int) -> torch.Tensor:
        length = self._tensor.size(self._dim)
        start = index * self._size
        if start >= length > 0:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, start, min(self._size, length - start))


def with_distinct_specs(propagate: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return a propagation of strided shards' flag to one operand, which reads all operands.

    It joins the flags of those with strided shards: one operand of each flag gives the same.
    """
    last, specs = None, SimpleNamespace(args_spec=())

    def propagated(strategy: Any, schema: Any) -> None:
        nonlocal last, specs
        if schema is not last:
            flags = {
                spec.use_strided_shard_as_shard_order: spec
                for spec in schema.args_spec
                if any(isinstance(placement, _StridedShard) for placement in spec.placements)
            }
            last, specs = schema, SimpleNamespace(args_spec=tuple(flags.values()))
        propagate(strategy, specs)

    return propagated
