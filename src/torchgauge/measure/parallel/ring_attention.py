"""Context parallelism of torch with the attention of the CPU, where fake tensors are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

from torchgauge.errors import InputError
from torchgauge.signals import restoring

_SEQUENCE = 2  # of (batch, heads, sequence, features), as torch's own
_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default  # noqa: SLF001
_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default  # noqa: SLF001


@restoring
def ring_attention() -> Iterator[None]:
    """Have torch's context parallelism pass keys and values around for the CPU's attention too.

    It knows CUDA's kernels only, and gathers whole sequences for any other. Attention that has no
    ring raises InputError `attention-unsupported`.
    """
    from torch.distributed.tensor.experimental._context_parallel import _attention

    torchs: Any = _attention
    style = torchs._ContextParallel  # noqa: SLF001 - what both of its interfaces call
    originals = style.sdpa_output_fn, style.flex_input_fn
    by_ring = False

    def forward(function: Any, args: Any, kwargs: Any) -> Any:
        nonlocal by_ring
        if kwargs.get("attn_mask") is not None:
            _refuse("it has a mask")
        by_ring = True
        return _on_shards(torchs._templated_ring_attention, function, args, kwargs)  # noqa: SLF001

    def backward(function: Any, args: Any, kwargs: Any) -> Any:
        named = kwargs | {"grad_out_name": "grad_out"}
        return _on_shards(torchs._templated_ring_attention_backward, function, args, named)  # noqa: SLF001

    def leave(*args: Any, **kwargs: Any) -> Any:
        nonlocal by_ring
        if not by_ring:
            _refuse("it has dropout or shapes of which the CPU has no such kernel")
        by_ring = False
        return originals[0](*args, **kwargs)

    handlers = {_FORWARD: forward, _BACKWARD: backward}
    style.sdpa_output_fn = leave
    style.flex_input_fn = lambda *_args, **_kwargs: _refuse("flex_attention gathers in its own way")
    torchs.custom_ops.update(handlers)
    try:
        yield
    finally:
        style.sdpa_output_fn, style.flex_input_fn = originals
        for function in handlers:
            del torchs.custom_ops[function]


def _refuse(reason: str) -> None:
    raise InputError(
        "This attention cannot be counted under context parallelism.",
        id="attention-unsupported",
        cause=f"Keys and values are passed around in scaled_dot_product_attention, and {reason}.",
        remedy="Call scaled_dot_product_attention without attn_mask and dropout_p.",
    )


def _on_shards(ring: Any, function: Any, args: Any, kwargs: Any) -> Any:
    """Run a kernel on this rank's queries and each rank's keys and values in turn."""
    names = [argument.name for argument in function._schema.arguments]  # noqa: SLF001
    arguments = dict(zip(names, args, strict=False)) | kwargs
    arguments.pop("attn_mask", None)
    spec = arguments["query"]._spec  # noqa: SLF001 - as torch's own handlers do
    local = {name: getattr(value, "_local_tensor", value) for name, value in arguments.items()}
    sharded = []
    for result in ring(spec.mesh.get_group(), _SEQUENCE, function, **local):
        shape = list(result.shape)
        shape[_SEQUENCE] *= spec.mesh.size()
        meta = TensorMeta(torch.Size(shape), result.stride(), result.dtype)
        global_spec = DTensorSpec(spec.mesh, spec.placements, tensor_meta=meta)
        sharded.append(DTensor(result, global_spec, requires_grad=False))  # type: ignore[no-untyped-call]
    return tuple(sharded)
