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
from torchgauge.files import check_file
from torchgauge.readers.executorch.program_file import MOST_DIMENSIONS, checked_sizes
from torchgauge.reading import RECORD, too_large
from torchgauge.records.onnx.graph import Initializer

_HANDLES, _PROGRAM = "debug_handle_map", "edge_dialect_exported_program/"
# Element types as torch.export writes them.
_DTYPES = {1: ("uint8", 1), 2: ("int8", 1), 3: ("int16", 2), 4: ("int32", 4), 5: ("int64", 8),
           6: ("float16", 2), 7: ("float32", 4), 8: ("float64", 8), 9: ("complex32", 4),
           10: ("complex64", 8), 11: ("complex128", 16), 12: ("bool", 1), 13: ("bfloat16", 2),
           28: ("uint16", 2), 29: ("float8_e4m3fn", 1), 30: ("float8_e5m2", 1),
           31: ("float8_e4m3fnuz", 1), 32: ("float8_e5m2fnuz", 1), 33: ("float8_e8m0fnu", 1),
           34: ("uint32", 4), 35: ("uint64", 8)}  # fmt: skip
Sizes = tuple[int | None, ...]  # None: a dimension that depends on the inputs


class InstructionLayer(NamedTuple):
    """The layer of an instruction, the parameters that it reads, and what its operators make.

    `path` is None where the record does not tell it. `results` are operators ("addmm") and sizes.
    """

    path: str | None
    type: str = ""
    parameters: tuple[str, ...] = ()
    results: tuple[tuple[str, Sizes], ...] = ()


class Lowering(NamedTuple):
    """What a record tells of a method: layers by instruction, inputs, parameters and buffers."""

    file: Path
    layers: dict[int, InstructionLayer]
    tensors: tuple[Initializer, ...]
    inputs: tuple[Sizes, ...]


def read_lowering(path: Path, method: str) -> Lowering:
    """Return what a record tells of a method.

    Raises InputError `file-missing`, `etrecord-unreadable`, `file-too-large`.
    """
    check_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            map_text = _member(archive, _HANDLES, path)
            program_text = _member(archive, _PROGRAM + method, path)
        handles = msgspec.json.decode(map_text, type=dict[str, dict[int, int | list[int]]])
        # Python's own reader, since torch writes infinities, which JSON has not.
        module = json.loads(program_text)["graph_module"]
        limit = len(map_text) + len(program_text)
        return _lowering(path, module, handles[method], limit)
    except InputError:
        raise
    except (
        zipfile.BadZipFile, OSError, KeyError, ValueError, TypeError, AttributeError,
        NotImplementedError, RuntimeError, RecursionError, OverflowError, EOFError, zlib.error,
        lzma.LZMAError,
    ) as error:  # fmt: skip
        raise InputError(
            f"{path} cannot be read as an ETRecord of the method '{method}'.",
            id="etrecord-unreadable",
            cause=str(error) or type(error).__name__,
            remedy="Lower the program with generate_etrecord=True, and save "
            "ExecutorchProgramManager.get_etrecord() beside it.",
        ) from error


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    limit = RECORD.limit_for(path.stat().st_size)
    with archive.open(name) as member:
        data = member.read(limit + 1)
    if len(data) > limit:
        raise too_large(f"'{path}'", f"Its {name}", limit)
    return data


class _Source(NamedTuple):
    """A node of the exported program: its stack of modules, what it reads and makes."""

    stack: list[tuple[str, str]]
    parameters: list[str]
    results: list[tuple[str, Sizes]]


# What follows takes the texts for what torch writes; anything else ends in a TypeError or the like.
def _lowering(file: Path, module: Any, handles: dict[int, Any], limit: int) -> Lowering:
    values, names = module["graph"]["tensor_values"], dict[str, str]()
    if any(len(value["sizes"]) > MOST_DIMENSIONS for value in values.values()):
        raise ValueError("A tensor has too many dimensions.")
    tensors, inputs = list[Initializer](), list[Sizes]()
    for spec in module["signature"]["input_specs"]:
        for kind in ("parameter", "buffer"):
            if kind in spec:
                argument, name = spec[kind]["arg"]["name"], str(spec[kind][f"{kind}_name"])
                names[argument] = name
                tensors.append(_stored(name, values[argument], kind == "parameter"))
        if argument := _tensor_name(spec.get("user_input", {}).get("arg")):
            inputs.append(_sizes(values[argument]))
    by_handle, layers = _by_handle(module["graph"]["nodes"], names, values), {}
    for instruction, own in handles.items():
        numbers = dict.fromkeys(own if isinstance(own, list) else [own])
        sources = [source for number in numbers for source in by_handle.get(number, ())]
        limit -= sum(1 + len(source.stack) + len(source.parameters) for source in sources)
        if limit < 0:
            raise ValueError("Its instructions have more nodes than its program.")
        layers[instruction] = _layer(sources)
    return Lowering(file, layers, tuple(tensors), tuple(inputs))


def _stored(name: str, value: Any, parameter: bool) -> Initializer:
    if value["dtype"] not in _DTYPES:
        raise ValueError(f"The element type {value['dtype']} of {name!r} is not known.")
    dtype, itemsize = _DTYPES[value["dtype"]]
    shape = checked_sizes(tuple(int(size["as_int"]) for size in value["sizes"]))
    stored = math.prod(shape) * itemsize
    return Initializer(name=name, dtype=dtype, shape=shape, bytes=stored, parameter=parameter)


def _sizes(value: Any) -> Sizes:
    return tuple(int(size["as_int"]) if "as_int" in size else None for size in value["sizes"])


def _by_handle(nodes: Any, names: dict[str, str], values: Any) -> dict[int, list[_Source]]:
    by_handle: dict[int, list[_Source]] = {}
    for node in nodes:
        metadata = node["metadata"]
        if not (numbers := _numbers(metadata.get("debug_handle", ""))):
            continue
        read = [names.get(_tensor_name(argument.get("arg")), "") for argument in node["inputs"]]
        result = values.get(_tensor_name(node["outputs"][0])) if node["outputs"] else None
        operator = node["target"].rpartition(".")[0].rpartition(".")[2]
        source = _Source(
            _stack(metadata.get("nn_module_stack", "")),
            list(filter(None, read)),
            [] if result is None else [(operator, _sizes(result))],
        )
        for number in numbers:
            by_handle.setdefault(number, []).append(source)
    return by_handle


def _numbers(text: str) -> dict[int, None]:
    """Return the handles of a node: "7", of some fused ones "[7, 8]"."""
    words = text.strip("[]() ").split(",")
    return dict.fromkeys(int(word) for word in words if word.strip().isdecimal())


def _layer(sources: list[_Source]) -> InstructionLayer:
    """Return what the stacks of nodes have in common, and what they read and make."""
    stacks = [source.stack for source in sources if source.stack]
    path, kind = "" if stacks else None, ""
    for frames in zip(*stacks, strict=False):
        if len(set(frames)) > 1:
            break
        path, kind = frames[0]
    read = dict.fromkeys(name for source in sources for name in source.parameters)
    results = dict.fromkeys(result for source in sources for result in source.results)
    return InstructionLayer(path, kind, tuple(read), tuple(results))


def _stack(text: str) -> list[tuple[str, str]]:
    """Return path and class of each module, from a text like "key,path,class;key,path,class"."""
    frames = [frame.split(",") for frame in text.split(";") if frame]
    return [(frame[1], frame[2].rpartition(".")[2]) for frame in frames if len(frame) == 3]


def _tensor_name(argument: Any) -> str:
    value = argument.get("as_tensor") if isinstance(argument, dict) else None
    return str(value.get("name")) if isinstance(value, dict) else ""
