"""Reads ETRecords (`.etrecord`): of a program's instructions the layers, and its parameters.

Of the archive only texts in JSON are read, never its pickled tensors.
"""

from __future__ import annotations

import json
import lzma
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from torchgauge.errors import InputError
from torchgauge.files import check_readable, is_file, path_remedy
from torchgauge.reading import Bound, too_large
from torchgauge.records.onnx.graph import Initializer

_MEMBER = Bound(minimum=1 << 28, times=0, maximum=1 << 28)
_HANDLES, _PROGRAM = "debug_handle_map", "edge_dialect_exported_program/"
# Element types as torch.export writes them.
_DTYPES = {1: ("uint8", 1), 2: ("int8", 1), 3: ("int16", 2), 4: ("int32", 4), 5: ("int64", 8),
           6: ("float16", 2), 7: ("float32", 4), 8: ("float64", 8), 12: ("bool", 1),
           13: ("bfloat16", 2)}  # fmt: skip


class Place(NamedTuple):
    """Where an instruction comes from: module path, class, the parameters that it reads."""

    path: str
    type: str = ""
    parameters: tuple[str, ...] = ()


class Lowering(NamedTuple):
    """What a record tells of a method: of each instruction its place; parameters and buffers."""

    places: dict[int, Place]
    tensors: tuple[Initializer, ...]


class _Node(msgspec.Struct):
    inputs: list[dict[str, Any]] = []
    metadata: dict[str, str] = {}


class _Value(msgspec.Struct):
    dtype: int = 0
    sizes: list[dict[str, Any]] = []


class _Graph(msgspec.Struct):
    nodes: list[_Node] = []
    tensor_values: dict[str, _Value] = {}


class _Signature(msgspec.Struct):
    input_specs: list[dict[str, Any]] = []


class _Module(msgspec.Struct):
    graph: _Graph
    signature: _Signature


class _Exported(msgspec.Struct):
    graph_module: _Module


def read_lowering(path: Path, method: str) -> Lowering:
    """Return what a record tells of a method.

    Raises InputError `file-missing`, `etrecord-unreadable`, `file-too-large`.
    """
    check_readable(path)
    if not is_file(path):
        raise InputError(f"There is no file {path}.", id="file-missing", remedy=path_remedy(path))
    try:
        with zipfile.ZipFile(path) as archive:
            handles = msgspec.json.decode(
                _member(archive, _HANDLES, path), type=dict[str, dict[int, int | list[int]]]
            )
            # Python's own reader, since torch writes infinities, which JSON has not.
            program = json.loads(_member(archive, _PROGRAM + method, path))
        return _lowering(msgspec.convert(program, _Exported), handles[method])
    except InputError:
        raise
    except (
        zipfile.BadZipFile, OSError, KeyError, ValueError, TypeError, AttributeError,
        NotImplementedError, RuntimeError, RecursionError, EOFError, zlib.error, lzma.LZMAError,
    ) as error:  # fmt: skip
        raise InputError(
            f"{path} cannot be read as an ETRecord of the method '{method}'.",
            id="etrecord-unreadable",
            cause=str(error) or type(error).__name__,
            remedy="Lower the program with generate_etrecord=True, and save "
            "ExecutorchProgramManager.get_etrecord() beside it.",
        ) from error


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    limit = _MEMBER.limit_for(0)
    with archive.open(name) as member:
        data = member.read(limit + 1)
    if len(data) > limit:
        raise too_large(f"'{path}'", f"Its {name}", limit)
    return data


def _lowering(exported: _Exported, handles: dict[int, int | list[int]]) -> Lowering:
    module = exported.graph_module
    names, tensors = {}, []
    for spec in module.signature.input_specs:
        for kind in ("parameter", "buffer"):
            if kind in spec:
                argument, name = spec[kind]["arg"]["name"], str(spec[kind][f"{kind}_name"])
                names[argument] = name
                value = module.graph.tensor_values[argument]
                tensors.append(_stored(name, value, kind == "parameter"))
    by_handle: dict[int, list[_Node]] = {}
    for node in module.graph.nodes:
        for handle in _numbers(node.metadata.get("debug_handle", "")):
            by_handle.setdefault(handle, []).append(node)
    places = {}
    for instruction, own in handles.items():
        numbers = own if isinstance(own, list) else [own]
        nodes = [node for number in numbers for node in by_handle.get(number, ())]
        if nodes:
            places[instruction] = _place(nodes, names)
    return Lowering(places, tuple(tensors))


def _stored(name: str, value: _Value, parameter: bool) -> Initializer:
    dtype, itemsize = _DTYPES.get(value.dtype, ("", 0))
    shape = tuple(max(0, int(size["as_int"])) for size in value.sizes)
    stored = math.prod(shape) * itemsize
    return Initializer(name=name, dtype=dtype, shape=shape, bytes=stored, parameter=parameter)


def _numbers(text: str) -> list[int]:
    """Return the handles of a node: "7", of some fused ones "[7, 8]"."""
    return [int(word) for word in text.strip("[]() ").split(",") if word.strip().isdecimal()]


def _place(nodes: list[_Node], names: dict[str, str]) -> Place:
    """Return what the stacks of nodes have in common, and the parameters that they read."""
    stacks = [_stack(node.metadata.get("nn_module_stack", "")) for node in nodes]
    path, kind = ("", "")
    for frames in zip(*stacks, strict=False):
        if len(set(frames)) > 1:
            break
        path, kind = frames[0]
    read = dict.fromkeys(
        names[name]
        for node in nodes
        for argument in node.inputs
        if (name := _tensor_name(argument.get("arg"))) in names
    )
    return Place(path, kind, tuple(read))


def _stack(text: str) -> list[tuple[str, str]]:
    """Return path and class of each module, from a text like "key,path,class;key,path,class"."""
    frames = [frame.split(",") for frame in text.split(";") if frame]
    return [(frame[1], frame[2].rpartition(".")[2]) for frame in frames if len(frame) == 3]


def _tensor_name(argument: Any) -> str:
    value = argument.get("as_tensor") if isinstance(argument, dict) else None
    return str(value.get("name")) if isinstance(value, dict) else ""
