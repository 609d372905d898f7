"""The arguments of a recorded operator, as formulas take them.

A trace has of tensors their sizes, strides and types, of numbers their values, and of text nothing.
What it does not have stands as an object that raises `MissingOperandError` when a formula reads it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from torchgauge.formulas.operand import Described, MissingTensor, MissingValue, Untyped
from torchgauge.records.trace.events import ABSENT, Events, Integers, Rows

_REAL = {"float": ("float32", 4), "double": ("float64", 8), "Half": ("float16", 2),
         "BFloat16": ("bfloat16", 2), "complex<float>": ("complex64", 8),
         "complex<double>": ("complex128", 16), "complex<Half>": ("complex32", 4)}  # fmt: skip
_INTEGER = {"bool": ("bool", 1), "unsigned char": ("uint8", 1), "signed char": ("int8", 1),
          "char": ("int8", 1), "short int": ("int16", 2), "short": ("int16", 2),
          "int": ("int32", 4), "long int": ("int64", 8), "long": ("int64", 8),
          "long long": ("int64", 8), "__int64": ("int64", 8), "short unsigned int": ("uint16", 2),
          "unsigned short": ("uint16", 2), "unsigned int": ("uint32", 4),
          "long unsigned int": ("uint64", 8), "unsigned long": ("uint64", 8),
          "qint8": ("qint8", 1), "quint8": ("quint8", 1), "qint32": ("qint32", 4)}  # fmt: skip
_FLOATING = ("float", "bfloat")
_NUMBERS = {"True": True, "False": False, "inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def element_type(name: str) -> tuple[str, int] | None:
    """Return torch's name and the bytes of a type as C++ calls it; None for no tensor's type."""
    short = name.removeprefix("c10::").replace("<c10::", "<")
    if short.startswith("Float8_"):
        return short.lower(), 1
    return _REAL.get(short) or _INTEGER.get(short)


def arguments(
    dims: Sequence[Any], types: Sequence[str], strides: Sequence[Any] | None,
    inputs: Sequence[str] | None,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the arguments in the order of the operator's schema, keyword arguments included.

    `strides` and `inputs` are None in traces before torch 2.1. With inputs, None stands for what is
    empty in the trace: None itself, text, a device, a generator, an undefined or nested tensor.
    """
    has_strides = strides is not None and len(strides) == len(dims)
    operands = []
    for index, (sizes, kind) in enumerate(zip(dims, types, strict=False)):
        if inputs is None and not kind and not sizes:  # None, text, or a list of numbers
            operands.append(MissingValue("the values of numbers"))
            continue
        value = inputs[index] if inputs is not None and index < len(inputs) else None
        steps = strides[index] if strides and has_strides else None
        if _as_torch_writes_them(sizes, kind, steps, value):
            operands.append(_argument(sizes, kind, steps, value))
        else:
            operands.append(MissingValue("an argument that torch writes otherwise"))
    return tuple(operands)


def _as_torch_writes_them(sizes: Any, kind: Any, steps: Any, value: Any) -> bool:
    lists = sizes if kind == "TensorList" and isinstance(sizes, tuple | list) else (sizes,)
    return (
        isinstance(kind, str)
        and isinstance(value, str | None)
        and isinstance(steps, tuple | list | None)
        and all(isinstance(shape, tuple | list) or not shape for shape in lists)
    )


def _argument(sizes: Any, kind: str, steps: Any, value: str | None) -> Any:
    if kind == "TensorList":
        return _tensors(sizes)
    if kind in ("Scalar", "ScalarList"):
        return _number(value) if value else MissingValue("the values of numbers")
    if not kind and not sizes:
        return None
    return _tensor(sizes, kind, steps)


def _tensor(sizes: Any, kind: str, steps: Any) -> Any:
    dtype = element_type(kind)
    shape = tuple(sizes or ())
    if not all(isinstance(size, int) for size in shape):
        return MissingTensor("sizes that are not numbers")
    if dtype is None:
        return Untyped(shape)
    if steps is None:
        return Described(shape, dtype[0], (), dtype[1])
    if len(steps) != len(shape) or not all(isinstance(step, int) for step in steps):
        return MissingTensor("the elements that a sparse or packed tensor stores")
    return Described(shape, dtype[0], tuple(steps), dtype[1])


def _tensors(sizes: Any) -> Any:
    if not sizes:
        return MissingTensor("the sizes in a list of tensors that is long")
    return tuple(Untyped(tuple(shape or ())) for shape in sizes)


def _number(text: str) -> Any:
    if text.startswith("["):
        numbers = [part.strip() for part in text[1:-1].split(",")] if text[1:-1].strip() else []
        if any(number.startswith("[") for number in numbers):
            return MissingValue(f"the value {text!r}")  # torch's lists hold no lists
        return [_number(number) for number in numbers]
    if text in _NUMBERS:
        return _NUMBERS[text]
    for convert in (int, float, complex):
        try:
            return convert(text)
        except ValueError:
            continue
    return MissingValue(f"the value {text!r}")


def input_types(events: Events, rows: Rows, node_of_span: Integers) -> dict[int, str]:
    """Return the type of the first floating-point input, by node, where all calls agree.

    `rows` are the events of the spans, `node_of_span` is ABSENT for spans without a node.
    """
    operators = events.operators
    code = np.full(len(events), ABSENT)
    code[operators.row] = operators.types.codes
    code = code[rows]
    typed_spans = np.flatnonzero((code != ABSENT) & (node_of_span != ABSENT))
    if not len(typed_spans):
        return {}
    codes = len(operators.types.values)
    pairs = np.unique(node_of_span[typed_spans].astype(np.int64) * codes + code[typed_spans])
    type_of_code: dict[int, str] = {}
    types: dict[int, str] = {}
    for node, number in zip((pairs // codes).tolist(), (pairs % codes).tolist(), strict=True):
        if number not in type_of_code:
            type_of_code[number] = next(floating_types(operators.types.values[number]), "")
        dtype = type_of_code[number]
        types[node] = dtype if types.get(node, dtype) == dtype else ""
    return {node: dtype for node, dtype in types.items() if dtype}


def floating_types(types: Any) -> Iterator[str]:
    """Yield torch's names of the floating-point types among those of a call's arguments."""
    if isinstance(types, tuple | list):
        for inner in types:
            yield from floating_types(inner)
    else:
        name, _ = (element_type(types) if isinstance(types, str) else None) or ("", 0)
        if name.startswith(_FLOATING):
            yield name
