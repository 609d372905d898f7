"""Formulas by operator name: ours by family, the user's by decorator, packages' by entry point."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable
from typing import Any, TypeVar

from torchgauge.errors import InputError
from torchgauge.formulas.operand import Work

ENTRY_POINTS = "torchgauge.flop_formulas"
FAMILIES = "torchgauge.formulas.families"

Formula = Callable[..., Any]
F = TypeVar("F", bound=Formula)

# Where the arguments that a schema has by keyword alone begin, and their names. Only those that a
# formula reads: elsewhere what is more than its parameters is left out.
KEYWORDS = {
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

_formulas: dict[str, tuple[Formula, bool]] = {}
_loaded = False


def formula(*names: str) -> Callable[[F], F]:
    """Register the decorated function for operators such as "aten::mm", all overloads of each.

    It is called with the operator's own arguments, tensors as operands (`.shape`, `.dtype`), and
    with `outputs` (one operand, or a tuple) where it names such a parameter. It returns a `Work`,
    or a number, which is the FLOPs of products. Raises InputError `formula-name`,
    `formula-duplicate`.
    """

    def register(function: F) -> F:
        wants_outputs = "outputs" in inspect.signature(function).parameters
        for name in names:
            _check(name)
        for name in names:
            _formulas[name] = (function, wants_outputs)
        return function

    return register


def flop_formula(*names: str) -> Callable[[F], F]:
    """Register the decorated function as the formula of a custom operator, "my::op".

    It is called with the operator's arguments, tensors as they are or as descriptions with `shape`
    and `dtype`, and with `outputs` where it has that parameter; it returns the call's FLOPs of
    products, or a `torchgauge.formulas.operand.Work`. All overloads share it.

    Raises InputError `formula-name`, and `formula-duplicate` for an operator that has a formula.

    Examples:
        >>> import torchgauge as tg
        >>> @tg.flop_formula("example::double")
        ... def double(x):
        ...     return tg.Work(vector=x.numel())
    """
    load()
    return formula(*names)


def find(name: str) -> tuple[Formula, bool] | None:
    """Return the operator's formula and whether it takes `outputs`; None where there is none."""
    load()
    return _formulas.get(name)


def names() -> frozenset[str]:
    """Return the names of all operators that have a formula."""
    load()
    return frozenset(_formulas)


def forget(name: str) -> None:
    """Remove the formula of a custom operator, so that another can be registered."""
    _formulas.pop(name, None)


def as_work(result: Any) -> Work:
    """Return what a formula gave as a Work.

    Raises InputError `formula-result` for anything but a Work or a finite number ≥ 0.
    """
    if isinstance(result, Work):
        return result
    if isinstance(result, int | float) and math.isfinite(result) and result >= 0:
        return Work(matmul=round(result))
    raise InputError(
        f"A formula returned {result!r}.",
        id="formula-result",
        cause="It must return a number of FLOPs, 0 or more, or a Work.",
        remedy="Return an int from the function under @torchgauge.flop_formula.",
    )


def load() -> None:
    """Import the families and what installed packages registered, once."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    families = importlib.import_module(FAMILIES)
    for module in pkgutil.iter_modules(families.__path__):
        importlib.import_module(f"{FAMILIES}.{module.name}")
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINTS):
        _load_entry(entry)


def _load_entry(entry: Any) -> None:
    try:
        entry.load()
    except InputError:
        raise
    except Exception as error:  # a package's own code, which may raise anything
        raise InputError(
            f"The formulas of the package {entry.dist.name if entry.dist else entry.name} failed.",
            id="formula-entry-point",
            cause=f"Its entry point {entry.value} raised {type(error).__name__}: {error}",
            remedy="Repair or uninstall the package.",
        ) from error


def _check(name: str) -> None:
    namespace, separator, operator = name.partition("::")
    if not separator or not namespace or not operator or "." in operator:
        raise InputError(
            f"{name!r} is not the name of an operator.",
            id="formula-name",
            cause="An operator is named namespace::name, without its overload.",
            remedy='Write @torchgauge.flop_formula("my::op").',
        )
    if name in _formulas:
        raise InputError(
            f"{name} has a formula already.",
            id="formula-duplicate",
            cause="Two formulas for one operator would make the figure depend on import order.",
            remedy="Remove one of the two.",
        )
