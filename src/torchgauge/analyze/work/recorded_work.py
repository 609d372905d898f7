"""The work of one recorded operator call, by its name and its arguments in the trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torchgauge.analyze.work.recorded_operands import arguments
from torchgauge.errors import TorchgaugeError
from torchgauge.formulas.free import STILL
from torchgauge.formulas.kinds import kernel_kind
from torchgauge.formulas.operand import FREE, Described, MissingOperandError, MissingTensor, Work
from torchgauge.formulas.promotion import pointwise_work, reduction_work
from torchgauge.formulas.registry import KEYWORDS, as_work, find
from torchgauge.formulas.shapes import like, outputs, pointwise
from torchgauge.formulas.traffic import PRODUCTS, WRITES, bytes_of
from torchgauge.formulas.written import is_out, written


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
    if overload.endswith(("out", "grad_input")):  # the last is written, of any size before
        operands = operands[:-1]
    return _attempted(lambda: _work(name, operands), lambda: recorded_bytes(name, operands))


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
    tensors = [operand for operand in operands if isinstance(operand, Described)]
    if not tensors or any(isinstance(operand, MissingTensor) for operand in operands):
        return None
    try:
        if is_out(plain, operands):
            return bytes_of(plain, operands[:-1], {}, operands[-1])
        return bytes_of(plain, operands, {}, _outputs(plain, tensors, operands))
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
