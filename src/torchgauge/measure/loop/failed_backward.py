"""Where a backward pass raised, by what its graph still holds: nothing of it runs in steps.

Autograd runs the nodes of a thread from the last that was made to the first, and frees what each
saved once it has run. So the one that raised is between the last that holds nothing any more and
the first that still does; what can ask for no memory is not it. Where instead a gradient may have
been added to another or to a parameter's, or several nodes may have raised, nothing is said.
"""

from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

from torchgauge.measure.memory.live_tensors import locals_of, outermost, saved_by
from torchgauge.measure.work.internals import backward_code
from torchgauge.targets.inputs.tensors import node_of

# They make views of gradients, and no memory; "View" copies some.
_VIEWS = frozenset(
    f"{name}Backward0" for name in ("T", "Transpose", "Permute", "Unsqueeze", "Squeeze", "Sum")
)
_VIEW_OR_COPY = frozenset(("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0"))
_RESHAPING = _VIEWS - {"SumBackward0"} | _VIEW_OR_COPY
# What stands between a layer's product and its weight.
_OF_WEIGHTS = _RESHAPING | {"ToCopyBackward0"}


class Failed(NamedTuple):
    """What raised in a backward pass; a field is "" where nothing says it.

    Attributes:
        layer: The layer of whose parameters its gradients are, as `fc1 (Linear)`.
        function: The autograd function, as "GeluBackward0".
        after: The layer whose backward had ended last.
    """

    layer: str = ""
    function: str = ""
    after: str = ""


def failed_backward(frames: Sequence[FrameType], requested: int | None) -> Failed:
    """Return what raised in the innermost backward pass of an error's frames.

    `requested` are the bytes that it asked for. Python's own frames say it of a custom function;
    of a hook, and of a process of several, nothing is known.
    """
    passes = [number for number, frame in enumerate(frames) if frame.f_code is backward_code]
    if not passes or (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return Failed()
    engine, *inside = frames[passes[-1] :]
    ran: list[Any] = []
    if not inside:
        ran, nodes = _nodes(dict(locals_of(engine)), requested)
    else:
        node = dict(locals_of(inside[0])).get("self")
        nodes = [node] if isinstance(node, torch.autograd.function.BackwardCFunction) else []
    owners = _owners()
    layers, functions = {_layer(node, owners) for node in nodes}, {node.name() for node in nodes}
    return Failed(
        layer=layers.pop() if len(layers) == 1 else "",
        function=functions.pop() if len(functions) == 1 else "",
        after=next((layer for node in reversed(ran) if (layer := _layer(node, owners))), ""),
    )


def _nodes(engine: dict[str, Any], requested: int | None) -> tuple[list[Any], list[Any]]:
    """Return nodes that ran, and those of which one raised; none where that is not known.

    `engine` are the variables of torch's function that runs a backward pass.
    """
    _, keeps_graph, _, inputs = (*engine.get("args", ()), None, True, None, None)[:4]
    order = [] if keeps_graph or inputs else _graph(engine.get("t_outputs", ()))
    if len({part.device for node in order for part in node._input_metadata}) > 1:  # noqa: SLF001
        return [], []  # each device has an order of its own
    saved = [saved_by(node) for node in order]
    ran = [node for node, parts in zip(order, saved, strict=True) if parts is None]
    begin = order.index(ran[-1]) + 1 if ran else 0
    waits = [any(part is not None for part in parts or ()) for parts in saved]
    end = [*waits, True].index(True) + 1
    edges = Counter(edge for node in order for edge in node.next_functions)
    for node in order[max(begin - 1, 0) : end - 1]:
        for other, number in node.next_functions:
            if other and _is_added(other, number, requested, edges[other, number]):
                return ran, []
    return ran, [node for node in order[begin:end] if _may_allocate(node, requested)]


def _graph(outputs: Sequence[Any]) -> list[Any]:
    """Return the nodes of the outputs' graph but the parameters', those made last first."""
    visited = {node_of(output) for output in outputs if isinstance(output, torch.Tensor)} - {None}
    nodes = list(visited)
    for node in nodes:  # which grow meanwhile
        used = {other for other, _ in node.next_functions} - visited - {None}
        visited |= used
        nodes += [other for other in used if not hasattr(other, "variable")]
    return sorted(nodes, key=lambda node: -node._sequence_nr())  # noqa: SLF001


def _is_added(node: Any, number: int, requested: int | None, uses: int) -> bool:
    """Whether a gradient that a node takes may have asked for memory to be added to another."""
    if (parameter := getattr(node, "variable", None)) is not None:
        return parameter.grad is None or bool(parameter._post_accumulate_grad_hooks)  # noqa: SLF001
    return uses > 1 and _is_size(node, number, requested)


def _may_allocate(node: Any, requested: int | None) -> bool:
    """Whether a node can have asked for `requested` bytes."""
    if node.name() in _VIEW_OR_COPY:
        return _is_size(node, 0, requested)
    if node.name() == "AddBackward0":  # it passes its gradient on, unless it was broadcast
        edges = [(other, number) for other, number in node.next_functions if other is not None]
        forms = {_form(other, number) for other, number in ((node, 0), *edges)}
        return len(forms) > 1 or node._saved_alpha != 1  # noqa: SLF001
    return node.name() not in _VIEWS


def _form(node: Any, number: int) -> tuple[tuple[int, ...], torch.dtype]:
    """Return shape and type of a gradient that a node takes."""
    part = node._input_metadata[number]  # noqa: SLF001
    return tuple(part.shape), part.dtype


def _is_size(node: Any, number: int, requested: int | None) -> bool:
    """Whether a gradient that a node takes may have `requested` bytes, which errors round."""
    shape, dtype = _form(node, number)
    size = math.prod(shape) * dtype.itemsize
    return requested is None or abs(requested - size) <= 0.01 * size


def _owners() -> dict[int, str]:
    """Return the layers of all parameters by these' identity; "" of one that several have."""
    owners: dict[int, str] = {}
    modules = [item for item in gc.get_objects() if issubclass(type(item), nn.Module)]
    for module in outermost(modules):
        for path, layer in module.named_modules():
            kind = type(layer).__name__
            for parameter in layer.parameters(recurse=False):
                is_shared = id(parameter) in owners
                owners[id(parameter)] = "" if is_shared else f"{path} ({kind})" if path else kind
    return owners


def _layer(node: Any, owners: dict[int, str]) -> str:
    """Return the layer of the parameters that a node takes; "" of none, or of several layers'.

    What reshapes a layer's output belongs to it.
    """
    node = _below(node, _RESHAPING)
    operands = [node, *(_below(other, _OF_WEIGHTS) for other, _ in node.next_functions)]
    layers = {owners.get(id(getattr(other, "variable", None))) for other in operands} - {None}
    return layers.pop() or "" if len(layers) == 1 else ""


def _below(node: Any, functions: frozenset[str]) -> Any:
    """Return the node, or the first below that is none of these functions."""
    while node is not None and node.name() in functions and node.next_functions[0][0] is not None:
        node = node.next_functions[0][0]
    return node
