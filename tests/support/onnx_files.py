"""Small ONNX models: ordinary ones, and those that a stranger may have made to do harm."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

# Without importing it: that would change the tests' own process.
needs_openvino = pytest.mark.skipif(
    find_spec("openvino") is None, reason="needs openvino: make test-all installs it"
)
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


def weight(name: str, *shape: int) -> TensorProto:
    """Return a float tensor whose values count up."""
    values = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    return numpy_helper.from_array(values, name)


def model(
    nodes: Sequence[NodeProto],
    stored: Sequence[TensorProto] = (),
    *,
    x: Sequence[int | str] = (1, 3, 8, 8),
    y: Sequence[int | str] | None = None,
    opset: int = 18,
    functions: Sequence[FunctionProto] = (),
    domains: Sequence[str] = (),
) -> ModelProto:
    """Return a model from the float input x to the output y."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, list(x))],
        [helper.make_tensor_value_info("y", FLOAT, None if y is None else list(y))],
        list(stored),
    )
    opsets = [helper.make_opsetid(domain, 1) for domain in domains]
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset), *opsets],
        functions=list(functions),
        ir_version=10,
    )


def convolutional() -> ModelProto:
    """Return two named convolutions with a ReLU between them, a pool and a linear layer."""
    return model(
        [
            node("Conv", ["x", "body.0.weight", "body.0.bias"], ["a"], name="c0", pads=[1] * 4),
            node("Relu", ["a"], ["b"], name="r"),
            node("Conv", ["b", "body.2.weight"], ["c"], name="c1"),
            node("GlobalAveragePool", ["c"], ["d"], name="p"),
            node("Flatten", ["d"], ["e"], name="f"),
            node("Gemm", ["e", "head.weight", "head.bias"], ["y"], name="g", transB=1),
        ],
        [
            weight("body.0.weight", 4, 3, 3, 3),
            weight("body.0.bias", 4),
            weight("body.2.weight", 8, 4, 3, 3),
            weight("head.weight", 10, 8),
            weight("head.bias", 10),
        ],
    )


def loop(trips: int | None, *, condition: bool = True, depth: int = 1) -> ModelProto:
    """Return a loop of a product with [4, 4]; one in the other where it is deeper than one."""
    body: list[NodeProto] = [node("MatMul", ["v", "w"], ["v_out"])]
    stored = [weight("w", 4, 4)]
    for level in range(depth):
        value_in, value_out = ("v", "v_out") if level == 0 else (f"v{level}", f"v{level}_out")
        graph = helper.make_graph(
            [*body, node("Identity", [f"go{level}"], [f"goes{level}"])],
            f"body{level}",
            [
                helper.make_tensor_value_info(f"i{level}", INT, []),
                helper.make_tensor_value_info(f"go{level}", BOOL, []),
                helper.make_tensor_value_info(value_in, FLOAT, [2, 4]),
            ],
            [
                helper.make_tensor_value_info(f"goes{level}", BOOL, []),
                helper.make_tensor_value_info(value_out, FLOAT, [2, 4]),
            ],
        )
        last = level == depth - 1
        start, result = ("x", "y") if last else (f"v{level + 1}", f"v{level + 1}_out")
        body = [node("Loop", ["trips" if trips is not None else "", "start", start], [result],
                     name=f"loop{level}", body=graph)]  # fmt: skip
    stored.append(numpy_helper.from_array(np.array(condition), "start"))
    if trips is not None:
        stored.append(numpy_helper.from_array(np.array(trips, np.int64), "trips"))
    return model(body, stored, x=(2, 4))


def function(name: str, nodes: Sequence[NodeProto], domain: str = "local") -> FunctionProto:
    """Return a function from x to y."""
    return helper.make_function(
        domain,
        name,
        ["x"],
        ["y"],
        list(nodes),
        [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)],
    )


def nested_functions(levels: int, calls: int) -> ModelProto:
    """Return functions each of which calls the next so many times: calls to the power of levels."""
    functions = [function("f0", [node("Relu", ["x"], ["y"])])]
    for level in range(1, levels + 1):
        values = ["x", *(f"v{number}" for number in range(calls - 1)), "y"]
        body = [
            node(f"f{level - 1}", [before], [after], domain="local")
            for before, after in itertools.pairwise(values)
        ]
        functions.append(function(f"f{level}", body))
    call = node(f"f{levels}", ["x"], ["y"], domain="local")
    return model([call], functions=functions, domains=["local"])


def cyclic_functions(length: int) -> ModelProto:
    """Return functions that call each other in a circle."""
    functions = [
        function(f"f{n}", [node(f"f{(n + 1) % length}", ["x"], ["y"], domain="local")])
        for n in range(length)
    ]
    call = node("f0", ["x"], ["y"], domain="local")
    return model([call], functions=functions, domains=["local"])


def external(location: str, *, offset: str = "0", length: str = "64") -> ModelProto:
    """Return a product with a [4, 4] that is stored at `location`."""
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[4, 4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=value)
    return model([node("MatMul", ["x", "w"], ["y"])], [tensor], x=(2, 4))


def declared(*dims: int) -> ModelProto:
    """Return a model with a tensor that declares a size and holds nothing."""
    tensor = TensorProto(name="w", data_type=FLOAT, dims=dims)
    return model([node("Add", ["x", "w"], ["y"])], [tensor])


def computed_size(operator: str) -> ModelProto:
    """Return a model that makes a value of 2⁴⁸ elements from two numbers."""
    sizes = numpy_helper.from_array(np.array([2**24, 2**24], np.int64), "n")
    one = numpy_helper.from_array(np.ones((1, 1), np.float32), "one")
    inputs = {"ConstantOfShape": ["n"], "Expand": ["one", "n"], "Tile": ["one", "n"]}[operator]
    return model([node(operator, inputs, ["a"]), node("Add", ["a", "x"], ["y"])], [sizes, one],
                 x=(1,))  # fmt: skip


def outside(folder: Path) -> Iterator[tuple[str, Callable[[], ModelProto]]]:
    """Yield models in `folder` that keep a tensor elsewhere; what they name is there."""
    secret = folder.parent / "secret.bin"
    secret.write_bytes(bytes(64))
    for name, target in (("link.bin", secret), ("folder_link", folder.parent), ("zero", None)):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to("/dev/zero" if target is None else target)
    for location in (
        "../secret.bin", str(secret), "link.bin", "folder_link/secret.bin", "./../secret.bin",
        "sub/../../secret.bin", "zero", "/dev/zero", "..\\secret.bin", "C:\\secret.bin", "",
        "file:///etc/passwd", ".", "..", "link.bin\0.txt",
    ):  # fmt: skip
        yield repr(location), lambda location=location: external(location)


def hostile() -> dict[str, Callable[[], ModelProto]]:
    """Return models by what is wrong with them; each makes a result or an error."""
    return {
        "function calls itself": lambda: cyclic_functions(1),
        "functions in a circle": lambda: cyclic_functions(50),
        "functions that grow": lambda: nested_functions(30, 10),
        "functions in a long chain": lambda: nested_functions(5000, 1),
        "loop without end": lambda: loop(None),
        "loop of 2**62": lambda: loop(2**62),
        "loops of 2**40 in each other": lambda: loop(2**40, depth=12),
        "loop of -1": lambda: loop(-1),
        "tensor of 2**62": lambda: declared(2**62),
        "tensor of 2**93": lambda: declared(2**31, 2**31, 2**31),
        "tensor of -1": lambda: declared(-1, 4),
        "input of 2**62": lambda: model([node("Relu", ["x"], ["y"])], x=(2**31, 2**31)),
        "input of 2**120": lambda: model([node("Relu", ["x"], ["y"])], x=[2**30] * 4),
        "ConstantOfShape of 2**48": lambda: computed_size("ConstantOfShape"),
        "Expand to 2**48": lambda: computed_size("Expand"),
        "Tile to 2**48": lambda: computed_size("Tile"),
        "value before it is made": lambda: model([node("Relu", ["z"], ["y"]),
                                                  node("Relu", ["x"], ["z"])]),
        "node that reads itself": lambda: model([node("Add", ["x", "y"], ["y"])]),
        "no inputs": lambda: model([node("Relu", [], ["y"])]),
        "unknown operator": lambda: model([node("NoSuch", ["x"], ["y"])]),
        "opset of the future": lambda: model([node("Relu", ["x"], ["y"])], opset=9999),
        "long name": lambda: model([node("Relu", ["x"], ["y"], name="/a" * 500_000)]),
        "deep name": lambda: model([node("Relu", ["x"], ["y"], name="a." * 50_000 + "/b")]),
        "changed name": lambda: model([node("Relu", ["x"], ["v" + "_nhwc" * 20_000]),
                                       node("Relu", ["x"], ["y"])]),
        "name of a tensor": lambda: model([node("Add", ["x", "/\n" * 50_000], ["y"])],
                                          [weight("/\n" * 50_000, 8)]),
        "shapes that do not fit": lambda: model(
            [node("MatMul", ["x", "w"], ["y"])], [weight("w", 5, 5)]
        ),
        "string in place of numbers": lambda: model(
            [node("Conv", ["x", "w"], ["y"], pads="none")], [weight("w", 1, 3, 3, 3)]
        ),
    }  # fmt: skip
