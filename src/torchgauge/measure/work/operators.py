"""Classify operators: by formula, or by torch's own tags and schema; call those refused on meta.

A meta kernel may repeat the limits of one backend: that of grouped products takes bfloat16 alone,
where CPU and GPU take float32 and float16 as well. The shape of a result does not depend on the
type, so such a call is asked once more of operands in bfloat16, and its result gets the type back.

torch._check_tensor_all asks whether all values are true, and raises where they are not. Where there
are no values the check is taken for passed: what it guards does not depend on it.

A tensor that a module made when it was imported has values, and lies on the CPU: beside operands
on meta the operator is asked of its shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch

from torchgauge import torch_private
from torchgauge.formulas.families.sparse import is_sparse
from torchgauge.formulas.free import FREE, STILL, VIEWS
from torchgauge.formulas.kinds import LIST_BASES, POINTWISE, PRIMITIVES
from torchgauge.formulas.operand import FREE as NO_WORK
from torchgauge.formulas.operand import elements_of
from torchgauge.formulas.promotion import pointwise_work, reduction_work, summed
from torchgauge.formulas.registry import as_work, find

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
# float64 is left out: kernels made for half precision often lack it in earnest.
_REFUSED = (torch.float32, torch.float16)
_SUBSTITUTE = torch.bfloat16
_SPARSE_PRODUCTS = frozenset(
    f"aten.{name}" for name in ("mm", "addmm", "_sparse_addmm", "mv", "addmv", "bmm")
)


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
    if not isinstance(function, torch_private.OpOverload):
        if find(_name(function)):
            return "formula"
        return "higher" if isinstance(function, torch_private.HigherOrderOperator) else "unknown"
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


def _tagged(function: Any) -> Kind:
    for relative in _relatives(function):
        if torch.Tag.pointwise in relative.tags:
            return "pointwise"
        if torch.Tag.reduction in relative.tags:
            return "reduction"
        if torch.Tag.view_copy in relative.tags:
            return "free"
    if f"aten::{_base(_name(function))}" in POINTWISE:  # an older torch has not tagged all
        return "pointwise"
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


def _relatives(function: Any) -> list[Any]:
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


def _is_composite(function: Any) -> bool:
    name = _full_name(function)
    if not torch_private.has_kernel(name):  # TorchScript's own, on plain numbers
        return False
    return torch_private.has_kernel_for(name, "CompositeImplicitAutograd") and not any(
        torch_private.has_kernel_for(name, key) for key in _BACKENDS
    )


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


def _full_name(function: Any) -> str:
    return str(function.name())


def _short(name: str) -> str:
    return name.partition("::")[2]


def _base(name: str) -> str:
    short = _short(name)
    return short if short.startswith("__") else short.removesuffix("_")


def called(function: Any, args: Any, kwargs: Any) -> Any:
    """Return what the operator returns; raises what it raises where its type is not the reason."""
    if function is torch_private.all_true and args[0].is_meta:
        return torch.tensor(True)  # on the CPU: it is read next
    try:
        return function(*args, **kwargs)
    except RuntimeError:  # NotImplementedError is one
        tensors = [
            leaf
            for leaf in torch_private.tree_leaves((args, kwargs))
            if isinstance(leaf, torch.Tensor)
        ]
        try:
            if _is_sparse_product(function, tensors):
                args, kwargs = torch_private.tree_map(_dense, (tuple(args), dict(kwargs)))
                return function(*args, **kwargs)
            if {tensor.device.type for tensor in tensors} == {"cpu", "meta"}:
                if _is_functional(function) or (tensors[0].is_meta and "out" not in kwargs):
                    args, kwargs = torch_private.tree_map(
                        _without_values, (tuple(args), dict(kwargs))
                    )
                    return called(function, args, kwargs)
            elif _is_functional(function) and (dtype := _common_dtype(tensors)) in _REFUSED:
                return _in_bfloat16(function, args, kwargs, dtype)
        except RuntimeError:
            pass  # neither was the reason
        raise


def _is_sparse_product(function: Any, tensors: list[torch.Tensor]) -> bool:
    """Whether the result is dense, and it is known how much the sparse operands store."""
    sparse = [tensor for tensor in tensors if is_sparse(tensor)]
    return (
        str(getattr(function, "overloadpacket", "")) in _SPARSE_PRODUCTS
        and 0 < len(sparse) < len(tensors)
        and all(elements_of(tensor) or not tensor.is_meta for tensor in sparse)
    )


def _dense(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor) or not is_sparse(leaf):
        return _without_values(leaf)
    return torch.empty(leaf.shape, dtype=leaf.dtype, device="meta")


def _without_values(leaf: Any) -> Any:
    return leaf.to("meta") if isinstance(leaf, torch.Tensor) else leaf


def _common_dtype(tensors: list[torch.Tensor]) -> torch.dtype | None:
    """Return the one floating type of all operands; None where they differ, or one has values."""
    dtypes = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    if len(dtypes) != 1 or not all(map(_has_no_values, tensors)):
        return None
    return dtypes.pop()


def _has_no_values(tensor: torch.Tensor) -> bool:
    return tensor.is_meta or isinstance(tensor, torch_private.FakeTensor)


def _is_functional(function: Any) -> bool:
    """Whether the operator writes to no operand: a result that is an operand cannot be replaced."""
    return isinstance(function, torch_private.OpOverload) and not function._schema.is_mutable  # noqa: SLF001


def _in_bfloat16(function: Any, args: Any, kwargs: Any, dtype: torch.dtype) -> Any:
    def operand(leaf: Any) -> Any:
        if leaf is dtype:
            return _SUBSTITUTE
        if not isinstance(leaf, torch.Tensor) or leaf.dtype is not dtype:
            return leaf
        # Rows stay as many bytes apart, since kernels want them aligned to bytes.
        wider = dtype.itemsize // _SUBSTITUTE.itemsize
        strides = [step if step <= 1 else step * wider for step in leaf.stride()]
        return leaf.new_empty_strided(tuple(leaf.shape), strides, dtype=_SUBSTITUTE)

    def result(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype is not _SUBSTITUTE:
            return leaf
        return torch.empty_like(leaf, dtype=dtype)

    args, kwargs = torch_private.tree_map(operand, (tuple(args), dict(kwargs)))
    return torch_private.tree_map(result, function(*args, **kwargs))
