"""A job of many ranks of which this process is one: fake process groups and fake tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import distributed as dist

from torchgauge.errors import MeasurementError
from torchgauge.measure.parallel.distinct_shards import Chunks, with_distinct_specs
from torchgauge.measure.parallel.ring_attention import ring_attention
from torchgauge.signals import restoring

_FLAG = "_propagate_use_strided_shard_flag"
_GROUPED = torch.ops.aten._grouped_mm.default  # noqa: SLF001 - an operator


@restoring
def fake_job(dims: tuple[tuple[str, int], ...], rank: int) -> Iterator[Any]:
    """Yield the DeviceMesh of a job with this process as `rank`, where new tensors are fake.

    The default process group is the job's until the block ends, which is why this belongs into a
    process of its own. Raises MeasurementError `torch-unsupported`, `process-group-exists`.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    store = _store()
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
        with _adapted(), ring_attention(), FakeTensorMode(allow_non_fake_inputs=True):
            yield mesh
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _store() -> Any:
    try:
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except (ImportError, AttributeError) as error:
        raise MeasurementError(
            f"torch {torch.__version__} cannot stand for the ranks of a job.",
            id="torch-unsupported",
            cause="It is built without torch.distributed or without its fake process group.",
            remedy="Use a version of torch that torchgauge was tested with (2.13).",
        ) from error
    return FakeStore()


@contextlib.contextmanager
def _adapted() -> Iterator[None]:
    """Have torch do without the values that fake tensors lack: coordinates, shapes of others.

    What it would do for each rank and parameter is done once.
    """
    from torch._subclasses import fake_impls
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp._fully_shard import _fsdp_param
    from torch.distributed.tensor import _sharding_prop
    from torch.nn.parallel import distributed

    def with_values(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with unset_fake_temporarily():
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
        if hasattr(_fsdp_param, "_chunk_with_empty"):
            replace(undo, _fsdp_param, "_chunk_with_empty", Chunks)
        if (propagate := getattr(_sharding_prop, _FLAG, None)) is not None:
            replace(undo, _sharding_prop, _FLAG, with_distinct_specs(propagate))
        shapes = fake_impls.op_implementations_dict
        if shapes.setdefault(_GROUPED, _grouped_shape) is _grouped_shape:
            undo.callback(shapes.pop, _GROUPED)
        yield


def replace(undo: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """Give an attribute another value until `undo` ends."""
    if name in vars(owner):
        undo.callback(setattr, owner, name, vars(owner)[name])
    else:
        undo.callback(delattr, owner, name)
    setattr(owner, name, value)


def _grouped_shape(
    mode: Any, _: Any, a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """Return what a product of groups gives, in dtypes too that only its kernels take."""
    from torch import _meta_registrations

    shapes: Any = _meta_registrations
    if a.dtype is torch.bfloat16 or bias is not None:
        return NotImplemented
    with mode:
        return shapes._create_grouped_mm_output_tensor(a, b, offs, out_dtype)  # noqa: SLF001
