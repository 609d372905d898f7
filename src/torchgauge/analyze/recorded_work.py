"""The work of one recorded operator call, by its name and its arguments in the trace."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

from torchgauge.analyze.recorded_operands import NotSaidError, UnsaidTensor, arguments
from torchgauge.analyze.recorded_outputs import like, outputs, pointwise
from torchgauge.errors import TorchgaugeError
from torchgauge.formulas.elementwise import pointwise_work, reduction_work
from torchgauge.formulas.free import STILL
from torchgauge.formulas.kinds import POINTWISE, kernel_kind
from torchgauge.formulas.operand import Described
from torchgauge.formulas.registry import as_work, find
from torchgauge.formulas.traffic import bytes_of
from torchgauge.formulas.work import Work

# Where the arguments that a schema has by keyword alone begin, and their names. Only those that a
# formula reads: elsewhere what is more than its parameters is left out.
_KEYWORDS = {
    "aten::_flash_attention_forward": (10, "scale window_size_left window_size_right seqused_k "
                                           "alibi_slopes block_table"),
    "aten::_fused_adam": (6, "lr beta1 beta2 weight_decay eps amsgrad maximize grad_scale"),
    "aten::_fused_adamw": (6, "lr beta1 beta2 weight_decay eps amsgrad maximize grad_scale"),
    "aten::_fused_sgd": (3, "weight_decay momentum lr dampening nesterov maximize is_first_step "
                            "grad_scale"),
    "aten::_fused_adagrad": (4, "lr lr_decay weight_decay eps maximize grad_scale"),
    "aten::_linalg_solve_ex": (2, "left"),
    "aten::linalg_lu_solve": (3, "left"),
    "aten::linalg_solve_triangular": (2, "upper left"),
}  # fmt: skip
_PRODUCTS = frozenset(
    f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "convolution", "_convolution")
)
_WRITES = frozenset(("aten::copy_", "aten::fill_", "aten::zero_"))


class Recorded(NamedTuple):
    """A call's work, or why it is unknown; `bytes` is None where the trace does not tell them."""

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
    given = arguments(texts.dims, texts.types, texts.strides, texts.inputs)
    overload = name.partition("::")[2].partition(".")[2]
    if overload.endswith(("out", "grad_input")):  # the last is written, of any size before
        given = given[:-1]
    try:
        work = _work(name, given)
    except NotSaidError as error:
        return Recorded(None, reason=f"the trace does not say {error}")
    except TorchgaugeError as error:
        return Recorded(None, reason=error.message)
    except Exception as error:  # noqa: BLE001 - a formula may be the user's: unknown, never a crash
        return Recorded(None, reason=f"its formula failed: {type(error).__name__}: {error}")
    if work is None:
        return Recorded(None, reason="its formula needs values")
    return Recorded(work, recorded_bytes(name, given))


def free_bytes(name: str, texts: Texts) -> int | None:
    """Return the bytes that an operator without arithmetic moves, where the trace tells them."""
    plain = name.partition(".")[0]
    if plain in STILL or plain.removesuffix("_") in STILL:
        return 0
    if plain not in _WRITES or texts.dims is None or texts.types is None:
        return None
    return recorded_bytes(name, arguments(texts.dims, texts.types, texts.strides, texts.inputs))


def _work(name: str, given: tuple[Any, ...]) -> Work | None:
    plain = name.partition(".")[0]
    how = kernel_kind(name)
    if how == "formula":
        return _by_formula(plain, given)
    short = _base(plain).removeprefix("aten::")
    if how == "pointwise":
        return pointwise_work(short, given, pointwise(plain, given))
    if not given or not isinstance(given[0], Described):
        raise NotSaidError("the sizes of an operand")
    if short in ("max", "min") and any(isinstance(one, Described) for one in given[1:]):
        raise NotSaidError("whether it compares two tensors")
    return reduction_work(short, given)


def _by_formula(plain: str, given: tuple[Any, ...]) -> Work | None:
    found = find(plain) or find(plain.removesuffix("_"))
    if found is None:
        return None
    if plain.removesuffix("_") == "aten::scatter" and len(given) > 4:
        raise NotSaidError("the kind of reduction")
    formula, wants_outputs = found
    first, keywords = _KEYWORDS.get(plain.removesuffix("_"), (len(given), ""))
    named = dict(zip(keywords.split(), given[first:], strict=False))
    if wants_outputs:
        named["outputs"] = outputs(plain, given)
    result = formula(*_fitting(formula, given[:first]), **named)
    return None if result is None else as_work(result)


def _fitting(formula: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return as many arguments as the formula takes by place."""
    parameters = inspect.signature(formula).parameters.values()
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return given
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return given[: sum(one.kind in by_place for one in parameters)]


def recorded_bytes(name: str, given: tuple[Any, ...]) -> int | None:
    """Return the compulsory traffic of a call, None where its output's type is not certain."""
    plain = name.partition(".")[0]
    tensors = [one for one in given if isinstance(one, Described)]
    if not tensors or any(isinstance(one, UnsaidTensor) for one in given):
        return None
    try:
        if plain in _WRITES or (plain.endswith("_") and _base(plain) in POINTWISE):
            return bytes_of(plain, given, {}, tensors[0])
        if len({one.dtype for one in tensors}) > 1:
            return None
        if plain in _PRODUCTS:
            return bytes_of(plain, given, {}, _product(plain, tensors, given))
    except NotSaidError:
        return None
    return None


def _product(plain: str, tensors: list[Described], given: tuple[Any, ...]) -> Any:
    if plain.endswith("convolution"):
        return outputs(plain, given)
    left, right = tensors[-2:]
    return like(left, (*left.shape[:-1], right.shape[-1]))


def _base(plain: str) -> str:
    return plain if plain.startswith("aten::__") else plain.removesuffix("_")
