"""Runs a method of a TorchScript module from Python: calls of layers, and what is between them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from torchgauge import torch_private

Values = dict[str, Any]
# A traced module that is called twice has a method for each call, one with overloads for each.
_FORWARD = re.compile(r"forward(\d*|__\d+)")
_CALL, _ATTRIBUTE = "prim::CallMethod", "prim::GetAttr"
_CONSTANT, _UNINITIALIZED = "prim::Constant", "prim::Uninitialized"
_BLOCKS = ("prim::If", "prim::Loop")


class Instruction(NamedTuple):
    """One step of a method; `dead` are values that nothing reads after it."""

    run: Callable[[Values], None]
    reads: Sequence[str]
    writes: Sequence[str]
    dead: Sequence[str] = ()


class CannotFollowError(Exception):
    """A method starts work on another thread, or calls what is known when it runs alone."""


def calls_layers(graph: Any, script: Any) -> bool:
    """Return whether a graph, or a method of the same module that it calls, calls submodules."""
    if graph.findNode("prim::fork") is not None or graph.findNode("rpc::rpc_async") is not None:
        raise CannotFollowError
    return any(_is_layer_call(node, script) for node in graph.findAllNodes(_CALL))


def _is_layer_call(node: Any, script: Any) -> bool:
    called = node.inputsAt(0)
    if called.type().kind() != "ClassType":
        raise CannotFollowError  # an interface: which module it is shows when it runs
    if called.node().kind() == _ATTRIBUTE and _FORWARD.fullmatch(node.s("name")):
        return True
    if called.node().kind() == _ATTRIBUTE:
        return False
    graph = script._c._get_method(node.s("name")).graph  # noqa: SLF001
    return calls_layers(graph, script)


class Method:
    """A method's instructions: calls of layers, and functions of what lies between them."""

    def __init__(self, graph: Any, script: Any) -> None:
        self._script = script
        self._parameters = [value.debugName() for value in graph.inputs()]
        self._results = [value.debugName() for value in graph.outputs()]
        self._constants: Values = {}
        self._code = _freeing(self._block(graph), self._parameters[1:], self._results)

    def run(self, layer: Any, operands: Sequence[Any]) -> Any:
        """Run the method of a layer."""
        values = {**self._constants, **dict(zip(self._parameters, (layer, *operands), strict=True))}
        _execute(self._code, values)
        return values[self._results[0]]

    def _block(self, block: Any) -> list[Instruction]:
        code: list[Instruction] = []
        between: list[Any] = []
        for node in block.nodes():
            kind = node.kind()
            if kind in (_CONSTANT, _UNINITIALIZED):
                self._constant(node)
            elif kind == _ATTRIBUTE and _module_behind(node.output(), self._script) is not None:
                code.append(_attribute(node))
            elif self._has_calls(node):
                code += _region(between)
                between = []
                code.append(self._call(node) if kind == _CALL else self._nested(node))
            else:
                between.append(node)
        return code + _region(between)

    def _has_calls(self, node: Any) -> bool:
        if node.kind() == _CALL:
            return _is_layer_call(node, self._script)
        nested = (inner for block in node.blocks() for inner in block.nodes())
        return any(map(self._has_calls, nested))

    def _constant(self, node: Any) -> None:
        value = node.output()
        if node.kind() == _UNINITIALIZED:
            self._constants[value.debugName()] = None  # of a branch that raises
        elif value.type().kind() != "FunctionType":
            self._constants[value.debugName()] = value.toIValue()

    def _call(self, node: Any) -> Instruction:
        called, *operands = _names(node.inputs())
        method, result = node.s("name"), node.output().debugName()
        own = node.inputsAt(0).node().kind() != _ATTRIBUTE

        def call(values: Values) -> None:
            layer = values[called]
            function = layer.run if own else layer
            values[result] = function(method, *(values[name] for name in operands))

        return Instruction(call, (called, *operands), (result,))

    def _nested(self, node: Any) -> Instruction:
        if node.kind() not in _BLOCKS:
            raise CannotFollowError
        blocks = []
        for block in node.blocks():
            parameters, returned = _names(block.inputs()), _names(block.outputs())
            code = _freeing(self._block(block), parameters, returned)
            blocks.append(_Block(code, parameters, returned))
        inputs, results = _names(node.inputs()), _names(node.outputs())
        run = (_branch if node.kind() == "prim::If" else _loop)(blocks, inputs, results)
        return Instruction(run, list(_uses(node)), results)


class _Block(NamedTuple):
    code: list[Instruction]
    parameters: list[str]
    results: list[str]


def _freeing(
    code: list[Instruction], parameters: Iterable[str], results: Iterable[str]
) -> list[Instruction]:
    """Return the code with the values that it makes, and is given, dropped after their last use."""
    last: dict[str, int] = dict.fromkeys(parameters, 0)
    for number, step in enumerate(code):
        last |= dict.fromkeys(step.writes, number)
        last |= {name: number for name in step.reads if name in last}
    for name in results:
        last.pop(name, None)
    return [
        step._replace(dead=[name for name, end in last.items() if end == number])
        for number, step in enumerate(code)
    ]


def _branch(
    blocks: list[_Block], inputs: list[str], results: list[str]
) -> Callable[[Values], None]:
    def run(values: Values) -> None:
        block = blocks[0] if values[inputs[0]] else blocks[1]
        _execute(block.code, values)
        values.update(zip(results, [values[name] for name in block.results], strict=True))

    return run


def _loop(blocks: list[_Block], inputs: list[str], results: list[str]) -> Callable[[Values], None]:
    limit, first, *carried = inputs
    (block,) = blocks

    def run(values: Values) -> None:
        goes_on, state = values[first], [values[name] for name in carried]
        for number in range(values[limit]):
            if not goes_on:
                break
            values.update(zip(block.parameters, (number, *state), strict=True))
            _execute(block.code, values)
            goes_on, *state = [values[name] for name in block.results]
        values.update(zip(results, state, strict=True))

    return run


def _attribute(node: Any) -> Instruction:
    owner, name, result = node.inputsAt(0).debugName(), node.s("name"), node.output().debugName()

    def read(values: Values) -> None:
        values[result] = values[owner]._modules[name]  # noqa: SLF001 - also "0"

    return Instruction(read, (owner,), (result,))


def _region(nodes: list[Any]) -> list[Instruction]:
    """Return the instruction that runs nodes as one function of what they read."""
    if not nodes:
        return []
    region = _Region()
    region.add(nodes)
    function = torch_private.graph_function("between_layers", region.finished())
    operands, results = region.operands, region.results

    def run(values: Values) -> None:
        arguments = (values[name] for name in operands)
        returned = function(*(getattr(value, "script", value) for value in arguments))
        if len(results) == 1:
            values[results[0]] = returned
        else:
            values.update(zip(results, returned or (), strict=True))

    writes = [name for name in results if name not in operands]  # the others live on outside
    return [Instruction(run, operands, writes)]


class _Region:
    """A graph that is made of a part of another one."""

    def __init__(self) -> None:
        self.operands: list[str] = []
        self.results: list[str] = []
        self._graph: Any = torch_private.ProgramGraph()
        self._copies: dict[str, Any] = {}
        self._written: dict[str, None] = {}

    def add(self, nodes: list[Any]) -> None:
        """Copy nodes; what is used after them becomes a result."""
        used_inside = list(itertools.chain.from_iterable(map(_uses, nodes)))
        for node in nodes:
            copy = self._insert(node)
            self._written |= dict.fromkeys(_written_containers(node))
            for value, copied in zip(node.outputs(), copy.outputs(), strict=True):
                self._copies[value.debugName()] = copied
        outputs = (value for node in nodes for value in node.outputs())
        self.results = [
            value.debugName()
            for value in outputs
            if len(value.uses()) > used_inside.count(value.debugName())
        ]
        # A list is copied on its way into a function: what was done to it has to come back.
        self.results += [n for n in self._written if n in self.operands and n not in self.results]

    def finished(self) -> Any:
        """Return the graph, with its results as outputs."""
        values = [self._copies[name] for name in self.results]
        if len(values) != 1:
            pack = self._graph.create("prim::TupleConstruct", values, 1)
            self._graph.insertNode(pack)
            pack.output().setType(torch_private.TupleType([value.type() for value in values]))
            values = [pack.output()]
        self._graph.registerOutput(values[0])
        return self._graph

    def _insert(self, node: Any) -> Any:
        copy = self._graph.createClone(node, self._copied)
        self._graph.insertNode(copy)
        return copy

    def _copied(self, value: Any) -> Any:
        name = value.debugName()
        if name not in self._copies:
            if value.node().kind() in (_CONSTANT, _UNINITIALIZED):
                self._copies[name] = self._insert(value.node()).output()
            else:
                self._copies[name] = self._graph.addInput()
                self._copies[name].setType(value.type())
                self.operands.append(name)
        return self._copies[name]


def _execute(code: list[Instruction], values: Values) -> None:
    for instruction in code:
        instruction.run(values)
        for name in instruction.dead:
            values.pop(name, None)  # or it would count as memory of the step


def _names(values: Iterable[Any]) -> list[str]:
    return [value.debugName() for value in values]


def _module_behind(value: Any, script: Any) -> Any:
    """Return the module that a value of a method of `script` is; None where it is not one."""
    if value.type().kind() != "ClassType":
        return None
    node = value.node()
    if node.kind() != _ATTRIBUTE:
        return script if node.kind() == "prim::Param" else None
    owner, name = _module_behind(node.inputsAt(0), script), node.s("name")
    return owner._modules[name] if owner is not None and name in owner._modules else None  # noqa: SLF001


def _uses(node: Any) -> Iterator[str]:
    """Yield the name of each value that a node, or what is nested in it, uses, once a use."""
    yield from _names(node.inputs())
    for block in node.blocks():
        for inner in block.nodes():
            yield from _uses(inner)
        yield from _names(block.outputs())


def _written_containers(node: Any) -> Iterator[str]:
    """Yield lists and dictionaries that a node, or what is nested in it, changes."""
    schema = node.schema()
    if schema != "(no schema)":
        arguments = torch_private.parse_schema(schema).arguments
        for argument, value in zip(arguments, node.inputs(), strict=False):
            written = argument.alias_info is not None and argument.alias_info.is_write
            if written and value.type().kind() in ("ListType", "DictType"):
                yield cast("str", value.debugName())
    for block in node.blocks():
        for inner in block.nodes():
            yield from _written_containers(inner)
