"""Context parallelism of torch with the attention of the CPU, where fake tensors are."""

from __future__ import annotations

import functools
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
    try:
        from torch.distributed.tensor.experimental._context_parallel import _attention
    except ImportError:  # a torch without it has nothing to adapt
        yield
        return
    torchs: Any = _attention
    ring = _Ring(torchs)
    handlers = {_FORWARD: ring.forward, _BACKWARD: ring.backward}
    style = torchs._ContextParallel  # noqa: SLF001 - what both of its interfaces call
    hooks = {"sdpa_input_fn": ring.entering, "sdpa_output_fn": ring.leaving}
    originals = {name: getattr(style, name) for name in (*hooks, "flex_input_fn")}
    for name, hook in hooks.items():
        setattr(style, name, hook(originals[name]))
    style.flex_input_fn = lambda *_args, **_kwargs: _refuse("flex_attention gathers in its own way")
    torchs.custom_ops.update(handlers)
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(style, name, original)
        for function in handlers:
            del torchs.custom_ops[function]


class _Ring:
    """Attention by which each rank's keys and values come by; `ran` whether it ran since entry."""

    def __init__(self, torchs: Any) -> None:
        self.ran = False
        self._forward = torchs._templated_ring_attention  # noqa: SLF001
        self._backward = functools.partial(
            torchs._templated_ring_attention_backward,  # noqa: SLF001
            grad_out_name="grad_out",
        )

    def forward(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Run the kernel on this rank's queries and each rank's keys and values in turn."""
        if kwargs.get("attn_mask") is not None:
            _refuse("it has a mask")
        self.ran = True
        return _on_shards(self._forward, function, args, kwargs)

    def backward(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Do likewise, with gradients of keys and values that are passed on."""
        return _on_shards(self._backward, function, args, kwargs)

    def entering(self, enter: Any) -> Any:
        """Return what torch calls before attention."""

        def entered(*args: Any, **kwargs: Any) -> Any:
            self.ran = False
            return enter(*args, **kwargs)

        return entered

    def leaving(self, leave: Any) -> Any:
        """Return what torch calls after attention, which must have been by a ring."""

        def left(*args: Any, **kwargs: Any) -> Any:
            if not self.ran:
                _refuse("it has dropout or shapes of which the CPU has no such kernel")
            return leave(*args, **kwargs)

        return left


def _refuse(reason: str) -> None:
    raise InputError(
        "This attention cannot be counted under context parallelism.",
        id="attention-unsupported",
        cause=f"Keys and values are passed around in scaled_dot_product_attention, and {reason}.",
        remedy="Call scaled_dot_product_attention without attn_mask and dropout_p.",
    )


def _on_shards(ring: Any, function: Any, args: Any, kwargs: Any) -> Any:
    names = [argument.name for argument in function._schema.arguments]  # noqa: SLF001
    given = dict(zip(names, args, strict=False)) | kwargs
    given.pop("attn_mask", None)
    spec = given["query"]._spec  # as torch's own handlers do
    local = {
        name: value._local_tensor if isinstance(value, DTensor) else value  # noqa: SLF001
        for name, value in given.items()
    }
    results = ring(spec.mesh.get_group(), _SEQUENCE, function, **local)
    return tuple(_sharded(result, spec) for result in results)


def _sharded(result: torch.Tensor, spec: DTensorSpec) -> DTensor:
    shape = list(result.shape)
    shape[_SEQUENCE] *= spec.mesh.size()
    meta = TensorMeta(torch.Size(shape), result.stride(), result.dtype)
    return DTensor(
        result, DTensorSpec(spec.mesh, spec.placements, tensor_meta=meta), requires_grad=False
    )
