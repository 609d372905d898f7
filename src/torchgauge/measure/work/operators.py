"""Classify operators: by formula, or by torch's own tags and schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch._ops import OpOverload

from torchgauge.formulas.free import FREE, STILL, VIEWS
from torchgauge.formulas.kinds import LIST_BASES, PRIMITIVES
from torchgauge.formulas.operand import FREE as NO_WORK
from torchgauge.formulas.promotion import pointwise_work, reduction_work, summed
from torchgauge.formulas.registry import as_work, find
from torchgauge.measure.work.internals import HigherOrderOperator

Kind = Literal[
    "formula",
    "pointwise",
    "reduction",
    "view",
    "free",
    "foreach",
    "composite",
    "higher",
    "question",
    "unknown",
]
Work = Callable[[Any, Any, Any], Any]

_FOREACH = "_foreach_"
# What fake tensors are asked, as if it were an operator: no call of the model's.
_QUESTIONS = frozenset({"prim::device"})
_BACKENDS = ("CPU", "CUDA")
_PLAIN_TYPES = frozenset({"BoolType", "FloatType", "IntType", "NumberType", "StringType"})
_has: Callable[[str, str], bool] = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001
_exists: Callable[[str], bool] = torch._C._dispatch_has_kernel  # noqa: SLF001


class Operator(NamedTuple):
    """An operator overload: `work` gives a call's work from (args, kwargs, outputs).

    `name` is "aten::add_", without overload. `work` is None where the work is unknown. `moves` is
    False for what moves no bytes (views, creation, metadata). A `composite` is to be split.
    """

    name: str
    kind: Kind
    work: Work | None
    moves: bool
    composite: bool


def operator(function: Any) -> Operator:
    """Classify an operator overload, or anything else that a dispatch mode sees."""
    name = _name(function)
    kind = classify(function)
    moves = kind != "view" and name not in STILL and name.removesuffix("_") not in STILL
    return Operator(name, kind, _work(function, name, kind), moves, kind == "composite")


def classify(function: Any) -> Kind:
    """Return by what rule the operator's work is known.

    Composites are split first, so that a model counts the same in inference mode, where they arrive
    whole; a custom operator's formula goes before that. In-place and out= forms follow their base.
    """
    if not isinstance(function, OpOverload):
        if find(_name(function)):
            return "formula"
        return "higher" if isinstance(function, HigherOrderOperator) else "unknown"
    name = _name(function)
    if name in _QUESTIONS:
        return "question"
    is_aten = function.namespace == "aten"
    if not is_aten and find(name):
        return "formula"
    if _is_composite(function):
        return "composite"
    if _formula(name):
        return "formula"
    base = name if name in FREE else name.removesuffix("_")
    if function.is_view or base in VIEWS:
        return "view"
    if base in FREE:
        return "free"
    if is_aten and _short(name).startswith(_FOREACH):
        return "foreach" if _foreach_base(name) is not None else "unknown"
    return _tagged(function)


def _tagged(function: OpOverload) -> Kind:
    for relative in _relatives(function):
        if torch.Tag.pointwise in relative.tags:
            return "pointwise"
        if torch.Tag.reduction in relative.tags:
            return "reduction"
        if torch.Tag.view_copy in relative.tags:
            return "free"
    schema = function._schema  # noqa: SLF001
    values = (*schema.arguments, *schema.returns)
    return "free" if all(_is_plain(value.type) for value in values) else "unknown"


def _is_plain(kind: Any) -> bool:
    """Whether an argument of this type is a number or a text, and holds no tensor."""
    if kind.kind() in ("OptionalType", "ListType"):
        return _is_plain(kind.getElementType())
    return kind.kind() in _PLAIN_TYPES


def _work(function: Any, name: str, kind: Kind) -> Work | None:
    if kind == "composite":  # where it cannot be split: on nested tensors
        return _called(function, name)
    if kind in ("higher", "unknown"):
        return None
    if kind in ("view", "free", "question"):
        return lambda _args, _kwargs, _outputs: NO_WORK
    if kind == "formula":
        return _called(function, name)
    if kind == "foreach":
        return _foreach_work(name)
    short = _base(name)
    if kind == "pointwise":
        return lambda args, _kwargs, outputs: pointwise_work(short, args, outputs)
    return lambda args, _kwargs, _outputs: reduction_work(short, args)


def _called(function: Any, name: str) -> Work | None:
    """Return a call of the formula, without the arguments that an out= form writes."""
    registered = _formula(name)
    if registered is None:
        return None
    formula, wants_outputs = registered
    written = _written(function)

    def work(args: Any, kwargs: Any, outputs: Any) -> Any:
        if written:
            kwargs = {key: value for key, value in kwargs.items() if key not in written}
        if wants_outputs:
            return formula(*args, **kwargs, outputs=outputs)
        return formula(*args, **kwargs)

    return work


def _foreach_work(name: str) -> Work | None:
    base = _foreach_base(name)
    if base is None or base.work is None:
        return None
    base_work = base.work

    def work(args: Any, kwargs: Any, outputs: Any) -> Any:
        results = outputs if outputs else args[0]
        list_arguments = [value for value in args[1:] if isinstance(value, list | tuple)]
        calls = zip(args[0], results, *list_arguments, strict=False)
        return summed(
            as_work(base_work((tensor, *operands), kwargs, out)) for tensor, out, *operands in calls
        )

    return work


def _foreach_base(name: str) -> Operator | None:
    short = _base(name).removeprefix(_FOREACH)
    packet = getattr(torch.ops.aten, LIST_BASES.get(short, short), None)
    if packet is None:
        return None
    overloads = [operator(getattr(packet, name)) for name in packet.overloads()]
    # max of a list is the largest of each tensor: the reduction among the overloads of max.
    order = ["reduction", "pointwise"] if short in ("max", "norm") else ["pointwise", "reduction"]
    for kind in (*order, "formula", "free"):
        for overload in overloads:
            if overload.kind == kind:
                return overload
    return None


def _relatives(function: OpOverload) -> list[OpOverload]:
    """Return the overload, then those it is a form of: out= forms and in-place forms lack tags."""
    packet = function.overloadpacket
    relatives = [function]
    namespace = getattr(torch.ops, function.namespace)
    short = _base(_name(function))
    if function.namespace == "prims":
        namespace, short = torch.ops.aten, PRIMITIVES.get(short, short)
    base = getattr(namespace, short, None) or packet
    overload = _full_name(function).partition(".")[2] or "default"
    names = [overload, overload.removesuffix("_out"), overload.replace("_out", "")]
    if overload == "out":
        names = ["default"]
    for owner in (base, packet):
        available = owner.overloads()
        relatives += [getattr(owner, name) for name in names if name in available]
    # A form whose name tells no base is like the others of its packet.
    relatives += [getattr(owner, name) for owner in (base, packet) for name in owner.overloads()]
    return relatives


def _is_composite(function: OpOverload) -> bool:
    name = _full_name(function)
    if not _exists(name):  # TorchScript's own, on plain numbers
        return False
    return _has(name, "CompositeImplicitAutograd") and not any(_has(name, key) for key in _BACKENDS)


def _written(function: Any) -> frozenset[str]:
    schema = getattr(function, "_schema", None)
    arguments = () if schema is None else schema.arguments
    return frozenset(
        argument.name
        for argument in arguments
        if argument.kwarg_only and argument.alias_info is not None and argument.alias_info.is_write
    )


def _formula(name: str) -> Any:
    return find(name) or (find(name.removesuffix("_")) if name.endswith("_") else None)


def _name(function: Any) -> str:
    schema = getattr(function, "_schema", None)
    return str(function) if schema is None else str(schema.name)


def _full_name(function: OpOverload) -> str:
    return str(function.name())  # type: ignore[no-untyped-call]


def _short(name: str) -> str:
    return name.partition("::")[2]


def _base(name: str) -> str:
    short = _short(name)
    return short if short.startswith("__") else short.removesuffix("_")
