"""Whose an autograd node of another thread is: nodes are numbered anew on every thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from torchgauge.measure.internals import node_number

_KEY = "torchgauge"


class OwnNodes(TorchFunctionMode):
    """Notes on each node that its thread makes whose it is, as `current` says.

    Only where gradients are on: a function mode turns off the fast paths of attention layers, which
    need them off. Nodes of custom autograd functions are not seen.
    """

    def __init__(self, current: Callable[[], object]) -> None:
        super().__init__()
        self._current = current

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function, and note whose the nodes between its arguments and its outputs are."""
        before = _nodes((args, kwargs))
        outputs = func(*args, **(kwargs or {}))
        pending = _nodes(outputs) - before
        owner = self._current()
        while pending:
            node = pending.pop()
            if node_number(node) is not None and _KEY not in node.metadata:
                node.metadata[_KEY] = owner
                after = {one for one, _ in node.next_functions if one is not None}
                pending |= after - before
        return outputs


def noted(node: Any) -> Any:
    """Return what was noted on the node; None where nothing was."""
    return None if node is None else node.metadata.get(_KEY)


def _nodes(values: Any) -> set[Any]:
    found = (one.grad_fn for one in tree_leaves(values) if isinstance(one, torch.Tensor))
    return {node for node in found if node is not None}
