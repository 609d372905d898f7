"""Gives an exported program its layers back: a module for each module path of its graph's nodes.

The graph of a program is flat; each of its nodes has the calls that it was traced in
(`nn_module_stack`). While something observes module calls, the nodes of one call run inside a call
of a module of that path and class; otherwise the flat graph runs, as it does where it is deployed.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import fx, nn

from torchgauge import torch_private
from torchgauge.targets.hygiene.functions import ORIGINAL

NO_PATH = "(no module path)"
_STACK = "nn_module_stack"
_FLAT, _LAYERED = 0, 1
# What torch notes of a node whose call it does not know.
_NO_STACK = "_empty_nn_module_stack"
_FIRST = {"placeholder": 0, "get_attr": 1}


class Frame(NamedTuple):
    """One call of a module while the program was traced: its key, module path and class."""

    call: str
    path: str
    kind: str


class Layer(nn.Module):
    """A module of the program that was exported: has its parameters, and runs its calls' nodes."""

    bodies: list[Callable[..., Any]]

    def forward(self, number: int, *operands: Any) -> Any:
        """Run the nodes of the call of this number."""
        return self.bodies[number](self, *operands)


class Program(Layer):
    """The whole program, called as the model was."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the flat graph, or the layers if somebody observes their calls."""
        observed = hasattr(nn.Module.__call__, ORIGINAL)
        return self.bodies[_LAYERED if observed else _FLAT](self, *args, **kwargs)


def with_layers(flat: fx.GraphModule) -> nn.Module:
    """Return the module of an exported program with its layers; it shares the tensors of `flat`."""
    stacks = _stacks(flat.graph.nodes)
    kind = next((stack[0].kind for stack in stacks.values()), type(flat).__name__)
    program = _program(flat, kind)
    _tie(program)
    _Outline(program).add_bodies(program, flat.graph, 1)
    return program


class _Outline:
    """Copies flat graphs into graphs of layers that call each other."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._calls = itertools.count()
        self._shared: dict[Any, dict[str, nn.Module]] = {}
        self._stacks: dict[fx.Node, tuple[Frame, ...]] = {}

    def add_bodies(self, module: Layer, flat: fx.Graph, depth: int) -> None:
        """Give a program, or a part that an operator calls, the flat graph and that of layers."""
        self._stacks |= _stacks(flat.nodes)
        layered = fx.Graph()
        layered.set_codegen(flat._codegen)  # noqa: SLF001 - it has no public name
        # What is read stands wherever it is first used: there it would end a layer's call.
        nodes = sorted(flat.nodes, key=lambda node: _FIRST.get(node.op, len(_FIRST)))
        self._copy(nodes, depth, layered, {}, module)
        module.bodies += [_compiled(flat), _compiled(layered)]

    def _copy(
        self,
        nodes: Sequence[fx.Node],
        depth: int,
        graph: fx.Graph,
        copies: dict[fx.Node, fx.Node],
        owner: Layer,
    ) -> None:
        """Copy nodes into the `graph` of `owner`; those of deeper calls become a call of a layer.

        `copies` has the values that the graph is given, and gets those that it computes.
        """
        for frame, run in itertools.groupby(nodes, lambda node: self._frame(node, depth)):
            if frame is None:
                for node in run:
                    copies[node] = graph.node_copy(node, copies.__getitem__)
                    if node.op in ("get_attr", "call_module"):
                        copies[node].target = self._not_a_layer(node, owner)
            else:
                self._call(frame, list(run), depth, graph, copies, owner)

    def _frame(self, node: fx.Node, depth: int) -> Frame | None:
        stack = self._stacks.get(node, ())
        return stack[depth] if len(stack) > depth else None

    def _call(
        self,
        frame: Frame,
        nodes: list[fx.Node],
        depth: int,
        graph: fx.Graph,
        copies: dict[fx.Node, fx.Node],
        owner: Layer,
    ) -> None:
        own = set(nodes)
        read = dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in own)
        results = [node for node in nodes if not own.issuperset(node.users)]
        layer, body = self._layer(frame), fx.Graph()
        inside = {node: body.placeholder(f"operand_{i}") for i, node in enumerate(read)}
        self._copy(nodes, depth + 1, body, inside, layer)
        values = tuple(inside[node] for node in results)
        body.output(values[0] if len(values) == 1 else values)
        layer.bodies.append(_compiled(body))
        name = f"_call_{next(self._calls)}"
        vars(owner)[name] = layer  # not registered: a shared layer is elsewhere in the tree
        call = graph.call_module(name, (len(layer.bodies) - 1, *(copies[node] for node in read)))
        if len(results) == 1:
            copies[results[0]] = call
            return
        for i, node in enumerate(results):
            copies[node] = graph.call_function(operator.getitem, (call, i))

    def _layer(self, frame: Frame) -> Layer:
        """Return the layer at a path: the module that holds its parameters, or a new one."""
        module: nn.Module = self._program
        owner, name = module, ""
        for name in frame.path.split("."):
            owner = module
            if not isinstance(owner._modules.get(name), nn.Module):  # noqa: SLF001 - any name
                owner._modules[name] = nn.Module()  # noqa: SLF001
            module = owner._modules[name]  # type: ignore[assignment]  # noqa: SLF001
        if parameters := tuple(map(id, module.parameters())):
            by_path = self._shared.setdefault((frame.kind, parameters), {})
            module = owner._modules[name] = _shared(by_path, frame.path, module)  # noqa: SLF001
        return _as_layer(module, frame.kind)

    def _not_a_layer(self, node: fx.Node, owner: Layer) -> str:
        """Return what to read so that checks of inputs, and operators' parts, have no layer."""
        target = str(node.target)
        part = owner._modules.get(target)  # noqa: SLF001
        if isinstance(part, fx.GraphModule):
            replaced = owner._modules[target] = _program(part, type(part).__name__)  # noqa: SLF001
            self.add_bodies(replaced, part.graph, min(map(self._depth, node.users), default=1))
            part = replaced
        return target if part is None else f"{target}.forward"

    def _depth(self, user: fx.Node) -> int:
        return len(self._stacks.get(user, ("",)))


def _program(flat: fx.GraphModule, kind: str) -> Program:
    program: Program = _kind(kind, Program)()
    vars(program).update({name: vars(flat)[name] for name in vars(flat) if name != "_graph"})
    pytree = getattr(flat.graph._codegen, "pytree_info", None)  # noqa: SLF001
    vars(program).update(
        graph=flat.graph,  # for the check of inputs that torch adds
        _in_spec=getattr(pytree, "in_spec", None),
        _out_spec=getattr(pytree, "out_spec", None),
        bodies=[],
    )
    return program


def _tie(program: nn.Module) -> None:
    """Make what was one parameter with several names one again: a file has it once for each."""
    first: dict[Any, nn.Parameter] = {}
    for module in program.modules():
        for name, parameter in module._parameters.items():  # noqa: SLF001 - it assigns the same
            if parameter is not None and parameter.layout is torch.strided and parameter.numel():
                key = parameter.data_ptr(), parameter.shape, parameter.stride(), parameter.dtype
                module._parameters[name] = first.setdefault(key, parameter)  # noqa: SLF001


def _shared(by_path: dict[str, nn.Module], path: str, module: nn.Module) -> nn.Module:
    """Return the module itself, or the one at another path that has its class and parameters.

    One module under two names has its parameters under both. A container and its only part have
    the same ones, too.
    """
    if module not in by_path.values():
        unrelated = (
            other
            for other_path, other in by_path.items()
            if not f"{path}.".startswith(f"{other_path}.")
            and not f"{other_path}.".startswith(f"{path}.")
        )
        module = by_path[path] = next(unrelated, module)
    return module


def _as_layer(module: nn.Module, kind: str) -> Layer:
    if not isinstance(module, Layer):
        module.__class__ = _kind(kind, Layer)
        vars(module)["bodies"] = []
    return cast("Layer", module)


@functools.cache
def _kind(name: str, base: Any) -> type[Any]:
    return type(name, (base,), {"__module__": __name__})


def _compiled(graph: fx.Graph) -> Callable[..., Any]:
    code = graph.python_code("self")
    names = dict(code.globals)
    exec(code.src, names)  # noqa: S102 - as torch does with the same graph
    return cast("Callable[..., Any]", names["forward"])


def _stacks(nodes: Iterable[fx.Node]) -> dict[fx.Node, tuple[Frame, ...]]:
    """Return the calls that each computing node is in, the program's own first.

    A node without them is in a layer of its own, in what the nodes around it have in common.
    """
    stacks: dict[fx.Node, tuple[Frame, ...]] = {}
    pending: list[fx.Node] = []
    before: tuple[Frame, ...] = ()
    for node in nodes:
        if node.op != "call_function":
            continue
        stack = _stack(node)
        if not stack:
            pending.append(node)
            continue
        stacks |= {node: _between(node, before, stack) for node in pending}
        pending = []
        before = stacks[node] = stack
    return stacks | {node: _between(node, before, before[:1]) for node in pending}


def _stack(node: fx.Node) -> tuple[Frame, ...]:
    calls = node.meta.get(_STACK) or {}
    frames = [
        Frame(str(call), path, getattr(kind, "__name__", str(kind)).rpartition(".")[2] or "Module")
        for call, (path, kind) in calls.items()
        if not str(call).startswith(_NO_STACK) and not str(path).startswith(_NO_STACK)
    ]
    return tuple(frame for number, frame in enumerate(frames) if frame.path or number == 0)


def _between(
    node: fx.Node, before: tuple[Frame, ...], after: tuple[Frame, ...]
) -> tuple[Frame, ...]:
    before = before or after[:1]
    pairs = zip(before, after, strict=False)
    shared = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    common = tuple(frame for frame, _ in shared) or (Frame("", "", "Program"),)
    if not isinstance(node.target, torch_private.Operator) or "sym_" in node.name:
        return common  # arithmetic of sizes
    path = f"{common[-1].path}.{NO_PATH}".lstrip(".")
    return (*common, Frame(path, path, "Operators"))
