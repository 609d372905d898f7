"""Causal attention that arrives as plain products: on meta tensors, and where no kernel fits."""

from __future__ import annotations

import functools
import threading
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from torch.nn import functional

from torchgauge.measure.work.internals import current_node, node_number, sequence_number
from torchgauge.signals import restoring
from torchgauge.targets.hygiene.functions import ORIGINAL

_IS_CAUSAL = 5  # its place among the arguments


class CausalAttention(threading.local):
    """Remembers, while attention that says `is_causal` runs, how many queries it has.

    `queries` is None outside of it, and where there are not as many keys: the triangle is not
    defined then. Autograd nodes made meanwhile are known by their sequence numbers. Each thread has
    its own.
    """

    def __init__(self) -> None:
        self.queries: int | None = None
        self._starts: list[int] = []
        self._calls: list[tuple[int, int]] = []  # the end of each call's nodes, and its queries

    @restoring
    def watched(self) -> Iterator[None]:
        """Wrap `torch.nn.functional.scaled_dot_product_attention` until the block ends.

        A torch function mode would see the calls by other names too, and would turn off the fast
        paths of nn.MultiheadAttention and nn.TransformerEncoder.
        """
        original = functional.scaled_dot_product_attention

        @functools.wraps(original)
        def attention(*args: Any, **kwargs: Any) -> Any:
            queries = _queries(args, kwargs)
            if queries is None:
                return original(*args, **kwargs)
            self.queries, start = queries, sequence_number()
            try:
                return original(*args, **kwargs)
            finally:
                self._starts.append(start)
                self._calls.append((sequence_number(), queries))
                self.queries = None

        setattr(attention, ORIGINAL, original)
        functional.scaled_dot_product_attention = attention
        try:
            yield
        finally:
            functional.scaled_dot_product_attention = original

    def node_queries(self) -> int | None:
        """Return the queries of the causal attention whose backward is running; None for others."""
        if not self._starts:
            return None
        number = node_number(current_node())
        index = -1 if number is None else bisect_right(self._starts, number) - 1
        if number is None or index < 0:
            return None
        end, queries = self._calls[index]
        return queries if number < end else None


def _queries(args: Any, kwargs: Any) -> int | None:
    causal = args[_IS_CAUSAL] if len(args) > _IS_CAUSAL else kwargs.get("is_causal", False)
    if not causal:
        return None
    query = args[0] if args else kwargs["query"]
    key = args[1] if len(args) > 1 else kwargs["key"]
    if query.is_nested or query.shape[-2] != key.shape[-2]:
        return None
    return int(query.shape[-2])


def triangle(flops: int, queries: int) -> int:
    """Return the part of products over queries · queries pairs that is on or below the diagonal."""
    return flops * (queries + 1) // (2 * queries) if queries else 0
