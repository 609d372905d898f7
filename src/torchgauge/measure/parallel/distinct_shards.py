"""What torch does for every rank or every parameter, done once for each that differs.

A job of 1,024 ranks would make 1,024 chunks of each parameter to keep one of them, and the sharding
of an optimizer's operator on n parameters would take a time that grows with n².
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor._dtensor_spec import DTensorSpec

# Operators on lists that shard each element by itself.
_ELEMENTWISE = ("aten::_foreach_", "aten::_fused_adam", "aten::_fused_sgd", "aten::_fused_adagrad")


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


def once_for_each(propagate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a propagation of shardings that is asked once for equal elements of lists."""

    @functools.wraps(propagate)
    def propagated(propagator: Any, schema: Any) -> Any:
        places = _places(schema)
        if places is None:
            return propagate(propagator, schema)
        count = len(places)
        firsts = [places.index(place) for place in range(max(places) + 1)]
        args = tuple(
            type(arg)(arg[first] for first in firsts) if _is_list(arg, count) else arg
            for arg in schema.args_schema
        )
        sharding = propagate(propagator, dataclasses.replace(schema, args_schema=args))
        if sharding.needs_redistribute or sharding.redistribute_schema is not None:
            return propagate(propagator, schema)
        specs = sharding.output_spec
        if not isinstance(specs, list | tuple):
            return sharding
        return dataclasses.replace(
            sharding, output_spec=type(specs)(specs[place] for place in places)
        )

    return propagated


def _places(schema: Any) -> list[int] | None:
    """Return which distinct element each one of the lists is; None where all must be asked."""
    args, named = schema.args_schema, schema.kwargs_schema.values()
    if not schema.op.name().startswith(_ELEMENTWISE) or not args or not _is_list(args[0]):
        return None
    lists = [arg for arg in args if _is_list(arg) and len(arg)]
    unequal = {len(values) for values in lists} != {len(args[0])}
    if unequal or not isinstance(args[0][0], DTensorSpec) or any(map(_is_list, named)):
        return None
    numbers: dict[Any, int] = {}
    try:
        places = [
            numbers.setdefault(tuple((type(value), value) for value in element), len(numbers))
            for element in zip(*lists, strict=True)
        ]
    except TypeError:  # symbolic numbers have no hash
        return None
    return places if len(numbers) < len(places) else None


def _is_list(value: Any, count: int | None = None) -> bool:
    return isinstance(value, list | tuple) and (count is None or len(value) == count)
