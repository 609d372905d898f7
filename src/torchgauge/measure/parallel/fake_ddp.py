"""DistributedDataParallel on fake tensors: what its C++ reducer needs values for is done here."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed as dist
from torch._guards import active_fake_mode
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.nn.parallel import DistributedDataParallel

from torchgauge.measure.work.internals import DispatchMode


def replicas(model: torch.nn.Module) -> list[DistributedDataParallel]:
    """Return the model's modules that DDP wraps."""
    return [module for module in model.modules() if isinstance(module, DistributedDataParallel)]


def adapt_replicas(model: torch.nn.Module) -> None:
    """Have DDP modules reduce their buckets by a hook, and rebuild them on fake tensors."""
    for module in replicas(model):
        if not module._comm_hooks:  # noqa: SLF001 - the user's own has no values to read either
            # A lambda, since DDP refuses annotations that are texts.
            module.register_comm_hook(
                module.process_group, lambda group, bucket: _all_reduced(group, bucket)
            )
        setattr(module, "reducer", _Reducer(module.reducer))  # noqa: B010 - of another type


def _all_reduced(group: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    dist.all_reduce(bucket.buffer(), group=group)
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


class _Reducer:
    """A reducer that agrees with other ranks on its buckets by real numbers, and makes fake ones.

    After the first step DDP orders its buckets anew, by an index that it reads.
    """

    def __init__(self, reducer: Any) -> None:
        self._reducer = reducer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)

    def _rebuild_buckets(self) -> Any:
        fake_mode = active_fake_mode()
        with unset_fake_temporarily(), _FakeBuckets(fake_mode):
            return self._reducer._rebuild_buckets()  # noqa: SLF001 - what DDP itself calls


class _FakeBuckets(DispatchMode):
    """Makes new tensors of floating dtypes fake: buckets, not the indices of their parameters."""

    def __init__(self, fake_mode: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fake_mode = fake_mode

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        dtype = kwargs.get("dtype") or torch.float32
        if "empty" in str(func) and dtype.is_floating_point:
            with self.fake_mode:
                return func(*args, **kwargs)
        return func(*args, **kwargs)
