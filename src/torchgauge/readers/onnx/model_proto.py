"""The model of an ONNX file, parsed and checked: tensors, files beside it, local functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto
from onnx.inliner import inline_local_functions

from torchgauge.errors import InputError
from torchgauge.readers.onnx.element_types import stored_bytes

# Marks the tensors of local functions: each call has a copy.
OF_FUNCTION = "torchgauge, tensor of functions: "
# Nodes with all functions expanded; the largest of real exports have some 50,000.
MAX_NODES = 500_000
_Key = tuple[str, str, str]  # a function's domain, name and overload
# The fields of a tensor that hold values one by one; the others are bytes.
_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")


def load(path: Path) -> ModelProto:
    """Return the model with its local functions expanded; tensors in other files are not read.

    Raises:
        InputError: `onnx-unreadable`, `onnx-functions`, `external-data-outside`,
            `external-data-missing`.
    """
    model = ModelProto()
    model.ParseFromString(path.read_bytes())
    if not model.HasField("graph") or not model.opset_import:
        raise _unreadable(path, "It has no graph, or does not name the version of its operators.")
    for tensor in _tensors(model):
        check_tensor(tensor, path)
    if model.functions:
        _check_functions(model, path)
        model = _expanded(model)
    return model


def _expanded(model: ModelProto) -> ModelProto:
    """Return the model with its functions expanded; those of opsets that onnx cannot convert stay.

    Their tensors are marked.
    """
    for number, tensor in enumerate(_of_functions(model)):
        tensor.doc_string = f"{OF_FUNCTION}{number}"
    try:
        return inline_local_functions(model, convert_version=True)
    except Exception:  # noqa: BLE001 - a converter in C++, which raises errors of its own
        return inline_local_functions(model)


def external_file(tensor: TensorProto, path: Path) -> Path | None:
    """Return the file beside the model that holds the tensor; None for one that is in the model.

    Raises:
        InputError: `external-data-outside`, `external-data-missing`.
    """
    if tensor.data_location != TensorProto.EXTERNAL:
        return None
    location = external_facts(tensor).get("location", "")
    parts = PurePosixPath(location).parts
    if (
        not location
        or "\0" in location
        or "\\" in location
        or ".." in parts
        or PurePosixPath(location).is_absolute()
        or PureWindowsPath(location).drive
    ):
        raise _outside(tensor, path, location, "It may only be in the folder of the model.")
    file = path.parent
    for part in parts:
        file = file / part
        if file.is_symlink():
            cause = f"{file.name} is a symbolic link, which may lead anywhere."
            raise _outside(tensor, path, location, cause)
    if not file.is_file():
        raise InputError(
            f"{path} lacks the file {location!r}, which holds its tensors.",
            id="external-data-missing",
            cause=f"The tensor {tensor.name!r} is stored there.",
            remedy="Put the file beside the model, under that name.",
        )
    return file


def external_facts(tensor: TensorProto) -> dict[str, str]:
    """Return where an external tensor is: location, offset, length."""
    return {entry.key: entry.value for entry in tensor.external_data}


def external_range(tensor: TensorProto) -> tuple[int, int | None]:
    """Return offset and length of an external tensor. Raises ValueError for no whole numbers."""
    facts = external_facts(tensor)
    length = facts.get("length")
    return int(facts.get("offset", "0") or 0), None if not length else int(length)


def check_tensor(tensor: TensorProto, path: Path) -> None:
    """Raise InputError where a tensor holds other than it declares, or is stored elsewhere."""
    shape = tuple(tensor.dims)
    if any(size < 0 for size in shape):
        raise _unreadable(path, f"The tensor {tensor.name!r} has a negative size.")
    file = external_file(tensor, path)
    declared = stored_bytes(tensor.data_type, math.prod(shape))
    if file is not None:
        _check_range(tensor, path, file, declared)
        return
    elements, stored = math.prod(shape), len(tensor.raw_data)
    if tensor.data_type == TensorProto.STRING:
        held = len(tensor.string_data) == elements
    elif stored:
        held = declared is None or stored == declared
    else:
        count = sum(len(getattr(tensor, field)) for field in _FIELDS)
        complex_parts = tensor.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128)
        packed = declared is not None and declared < elements
        held = count == ((declared or 0) if packed else elements * (1 + complex_parts))
    if not held:
        raise _unreadable(
            path,
            f"The tensor {tensor.name!r} declares {'x'.join(map(str, shape)) or 'one'} elements, "
            f"and holds {stored} bytes of another size.",
        )


def _check_range(tensor: TensorProto, path: Path, file: Path, declared: int | None) -> None:
    try:
        offset, length = external_range(tensor)
    except ValueError:
        raise _unreadable(path, f"The tensor {tensor.name!r} has no valid place.") from None
    size = file.stat().st_size
    needed = declared if declared is not None else length or 0
    if offset < 0 or (length is not None and length != needed) or offset + needed > size:
        raise _unreadable(
            path,
            f"The tensor {tensor.name!r} takes {needed} bytes from {offset}, and {file.name} has "
            f"{size}.",
        )


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield every tensor: initializers, attributes, those of subgraphs and functions."""
    yield from _of_graphs([model.graph], [])
    yield from _of_functions(model)


def _of_functions(model: ModelProto) -> Iterator[TensorProto]:
    graphs: list[GraphProto] = []
    for function in model.functions:
        yield from _of_attributes(function.attribute_proto, graphs)
    yield from _of_graphs(graphs, [node for function in model.functions for node in function.node])


def _of_graphs(graphs: list[GraphProto], nodes: list[NodeProto]) -> Iterator[TensorProto]:
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield sparse.values
                yield sparse.indices
            nodes += graph.node
        while nodes:
            yield from _of_attributes(nodes.pop().attribute, graphs)


def _of_attributes(
    attributes: Sequence[AttributeProto], graphs: list[GraphProto]
) -> Iterator[TensorProto]:
    """Yield the tensors of attributes, and add their graphs to the list."""
    for attribute in attributes:
        graphs += subgraphs(attribute)
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            if sparse.HasField("values"):
                yield sparse.values
                yield sparse.indices


def subgraphs(attribute: AttributeProto) -> list[GraphProto]:
    """Return the graphs that an attribute holds."""
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def _check_functions(model: ModelProto, path: Path) -> None:
    """Raise InputError `onnx-functions` for functions that call themselves, or grow too large."""
    functions: dict[_Key, FunctionProto] = {}
    for function in model.functions:
        key = (_domain(function.domain), function.name, function.overload)
        if key in functions:
            raise _functions(path, f"The function {function.name!r} is there twice.")
        functions[key] = function
    calls = {key: _calls(function.node, functions) for key, function in functions.items()}
    sizes: dict[_Key, int] = {}
    for start in functions:
        pending = [(start, False)]
        above: set[_Key] = set()
        while pending:
            key, done = pending.pop()
            if done:
                above.discard(key)
                own, called = calls[key]
                sizes[key] = own + sum(sizes[other] for other in called)
            elif key in above:
                raise _functions(path, f"The function {key[1]!r} calls itself.")
            elif key not in sizes:
                above.add(key)
                pending.append((key, True))
                pending += ((other, False) for other in dict.fromkeys(calls[key][1]))
    own, called = _calls(model.graph.node, functions)
    if own + sum(sizes[key] for key in called) > MAX_NODES:
        raise _functions(path, f"Expanded they are more than {MAX_NODES:,} nodes.")


def _calls(
    nodes: Sequence[NodeProto], functions: dict[_Key, FunctionProto]
) -> tuple[int, list[_Key]]:
    """Return how many nodes there are with those of subgraphs, and what they call."""
    count, called = 0, list[_Key]()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        count += 1
        key = (_domain(node.domain), node.op_type, node.overload)
        if key in functions:
            called.append(key)
        for attribute in node.attribute:
            for graph in subgraphs(attribute):
                pending += graph.node
    return count, called


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def producer(model: ModelProto) -> str:
    """Return the program that wrote the model, with its version."""
    return f"{model.producer_name} {model.producer_version}".strip()


def opsets(model: ModelProto) -> dict[str, int]:
    """Return the version of each domain; "" is ai.onnx."""
    return {_domain(entry.domain): entry.version for entry in model.opset_import}


def _unreadable(path: Path, cause: str) -> InputError:
    return InputError(
        f"{path} cannot be read as an ONNX model.",
        id="onnx-unreadable",
        cause=cause,
        remedy="Export it again; `python -m onnx.checker` says more.",
    )


def _functions(path: Path, cause: str) -> InputError:
    return InputError(
        f"The functions of {path} cannot be expanded.",
        id="onnx-functions",
        cause=cause,
        remedy="Export the model without functions.",
    )


def _outside(tensor: TensorProto, path: Path, location: str, cause: str) -> InputError:
    return InputError(
        f"{path} was not read: it keeps {tensor.name!r} in {location!r}.",
        id="external-data-outside",
        cause=cause,
        remedy="Put the file itself beside the model (cp -L copies what a link leads to).",
    )
