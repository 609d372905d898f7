"""The work of one recorded operator call, by its name and its arguments in the trace.

A trace has of tensors their sizes, strides and types, of numbers their values, and of text nothing.
What it does not have stands as an object that raises `MissingOperandError` when a formula reads it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from torchgauge.errors import TorchgaugeError
from torchgauge.formulas.free import STILL, aten
from torchgauge.formulas.kinds import POINTWISE, kernel_kind
from torchgauge.formulas.operand import (
    FREE,
    Described,
    MissingOperandError,
    MissingTensor,
    MissingValue,
    Untyped,
    Work,
    elements_of,
)
from torchgauge.formulas.promotion import pointwise_work, reduction_work
from torchgauge.formulas.registry import KEYWORDS, as_work, find
from torchgauge.formulas.shapes import like, outputs, pointwise
from torchgauge.formulas.traffic import PRODUCTS, WRITES, bytes_of
from torchgauge.formulas.written import elementwise_inputs, written
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


class Recorded(NamedTuple):
    """A call's work, or why it is unknown; `bytes` is None where the trace lacks them."""

    work: Work | None
    bytes: int | None = None
    reason: str = ""


class Texts(NamedTuple):
    """An operator's arguments as the trace has them; None for what was not recorded."""

    dims: Sequence[Any] | None
    types: Sequence[str] | None
    strides: Sequence[Any] | None
    inputs: Sequence[str] | None


def recorded_work(name: str, texts: Texts) -> Recorded:
    """Return the work of a call of "aten::add.Tensor", which has a formula or a kind of its own."""
    if texts.dims is None or texts.types is None:
        return Recorded(None, reason="no sizes were recorded")
    operands = arguments(texts.dims, texts.types, texts.strides, texts.inputs)
    overload = name.partition("::")[2].partition(".")[2]
    is_out = overload.endswith(("out", "grad_input"))  # the last is written, of any size before
    reads = operands[:-1] if is_out else operands
    return _attempted(lambda: _work(name, reads), lambda: recorded_bytes(name, operands))


def known_work(name: str, operands: tuple[Any, ...], result: Any) -> Recorded:
    """Return the work of a call as `recorded_work` does, where its outputs are known as well."""
    plain, work_kind = name.partition(".")[0], kernel_kind(name)
    if work_kind not in ("formula", "free", "pointwise", "reduction"):
        return Recorded(None, reason="it has no formula")
    free = work_kind == "free"
    moved = free and plain in STILL
    return _attempted(
        lambda: FREE if free else _work(name, operands, result),
        lambda: 0 if moved else bytes_of(plain, operands, {}, result),
    )


def _attempted(work: Callable[[], Work | None], moved: Callable[[], int | None]) -> Recorded:
    try:
        result = work()
        if result is None:
            return Recorded(None, reason="its formula needs values")
        return Recorded(result, moved())
    except MissingOperandError as error:
        return Recorded(None, reason=f"the trace does not say {error}")
    except TorchgaugeError as error:
        return Recorded(None, reason=error.message)
    except Exception as error:  # noqa: BLE001 - a formula may be the user's: unknown, never a crash
        return Recorded(None, reason=f"its formula failed: {type(error).__name__}: {error}")


def free_bytes(name: str, texts: Texts) -> int | None:
    """Return the bytes that an operator without arithmetic moves, where the trace tells them."""
    plain = name.partition(".")[0]
    if plain in STILL or plain.removesuffix("_") in STILL:
        return 0
    if texts.dims is None or texts.types is None:
        return None
    return recorded_bytes(name, arguments(texts.dims, texts.types, texts.strides, texts.inputs))


def _work(name: str, operands: tuple[Any, ...], result: Any = None) -> Work | None:
    """Return the work of a call; its outputs follow from its operands where `result` is None."""
    plain = name.partition(".")[0]
    work_kind = kernel_kind(name)
    if work_kind == "formula":
        return _by_formula(plain, operands, result)
    operands, _ = without_out(plain, operands)
    short = _base(plain).removeprefix("aten::")
    if work_kind == "pointwise":
        written = pointwise(plain, operands) if result is None else result
        return pointwise_work(short, operands, written)
    if not operands or not isinstance(operands[0], Described):
        raise MissingOperandError("the sizes of an operand")
    if short in ("max", "min") and any(isinstance(operand, Described) for operand in operands[1:]):
        raise MissingOperandError("whether it compares two tensors")
    return reduction_work(short, operands)


def _by_formula(plain: str, operands: tuple[Any, ...], result: Any) -> Work | None:
    registered = find(plain) or find(plain.removesuffix("_"))
    if registered is None:
        return None
    if plain.removesuffix("_") == "aten::scatter" and len(operands) > 4:
        raise MissingOperandError("the kind of reduction")
    formula, wants_outputs = registered
    first, keywords = KEYWORDS.get(plain.removesuffix("_"), (len(operands), ""))
    named = dict(zip(keywords.split(), operands[first:], strict=False))
    if wants_outputs:
        named["outputs"] = outputs(plain, operands) if result is None else result
    result = formula(*_fitting(formula, operands[:first]), **named)
    return None if result is None else as_work(result)


def _fitting(formula: Any, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return as many arguments as the formula takes by position."""
    parameters = inspect.signature(formula).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return operands
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return operands[: sum(parameter.kind in positional for parameter in parameters)]


def recorded_bytes(name: str, operands: tuple[Any, ...]) -> int | None:
    """Return the compulsory traffic of a call, None where its output's type is not certain."""
    plain = name.partition(".")[0]
    reads, outs = without_out(plain, operands)
    tensors = [operand for operand in reads if isinstance(operand, Described)]
    if not tensors or any(isinstance(operand, MissingTensor) for operand in operands):
        return None
    try:
        # An empty one gets its size from what is written to it.
        if outs and all(map(elements_of, outs)):
            return bytes_of(plain, reads, {}, outs[0] if len(outs) == 1 else outs)
        return bytes_of(plain, reads, {}, _outputs(plain, tensors, reads))
    except MissingOperandError:
        return None


def _outputs(plain: str, tensors: list[Described], operands: tuple[Any, ...]) -> Any:
    if plain in WRITES:
        return tensors[0]
    if plain not in PRODUCTS:
        return written(plain, operands)
    if len({operand.dtype for operand in tensors}) > 1:
        raise MissingOperandError("the type of its output")
    if plain.endswith("convolution"):
        return outputs(plain, operands)
    first, second = tensors[-2:]
    return like(first, (*first.shape[:-1], second.shape[-1]))


def _base(plain: str) -> str:
    return plain if plain.startswith("aten::__") else plain.removesuffix("_")


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


# How many arguments end with a tensor that is read; in all others a tensor at the end is `out=`.
_READS_TO_THE_END = {
    **dict.fromkeys(aten("mm bmm max min _adaptive_avg_pool2d_backward silu_backward "
                          "mish_backward hardswish_backward hardsigmoid_backward"), 2),
    **dict.fromkeys(aten("where index_select"), 3),
    **dict.fromkeys(aten("max_pool2d_with_indices_backward max_pool3d_with_indices_backward"), 8),
    "aten::elu_backward": 6,
    "aten::cudnn_batch_norm_backward": 9,
}  # fmt: skip


def without_out(name: str, operands: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the arguments that a call reads, and those of `out=`, which stand behind them."""
    count = read = len(operands)
    if name in POINTWISE:
        read = elementwise_inputs(name)
    elif not name.endswith("_"):
        read = _READS_TO_THE_END.get(name, 1)
    while count > read and isinstance(operands[count - 1], Described):
        count -= 1
    return operands[:count], operands[count:]
