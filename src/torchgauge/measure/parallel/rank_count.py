"""Counting a job on many devices, in a process of its own: one rank of each kind."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule

from torchgauge.analyze.parallel.rank_lifetimes import groups_of, rank_at
from torchgauge.analyze.parallel.step_bound import device_fit, step_bound
from torchgauge.device.roofs import peaks
from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.measure.description import describe
from torchgauge.measure.forward import running
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.memory.simulated_step import StandIns, stand_ins
from torchgauge.measure.parallel import rank_step
from torchgauge.measure.parallel.checkpointing import repeated_layers
from torchgauge.measure.parallel.fake_job import fake_job
from torchgauge.measure.parallel.parallel_options import ParallelOptions
from torchgauge.measure.parallel.sharded_target import (
    BATCH,
    ShardedTarget,
    loaded,
    remedy_of,
    sharded,
    takes_mesh,
)
from torchgauge.measure.processes.child_work import Sent
from torchgauge.measure.processes.processes import ask, fresh_folder
from torchgauge.measure.work.cuda_kernels import CudaKernels
from torchgauge.progress import Progress
from torchgauge.records.parallel.parallel import MeshDim, Parallel, RankKind
from torchgauge.records.parallel.rank_memory import (
    Alternative,
    DeviceFit,
    Part,
    SmallestMesh,
    Verdict,
)
from torchgauge.records.target import TargetDescription
from torchgauge.signals import restoring
from torchgauge.targets.builds.source import Source
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.hygiene.recursion import deeper, recursion_limit
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.placement import Placement, native_precision
from torchgauge.targets.target import Target, TargetRequest
from torchgauge.targets.training.named_training import named_training
from torchgauge.targets.training.training import Training

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
    if any(isinstance(module, FSDPModule) for module in model.modules()) and not offloaded(model):
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


def offloaded(model: nn.Module) -> frozenset[Part]:
    """Return the parts that FSDP keeps in the host's memory already."""
    groups = [
        module._get_fsdp_state()._fsdp_param_group  # noqa: SLF001
        for module in model.modules()
        if isinstance(module, FSDPModule)
    ]
    policies = [group.offload_policy for group in groups if group is not None]
    is_offloaded = policies and all(isinstance(policy, CPUOffloadPolicy) for policy in policies)
    return OFFLOADED if is_offloaded else frozenset()


def _reshard(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_reshard_after_forward(True, recurse=False)


def _is_wide(model: nn.Module) -> bool:
    return any(parameter.dtype is torch.float32 for parameter in model.parameters())


PIPELINE = "pp"
# Along which ranks hold shards of the same model and other samples, in order of preference.
DATA_PARALLEL = ("fsdp", "dp_shard", "dp", "ddp", "dp_replicate")
LARGEST_SIZE = 4096
SEARCH_SECONDS = 300.0
SHOWN_EVERY = 0.5  # seconds


@dataclasses.dataclass(frozen=True)
class ParallelSource(Source):
    """A target with the job that it is part of, and how it is trained."""

    options: ParallelOptions = dataclasses.field(
        default_factory=functools.partial(ParallelOptions, mesh=(("fsdp", 1),))
    )
    train: Training | None = None
    progress: Path | None = None  # a file for what is being counted, which the caller shows

    def say(self, variant: Variant) -> None:
        """Write what is being counted, where the caller shows it."""
        if self.progress is not None:
            mesh = " × ".join(f"{name} {size}" for name, size in variant.options.mesh)
            with contextlib.suppress(OSError):
                self.progress.write_text(", ".join(filter(None, (mesh, variant.name))))


def count_ranks(source: ParallelSource) -> Parallel:
    """Count one rank of each kind, in this process, which must not belong to a process group.

    Raises what loading and sharding raise; InputError `not-sharded`; ModelError where the model
    raises; MeasurementError `torch-unsupported`.
    """
    began = time.process_time()
    torch.set_num_threads(1)  # nothing is computed
    options = source.options
    target = loaded(source.target, options)
    kinds, elements = [], 0
    variant = Variant(target, options)
    source.say(variant)
    for name, rank in _kinds(options):
        counted, kind = _count_rank(variant, source.train, name, rank)
        kinds.append(kind)
        elements += _elements(counted, local=False)
    return Parallel(
        target=_described(counted, options),
        mesh=tuple(MeshDim(name=name, size=size) for name, size in options.mesh),
        sharding="its own function" if counted.own else ", ".join(options.sizes),
        optimizer=_optimizer_name(counted),
        precision=options.precision or "native",
        checkpoint=options.checkpoint or ("own" if counted.own else "none"),
        parameters=elements,
        kinds=tuple(kinds),
        smallest=_smallest(target, source, kinds) if options.smallest else None,
        alternatives=_alternatives(target, source, counted, kinds) if options.savings else (),
        seconds=time.process_time() - began,
        torch=str(torch.__version__),
    )


def _kinds(options: ParallelOptions) -> Iterator[tuple[str, int]]:
    """Yield the name and number of a rank of each kind: of a pipeline one of each stage."""
    stages = options.sizes.get(PIPELINE, 1)
    for stage in range(stages):
        places = [stage if name == PIPELINE else 0 for name, _ in options.mesh]
        yield f"stage {stage}" if stages > 1 else "rank", rank_at(options.mesh, places)


def _alternatives(
    target: Target, source: ParallelSource, counted: ShardedTarget, kinds: list[RankKind]
) -> tuple[Alternative, ...]:
    """Return what changes would save on the kind of rank that reserves most."""
    largest = max(kinds, key=lambda kind: kind.memory.reserved)

    def count(variant: Variant) -> RankKind:
        source.say(variant)
        rank = dict(_kinds(variant.options))[largest.name]
        return _count_rank(variant, source.train, largest.name, rank)[1]

    return tuple(alternatives(target, source.options, largest, counted.model, count))


def _count_rank(
    variant: Variant, train: Training | None, name: str, rank: int
) -> tuple[ShardedTarget, RankKind]:
    target, options = variant.target, variant.options
    groups = groups_of(options.mesh, rank)
    with (
        deeper(recursion_limit()),
        fake_job(options.mesh, rank) as mesh,
        running("cpu", "A rank's training step", remedy_of),
        # Devices for which a job can be judged are GPUs, all of them.
        CudaKernels().everywhere() if options.on else contextlib.nullcontext(),
    ):
        counted = sharded(target, mesh, options, train)
        rank_step.adapt_replicas(counted.model)
        variant.adapt(counted.model)
        step: rank_step.Step = rank_step.RankStep(counted.model, counted.inputs, counted.training)
        if counted.schedule is not None:
            step = rank_step.PipelineStep(counted.schedule, counted.inputs, counted.training)
        noted = rank_step.note_step(step, groups, variant.offloaded or offloaded(counted.model))
        parameters = _elements(counted, local=True)
    if options.world_size > 1 and not noted.collectives:
        raise InputError(
            f"{target.name} shards nothing: its ranks send nothing to each other.",
            id="not-sharded",
            cause=f"A step of rank {rank} of {options.world_size} has no collective.",
            remedy="Apply fully_shard, parallelize_module or DDP over the dimensions of `mesh`.",
        )
    kind = RankKind(
        name=name,
        rank=rank,
        ranks=options.world_size // options.sizes.get(PIPELINE, 1),
        parameters=parameters,
        memory=noted.memory,
        work=noted.work,
        collectives=noted.collectives,
        fits=_fits(noted, options),
        bounds=tuple(
            step_bound(
                noted.memory,
                noted.work,
                noted.collectives,
                roofs,
                peaks.links(roofs.device),
                groups,
            )
            for roofs in options.on
        ),
    )
    return counted, kind


def _fits(noted: rank_step.Noted, options: ParallelOptions) -> tuple[DeviceFit, ...]:
    fits = (device_fit(noted.memory, roofs) for roofs in options.on)
    return tuple(fit for fit in fits if fit is not None)


def _smallest(
    target: Target, source: ParallelSource, counted: list[RankKind]
) -> SmallestMesh | None:
    """Return the smallest power of two that fits along the first data-parallel dimension.

    A rank holds less the more ranks share it, so that halves of the range can be ruled out. The
    search begins at the size that is `counted` already. No trial begins after `SEARCH_SECONDS`.
    """
    options = source.options
    dim = next((name for name in DATA_PARALLEL if name in options.sizes), None)
    if dim is None:
        return None
    began, device, own = time.monotonic(), options.on[0].device, options.sizes[dim]
    verdicts: dict[int, Verdict] = {}
    reserved: dict[int, int] = {}
    low, high = 0, LARGEST_SIZE.bit_length() - 1  # exponents
    early_end = ""
    kinds: list[RankKind] = []
    while low <= high and not early_end:
        middle = (low + high) // 2
        if not verdicts and own.bit_count() == 1 and own <= LARGEST_SIZE:
            middle, kinds = own.bit_length() - 1, counted
        else:
            mesh = tuple((name, 2**middle if name == dim else size) for name, size in options.mesh)
            trial = dataclasses.replace(options, mesh=mesh, on=options.on[:1], smallest=False)
            try:
                source.say(variant := Variant(target, trial))
                kinds = [_count_rank(variant, source.train, *kind)[1] for kind in _kinds(trial)]
            except TorchgaugeError as error:
                early_end = f"{dim} {2**middle}: {error.message}"
                continue
        fits = [fit for kind in kinds for fit in kind.fits if fit.device == device]
        if not fits:
            return None
        worst = min(fits, key=lambda fit: fit.margin)
        verdicts[2**middle] = worst.verdict
        reserved[2**middle] = max(kind.memory.reserved for kind in kinds)
        low, high = (low, middle - 1) if worst.verdict == "fits" else (middle + 1, high)
        if low <= high and time.monotonic() - began > SEARCH_SECONDS:
            early_end = f"no trial begins after {SEARCH_SECONDS:.0f} s."
    fitting = [size for size, verdict in verdicts.items() if verdict == "fits"]
    return SmallestMesh(
        device=device,
        dim=dim,
        size=min(fitting, default=None),
        verdicts=dict(sorted(verdicts.items())),
        reserved=dict(sorted(reserved.items())),
        early_end=early_end,
    )


def _elements(counted: ShardedTarget, *, local: bool) -> int:
    """Return the elements of parameters, of the whole model or those that a rank holds."""
    return sum(
        (getattr(parameter, "_local_tensor", parameter) if local else parameter).numel()
        for parameter in counted.model.parameters()
    )


def _described(counted: ShardedTarget, options: ParallelOptions) -> TargetDescription:
    target = dataclasses.replace(counted.target, model=counted.model, inputs=counted.inputs)
    placement = Placement(
        target=target,
        model=counted.model,
        inputs=counted.inputs,
        device="fake",
        precision=options.precision or native_precision(target),
        method="native" if options.precision is None else "autocast",
    )
    return describe(placement, training=True)


def _optimizer_name(counted: ShardedTarget) -> str:
    optimizer = counted.training.optimizer
    return getattr(optimizer, "__name__", "") or getattr(
        getattr(optimizer, "func", None), "__name__", type(optimizer).__name__
    )


def count_requested(
    request: TargetRequest, options: ParallelOptions, progress: Progress
) -> Parallel:
    """Count a job whose model, or function that shards, is named as on the command line.

    Raises what loading and sharding raise, `loss-unknown`, and as `processes.ask`.
    """
    train = None
    if request.loss is not None:
        train = named_training(request.loss, None, precision=None, device="cpu")
    return _in_fresh_process(ParallelSource(request, options=options, train=train), progress)


def count_object(
    model: Any, inputs: Any, options: ParallelOptions, train: Training | None, progress: Progress
) -> Parallel:
    """Count a job of a model of the caller's, which stays as it is, or of a function that shards.

    The model travels without values. Raises as `count_requested`.
    """
    target = Source.of_object(model, inputs, training=True).target
    module = module_of(model)
    if module is not None and isinstance(target, Target):
        without_values = StandIns(contextlib.nullcontext(), "meta")
        copy, copied_inputs = stand_ins(module, target.inputs, without_values)
        target = dataclasses.replace(target, model=copy, inputs=copied_inputs)
    return _in_fresh_process(ParallelSource(target, options=options, train=train), progress)


def _in_fresh_process(source: ParallelSource, progress: Progress) -> Parallel:
    progress.start("counting")
    with fresh_folder() as folder, _followed(folder / "progress", progress):
        source = dataclasses.replace(source, progress=folder / "progress")
        record, interrupted = ask(_count_sent, Parallel, source, LatencyOptions())
    if interrupted:
        raise KeyboardInterrupt
    return record


def _count_sent(sent: Sent[ParallelSource]) -> Parallel:
    return count_ranks(sent.source)


@restoring
def _followed(file: Path, progress: Progress) -> Iterator[None]:
    """Show what the counting process writes to a file, by a thread: nothing is measured here."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(SHOWN_EVERY):
            with contextlib.suppress(OSError):
                progress.update(file.read_text())

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
