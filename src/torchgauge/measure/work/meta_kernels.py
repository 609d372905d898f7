"""Calls that operators refuse on meta alone: by their element type, or to check values.

A meta kernel may repeat the limits of one backend: that of grouped products takes bfloat16 alone,
where CPU and GPU take float32 and float16 as well. The shape of a result does not depend on the
type, so such a call is asked once more of operands in bfloat16, and its result gets the type back.

torch._check_tensor_all asks whether all values are true, and raises where they are not. Where there
are no values the check is taken for passed: what it guards does not depend on it.

A tensor that a module made when it was imported has values, and lies on the CPU: beside operands
on meta the operator is asked of its shape.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map

from torchgauge.formulas.families.sparse import is_sparse
from torchgauge.formulas.operand import elements_of

# float64 is left out: kernels made for half precision often lack it in earnest.
_REFUSED = (torch.float32, torch.float16)
_SUBSTITUTE = torch.bfloat16
_SPARSE_PRODUCTS = frozenset(
    f"aten.{name}" for name in ("mm", "addmm", "_sparse_addmm", "mv", "addmv", "bmm")
)
_CHECK = torch.ops.aten._is_all_true.default  # noqa: SLF001


def called(function: Any, args: Any, kwargs: Any) -> Any:
    """Return what the operator returns; raises what it raises where its type is not the reason."""
    if function is _CHECK and args[0].is_meta:
        return torch.tensor(True)  # on the CPU: it is read next
    try:
        return function(*args, **kwargs)
    except RuntimeError:  # NotImplementedError is one
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        try:
            if _is_sparse_product(function, tensors):
                args, kwargs = tree_map(_dense, (tuple(args), dict(kwargs)))
                return function(*args, **kwargs)
            if {tensor.device.type for tensor in tensors} == {"cpu", "meta"}:
                if _is_functional(function) or (tensors[0].is_meta and "out" not in kwargs):
                    args, kwargs = tree_map(_without_values, (tuple(args), dict(kwargs)))
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
    from torch._subclasses.fake_tensor import FakeTensor

    return tensor.is_meta or isinstance(tensor, FakeTensor)


def _is_functional(function: Any) -> bool:
    """Whether the operator writes to no operand: a result that is an operand cannot be replaced."""
    return isinstance(function, OpOverload) and not function._schema.is_mutable  # noqa: SLF001


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

    args, kwargs = tree_map(operand, (tuple(args), dict(kwargs)))
    return tree_map(result, function(*args, **kwargs))
