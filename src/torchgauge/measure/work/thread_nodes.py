"""Assign autograd nodes of other threads to layer calls: each thread numbers nodes from 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from torchgauge.measure.work.internals import node_number

_KEY = "torchgauge"


class OwnNodes(TorchFunctionMode):
    """Notes the owner, as `current` says, on each autograd node that its thread makes.

    Only where gradients are on: a function mode turns off the fast paths of attention layers, which
    need them off. Nodes of custom autograd functions are not seen.
    """

    def __init__(self, current: Callable[[], object]) -> None:
        super().__init__()
        self._current = current

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function, and note the owner of the nodes between its arguments and outputs."""
        before = _nodes((args, kwargs))
        outputs = func(*args, **(kwargs or {}))
        pending = _nodes(outputs) - before
        owner = self._current()
        while pending:
            node = pending.pop()
            if node_number(node) is not None and _KEY not in node.metadata:
                node.metadata[_KEY] = owner
                after = {next_node for next_node, _ in node.next_functions if next_node is not None}
                pending |= after - before
        return outputs


def noted(node: Any) -> Any:
    """Return the owner that was noted on the node; None where there is none."""
    return None if node is None else node.metadata.get(_KEY)


def _nodes(values: Any) -> set[Any]:
    grad_functions = (
        tensor.grad_fn for tensor in tree_leaves(values) if isinstance(tensor, torch.Tensor)
    )
    return {node for node in grad_functions if node is not None}
