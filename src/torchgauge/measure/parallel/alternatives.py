"""The same step with one setting changed: what each change would save, counted again."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from torchgauge.errors import TorchgaugeError
from torchgauge.measure.parallel.checkpointing import repeated_layers
from torchgauge.measure.parallel.parallel_options import ParallelOptions
from torchgauge.measure.parallel.sharded_target import BATCH, takes_mesh
from torchgauge.records.parallel.parallel import RankKind
from torchgauge.records.parallel.rank_memory import Alternative, Part
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.target import Target

# What FSDP2's CPUOffloadPolicy keeps in the host's memory; the optimizer steps there too.
OFFLOADED: frozenset[Part] = frozenset({"parameters", "gradients", "optimizer"})
SHARDED, REPLICATED = "fsdp", "ddp"


@dataclasses.dataclass(frozen=True)
class Variant:
    """A job as it is, or with one setting changed.

    Attributes:
        target: The target, with the change where it is one of its inputs.
        options: The job's options, with the change where it is one of them.
        name: What is changed, in words; empty: nothing.
        option: The option that does it, or what to write.
        adapt: Changes the sharded model in place, before its step.
        offloaded: Parts that are in the host's memory.
    """

    target: Target
    options: ParallelOptions
    name: str = ""
    option: str = ""
    adapt: Callable[[nn.Module], object] = lambda model: model
    offloaded: frozenset[Part] = frozenset()


def alternatives(
    target: Target,
    options: ParallelOptions,
    counted: RankKind,
    model: nn.Module,
    count: Callable[[Variant], RankKind],
) -> Iterator[Alternative]:
    """Yield what each change would take, by counting it; `model` is the rank's, as it is now."""
    for change in changes(target, options, model):
        try:
            kind = count(change)
        except TorchgaugeError as error:
            yield Alternative(name=change.name, option=change.option, failed=error.message)
            continue
        resting = counted.memory.resting
        yield Alternative(
            name=change.name,
            option=change.option,
            peak=kind.memory.peak,
            reserved=kind.memory.reserved,
            executed_flops=kind.executed_flops,
            sent=kind.sent,
            host=sum(resting.get(part, 0) for part in change.offloaded) or None,
            verdicts={fit.device: fit.verdict for fit in kind.fits},
        )


def changes(target: Target, options: ParallelOptions, model: nn.Module) -> Iterator[Variant]:
    """Yield the changes that this target takes and that are not made already."""
    own = takes_mesh(target.model)
    arguments = inspect.signature(target.model).parameters if own else {}
    if "checkpoint" in arguments or (not own and repeated_layers(model)):
        yield from _checkpointing(target, options, arguments)
    if (halved := _halved(target, options, arguments)) is not None:
        yield halved
    yield from _sharding(target, options, model, own=own)
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if sharded:
        yield Variant(
            target,
            options,
            "parameters, gradients and optimizer on the host",
            "offload_policy=CPUOffloadPolicy() in fully_shard",
            offloaded=OFFLOADED,
        )
    if not own and options.precision is None and _is_wide(model):
        yield _with(target, options, "bfloat16", "--precision bf16", precision="bf16")


def _with(
    target: Target, options: ParallelOptions, name: str, option: str, **values: Any
) -> Variant:
    return Variant(target, dataclasses.replace(options, **values), name, option)


def _checkpointing(target: Target, options: ParallelOptions, arguments: Any) -> Iterator[Variant]:
    current = options.checkpoint
    if current is None:
        current = arguments["checkpoint"].default if "checkpoint" in arguments else "none"
    levels = {"op": "checkpoint all but dear operators", "full": "checkpoint every layer"}
    for level, name in levels.items():
        if current != "full" and current != level:
            yield _with(target, options, name, f"--checkpoint {level}", checkpoint=level)


def _halved(target: Target, options: ParallelOptions, arguments: Any) -> Variant | None:
    """Return the change of the batch to half of it; None where nothing says what it is, or of 1."""
    name = "half the samples at a time"
    if arguments:
        batch = options.batch
        if BATCH in arguments and batch is None:
            batch = arguments[BATCH].default
        if BATCH not in arguments or not isinstance(batch, int) or batch < 2:
            return None
        return _with(target, options, name, f"--batch {batch // 2}", batch=batch // 2)
    batch = target.batch
    if batch is None or batch < 2:
        return None

    def half(tensor: torch.Tensor) -> torch.Tensor:
        is_batched = tensor.dim() > 0 and tensor.shape[0] == batch
        return tensor[: batch // 2] if is_batched else tensor

    inputs: Inputs = target.inputs.map(half)
    halved = dataclasses.replace(target, inputs=inputs, batch=batch // 2)
    return Variant(halved, options, name, f"--batch {batch // 2}")


def _sharding(
    target: Target, options: ParallelOptions, model: nn.Module, *, own: bool
) -> Iterator[Variant]:
    sizes = options.sizes
    if not own and REPLICATED in sizes:
        ranks = sizes[REPLICATED] * sizes.get(SHARDED, 1)
        data = (REPLICATED, SHARDED)
        unchanged = (entry for entry in options.mesh if entry[0] not in data)
        mesh = ((SHARDED, ranks), *unchanged)
        yield _with(target, options, "shard among all replicas", _text(mesh), mesh=mesh)
    if any(map(_keeps_parameters, model.modules())):
        yield Variant(
            target,
            options,
            "drop gathered parameters after the forward pass",
            "reshard_after_forward=True in every fully_shard",
            adapt=_reshard,
        )
    if sizes.get(SHARDED, 1) > 1:
        mesh = tuple((name, size * (1 + (name == SHARDED))) for name, size in options.mesh)
        yield _with(target, options, f"twice the ranks along {SHARDED}", _text(mesh), mesh=mesh)


def _text(mesh: tuple[tuple[str, int], ...]) -> str:
    return "--mesh " + ",".join(f"{name}={size}" for name, size in mesh)


def _keeps_parameters(module: nn.Module) -> bool:
    if not isinstance(module, FSDPModule):
        return False
    group = module._get_fsdp_state()._fsdp_param_group  # noqa: SLF001 - no public name says it
    return group is not None and group.post_forward_mesh_info is None


def _reshard(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_reshard_after_forward(True, recurse=False)


def _is_wide(model: nn.Module) -> bool:
    return any(parameter.dtype is torch.float32 for parameter in model.parameters())
