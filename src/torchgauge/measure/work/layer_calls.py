"""Assign operators to layer calls: the tree of call paths, forward and backward."""

from __future__ import annotations

import functools
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from torchgauge import torch_private
from torchgauge.analyze.timeline.call_tree import name_in
from torchgauge.measure.recording.modules import Modules, identity
from torchgauge.measure.recording.scope import RAISED
from torchgauge.measure.work.internals import current_node, graph_task, node_number, sequence_number
from torchgauge.records.work.cost import CostNode
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.holdings import ParameterCounts

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
        tensor.grad_fn
        for tensor in torch_private.tree_leaves(values)
        if isinstance(tensor, torch.Tensor)
    )
    return {node for node in grad_functions if node is not None}


Shapes = list[tuple[tuple[int, ...], torch.dtype]]


class LayerCall:
    """A layer at one place of the call tree; the same module called elsewhere is another."""

    __slots__ = (
        *("calls", "children", "inputs", "kind", "module", "name", "outputs", "parent", "path"),
        "rows",
    )

    def __init__(
        self, name: str, path: str, kind: str, parent: LayerCall | None, module: nn.Module | None
    ) -> None:
        self.name, self.path, self.kind = name, path, kind
        self.parent = parent
        self.module = module
        self.calls = 0
        self.inputs: Shapes | None = None
        self.outputs: Shapes | None = None
        self.children: dict[int, LayerCall] = {}
        self.rows: dict[Any, list[int]] = {}


class _Thread(threading.local):
    """What one thread is running, and which call ran when its autograd counter stood where."""

    def __init__(self) -> None:
        self.current: LayerCall | None = None
        self.outermost = True
        self.numbers: list[int] = []
        self.owners: list[LayerCall] = []
        self.last_owner: LayerCall | None = None
        self.entered = False


class LayerCalls:
    """An observer of the layer scope: keeps the call tree, assigns operators to layer calls.

    `on_thread` is called on every other thread that runs a module, and returns what ends it; None
    where the thread works for somebody else. `foreign_threads` are the names of such threads that
    ran layers of the model.
    Backward operators belong to the layer call during which their node was made, by its sequence
    number, or as was noted on the nodes of another thread; nodes without one (gradient
    accumulation) to that of the node before. Recomputed layers (activation checkpointing) belong
    where their forward was.
    """

    def __init__(
        self, model: Callable[..., Any], on_thread: Callable[[], Callable[[], None] | None]
    ) -> None:
        self._modules = Modules(model)
        root = self._modules.root
        self.root = LayerCall(self._modules.name, "", self._modules.table[0].kind, None, root)
        self._on_thread = on_thread
        self.several_threads = False  # nodes were made on others than the main one
        self.foreign_threads: dict[str, None] = {}
        self.raised: LayerCall | None = None
        self._thread = _Thread()
        self._main = self._thread.numbers, self._thread.owners
        self._last: dict[int, LayerCall] = {}
        self._thread.current = self.root
        self._log(self.root)
        if root is None:
            self.root.calls = 1

    def enter(self, module: nn.Module, arguments: Any) -> Any:
        """Step into the layer's call."""
        thread = self._thread
        ending = None
        if thread.current is None:
            ending = self._on_thread()
            if ending is None:
                if self._modules.has(module):
                    self.foreign_threads[threading.current_thread().name] = None
                return None
            thread.current = self.root
        before = thread.current
        if graph_task() != -1 and thread.outermost:
            call = self._last.get(identity(module)) or self._child(before, module)
        elif before is self.root and module is self.root.module and thread.outermost:
            call = self.root
        else:
            call = self._child(before, module)
        state = (before, thread.outermost, ending)
        call.calls += graph_task() == -1
        call.inputs, call.outputs = _shapes(arguments), None
        thread.current, thread.outermost = call, False
        self._last[identity(module)] = call
        self._log(call)
        return state

    def leave(self, token: Any, outputs: Any) -> None:
        """Step back into the caller."""
        if token is None:
            return
        thread = self._thread
        if outputs is not RAISED:
            self.raised = None
            self.current().outputs = _shapes(outputs)
        elif self.raised is None:
            self.raised = self.current()
        before, thread.outermost, ending = token
        thread.current = before
        self._log(before)
        if ending is not None:
            ending()
            thread.current = None

    def was_called(self, module: nn.Module) -> bool:
        """Return whether the module ran, under whatever name."""
        return identity(module) in self._last

    def outside(self) -> list[nn.Module]:
        """Return the layers that ran and that the model does not have."""
        return self._modules.outside()

    @functools.cached_property
    def parameters(self) -> ParameterCounts:
        """The parameters after the call: it may have made those of lazy modules."""
        return ParameterCounts(self._modules.target)

    def current(self) -> LayerCall:
        """Return the layer call that is running on this thread."""
        return self._thread.current or self.root

    def node_owner(self) -> LayerCall:
        """Return the layer call to which the autograd node that is running belongs."""
        thread = self._thread
        node = current_node()
        number = node_number(node)
        numbers, owners = self._main  # the engine runs on its own threads for a GPU
        if self.several_threads and (owner := noted(node)) is not None:
            thread.last_owner = owner
        elif number is not None:
            index = bisect_right(numbers, number) - 1
            thread.last_owner = owners[max(index, 0)]
        return thread.last_owner or self.root

    def recomputing(self) -> LayerCall:
        """Return the layer call that is being run once more, inside the backward pass."""
        return self.node_owner() if self._thread.outermost else self.current()

    def nodes(self, *, shapes: bool = False) -> Iterator[tuple[CostNode, LayerCall]]:
        """Yield the tree as a table, a parent before its children, in calling order.

        With `shapes` also those of the tensors that the last call took and returned.
        """
        pending: list[tuple[LayerCall, int]] = [(self.root, -1)]
        number, total = 0, self.parameters.total
        while pending:
            call, parent = pending.pop()
            yield (
                CostNode(
                    name=call.name,
                    path=call.path,
                    kind=call.kind,
                    parent=parent,
                    calls=call.calls,
                    parameters=None if call.module is None else total(call.module),
                    inputs=_listed(call.inputs) if shapes else None,
                    outputs=_listed(call.outputs) if shapes else None,
                ),
                call,
            )
            pending += [(child, number) for child in reversed(call.children.values())]
            number += 1

    def _log(self, call: LayerCall) -> None:
        thread = self._thread
        number = sequence_number()
        if thread.numbers and thread.numbers[-1] == number:
            thread.owners[-1] = call
        else:
            thread.numbers.append(number)
            thread.owners.append(call)

    def _child(self, parent: LayerCall, module: nn.Module) -> LayerCall:
        key = identity(module)
        child = parent.children.get(key)
        if child is None:
            named = self._modules.table[self._modules.number(module)]
            path = named.path_in(parent.path)
            name = name_in(path, parent.path) or self.root.name
            child = LayerCall(name, path, type(module).__name__, parent, module)
            parent.children[key] = child
        return child


def _shapes(values: Any) -> Shapes:
    tensors = (tensor for tensor in tensors_in(values) if not tensor.is_nested)
    return [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]


def _listed(shapes: Shapes | None) -> str | None:
    if shapes is None:
        return None
    return ", ".join(
        f"{'×'.join(map(str, shape)) or 'scalar'} {str(dtype).removeprefix('torch.')}"
        for shape, dtype in shapes
    )
