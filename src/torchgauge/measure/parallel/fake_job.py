"""A job of many ranks of which this process is one: fake process groups and fake tensors.

What torch does for every rank and for every pair of parameters, done no more than is needed.

A job of 1,024 ranks would make 1,024 chunks of each parameter to keep one of them, and the sharding
of an optimizer's operator on n parameters would take a time that grows with n².
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import distributed as dist
from torch.distributed.tensor import DTensor

from torchgauge import torch_private
from torchgauge.errors import InputError, MeasurementError
from torchgauge.signals import replaced, restoring

_SEQUENCE = 2  # of (batch, heads, sequence, features), as torch's own


@restoring
def ring_attention() -> Iterator[None]:
    """Have torch's context parallelism pass keys and values around for the CPU's attention too.

    It knows CUDA's kernels only, and gathers whole sequences for any other. Attention that has no
    ring raises InputError `attention-unsupported`.
    """
    torchs: Any = torch_private.ring_attention
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

    handlers = {torch_private.attention: forward, torch_private.attention_backward: backward}
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
        meta = torch_private.TensorMeta(torch.Size(shape), result.stride(), result.dtype)
        global_spec = torch_private.DTensorSpec(spec.mesh, spec.placements, tensor_meta=meta)
        sharded.append(DTensor(result, global_spec, requires_grad=False))  # type: ignore[no-untyped-call]
    return tuple(sharded)


class Chunks:
    """What `torch.chunk` returns, empty chunks after the last, each made when it is needed."""

    def __init__(self, tensor: torch.Tensor, number: int, dim: int) -> None:
        self._tensor, self._dim = tensor, dim
        self._size = -(-tensor.size(dim) // number)

    def __getitem__(self, index: int) -> torch.Tensor:
        length = self._tensor.size(self._dim)
        start = index * self._size
        if start >= length > 0:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, start, min(self._size, length - start))


def with_distinct_specs(propagate: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return a propagation of strided shards' flag to one operand, which reads all operands.

    It joins the flags of those with strided shards: one operand of each flag gives the same.
    """
    last, specs = None, SimpleNamespace(args_spec=())

    def propagated(strategy: Any, schema: Any) -> None:
        nonlocal last, specs
        if schema is not last:
            flags = {
                spec.use_strided_shard_as_shard_order: spec
                for spec in schema.args_spec
                if any(
                    isinstance(placement, torch_private.StridedShard)
                    for placement in spec.placements
                )
            }
            last, specs = schema, SimpleNamespace(args_spec=tuple(flags.values()))
        propagate(strategy, specs)

    return propagated


_FLAG = "_propagate_use_strided_shard_flag"


@restoring
def fake_job(dims: tuple[tuple[str, int], ...], rank: int) -> Iterator[Any]:
    """Yield the DeviceMesh of a job with this process as `rank`, where new tensors are fake.

    The default process group is the job's until the block ends, which is why this belongs into a
    process of its own. Raises MeasurementError `torch-unsupported`, `process-group-exists`.
    """
    store = torch_private.FakeStore()
    if dist.is_initialized():
        raise MeasurementError(
            "This process belongs to a process group already.",
            id="process-group-exists",
            cause="A job of fake ranks needs the default process group for itself.",
            remedy="Count in a process that has not called init_process_group.",
        )
    size = 1
    for _, length in dims:
        size *= length
    dist.init_process_group("fake", rank=rank, world_size=size, store=store)
    try:
        mesh = dist.device_mesh.init_device_mesh(
            "cpu",
            tuple(length for _, length in dims),
            mesh_dim_names=tuple(name for name, _ in dims),
        )
        with _adapted(), ring_attention(), torch_private.FakeTensorMode(allow_non_fake_inputs=True):
            yield mesh
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


@contextlib.contextmanager
def _adapted() -> Iterator[None]:
    """Have torch do without the values that fake tensors lack: coordinates, shapes of others.

    What it would do for each rank and parameter is done once.
    """
    from torch.distributed.device_mesh import DeviceMesh
    from torch.nn.parallel import distributed

    chunks, sharding = torch_private.sharded_parameter, torch_private.sharding

    def with_values(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with torch_private.unset_fake():
                return function(*args, **kwargs)

        return call

    with contextlib.ExitStack() as undo:
        # A mesh joins its dimensions by the coordinates of this rank.
        if (joined := getattr(DeviceMesh, "_concatenate", None)) is not None:
            replace(undo, DeviceMesh, "_concatenate", staticmethod(with_values(joined)))
        # A module that is converted swaps its parameters with new ones, which must have no weak
        # references; the converter of fake tensors may keep one, which it does not need again.
        replace(undo, torch.utils, "weakref", SimpleNamespace(getweakrefs=lambda _: []))
        # DDP compares shapes of ranks and sends rank 0's values when it is made, before any step.
        for name in ("_verify_param_shape_across_processes", "_sync_module_states"):
            if hasattr(distributed, name):
                replace(undo, distributed, name, lambda *_args, **_kwargs: None)
        if hasattr(chunks, "_chunk_with_empty"):
            replace(undo, chunks, "_chunk_with_empty", Chunks)
        if (propagate := getattr(sharding, _FLAG, None)) is not None:
            replace(undo, sharding, _FLAG, with_distinct_specs(propagate))
        shapes, grouped = torch_private.fake_shapes, torch_private.grouped_product
        if shapes.setdefault(grouped, _grouped_shape) is _grouped_shape:
            undo.callback(shapes.pop, grouped)
        yield


def replace(undo: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """Give an attribute another value until `undo` ends."""
    undo.enter_context(replaced([(owner, name, value)]))


def _grouped_shape(
    mode: Any, _: Any, a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """Return what a product of groups gives, in dtypes too that only its kernels take."""
    if a.dtype is torch.bfloat16 or bias is not None:
        return NotImplemented
    with mode:
        return torch_private.grouped_shape(a, b, offs, out_dtype)
