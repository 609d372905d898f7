"""The training step of one rank, and what it holds, computes and sends."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Collection, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.parallel import DistributedDataParallel

from torchgauge import torch_private
from torchgauge.analyze.parallel.rank_lifetimes import rank_memory
from torchgauge.errors import InputError
from torchgauge.measure.parallel.collectives import Groups
from torchgauge.measure.parallel.current_layer import CurrentLayer, module_path
from torchgauge.measure.parallel.fake_job import replace
from torchgauge.measure.parallel.rank_ledger import RankLedger, noting
from torchgauge.measure.work.internals import DispatchMode, storage_key
from torchgauge.records.parallel.parallel import CollectiveRow, WorkRow
from torchgauge.records.parallel.rank_memory import Part, RankMemory, StepPhase
from torchgauge.signals import restoring
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.training.training import Training, trained_parameters


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
        fake_mode = torch_private.active_fake_mode()
        with torch_private.unset_fake(), _FakeBuckets(fake_mode):
            return self._reducer._rebuild_buckets()  # noqa: SLF001 - what DDP itself calls


class _FakeBuckets(DispatchMode):
    """Makes new tensors of floating dtypes fake: buckets, not the indices of their parameters."""

    def __init__(self, fake_mode: Any) -> None:
        super().__init__()
        self.fake_mode = fake_mode

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        dtype = kwargs.get("dtype") or torch.float32
        if "empty" in str(func) and dtype.is_floating_point:
            with self.fake_mode:
                return func(*args, **kwargs)
        return func(*args, **kwargs)


class Noted(NamedTuple):
    """What a step of one rank holds, computes and sends."""

    memory: RankMemory
    work: tuple[WorkRow, ...]
    collectives: tuple[CollectiveRow, ...]


class Step(Protocol):
    """A training step of one rank; `interleaved` where passes of micro-batches take turns.

    `returned` are the storages of gradients that such passes send and receive.
    """

    model: nn.Module
    inputs: Inputs
    optimizer: torch.optim.Optimizer
    interleaved: bool
    returned: set[int]

    def __call__(self, begin: Callable[[StepPhase], None] = ...) -> None:
        """Run the step; `begin` is called with the name of each phase."""


class RankStep:
    """One training step of a rank: forward, loss, backward, optimizer; gradients are dropped.

    Outputs are dropped before the backward pass, as loops do that are short of memory. A loss of
    outputs that are sharded along their classes runs under torch's `loss_parallel`.
    """

    interleaved = False

    def __init__(self, model: nn.Module, inputs: Inputs, training: Training) -> None:
        self.model, self.inputs, self.loss = model, inputs, training.loss
        self.optimizer = optimizer_on_device(model, training)
        self._argument = inputs.as_given()
        self.returned: set[int] = set()

    def __call__(self, begin: Callable[[StepPhase], None] = lambda _: None) -> None:
        """Run the step; `begin` is called with the name of each phase."""
        begin("forward")
        outputs = self.model(*self.inputs.args, **self.inputs.kwargs)
        with contextlib.ExitStack() as undo:
            if _sharded_by_class(outputs):
                undo.enter_context(loss_parallel())
            loss = self.loss(outputs, self._argument)
            del outputs
            begin("backward")
            loss.backward()  # type: ignore[no-untyped-call]
        del loss
        begin("optimizer")
        self.optimizer.step()
        self.optimizer.zero_grad()


def optimizer_on_device(model: nn.Module, training: Training) -> torch.optim.Optimizer:
    """Return the optimizer of a model, stepping all parameters at once as on a GPU.

    Raises InputError `nothing-to-train`.
    """
    optimizer = training.optimizer(trained_parameters(model))
    for group in optimizer.param_groups:
        # What torch chooses on a GPU, which the CPU of the fake tensors is not.
        if group.get("foreach", 0) is None and not group.get("fused"):
            group["foreach"] = True
    return optimizer


def note_step(
    step: Step, groups: Mapping[str, tuple[int, ...]], offloaded: Collection[Part] = ()
) -> Noted:
    """Run a step that makes the optimizer's states, then one that is noted.

    `groups` names the groups of ranks that this one is in; parts that are `offloaded` are not in
    the device's memory.

    Raises what the model raises, and MeasurementError `torch-unsupported`.
    """
    model = step.model
    step()
    if replicas(model):
        step()  # in which DDP orders its buckets anew
    gc.collect()
    layer = CurrentLayer(model)
    ledger = RankLedger(Groups(groups), layer, step.returned)
    ledger.adopt("parameters", _owned(model.named_parameters()))
    ledger.adopt("buffers", _owned(model.named_buffers()))
    ledger.adopt("optimizer", _states(model, step.optimizer))
    ledger.adopt("inputs", (("", tensor) for _, tensor in step.inputs.tensors()))

    def begin(phase: StepPhase) -> None:
        ledger.interleaved = step.interleaved and phase != "optimizer"
        if phase == "optimizer":
            ledger.assign("gradients", _gradients(model))
        ledger.begin(phase)

    with noting(ledger), layer.hooked():
        step(begin)
    return Noted(rank_memory(ledger.lifetimes, offloaded), ledger.work(), ledger.collectives.rows())


def _owned(named: Iterator[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield tensors with the module paths of their owners in place of their own names."""
    for name, tensor in named:
        yield module_path(name.rpartition(".")[0]), tensor


def _states(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[str, torch.Tensor]]:
    owners = {id(parameter): path for path, parameter in _owned(model.named_parameters())}
    for parameter, state in optimizer.state.items():
        for value in state.values():
            if isinstance(value, torch.Tensor):
                yield owners.get(id(parameter), ""), value


def _gradients(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for path, parameter in _owned(model.named_parameters()):
        if parameter.grad is not None:
            yield path, parameter.grad


def _sharded_by_class(outputs: Any) -> bool:
    return isinstance(outputs, DTensor) and any(
        isinstance(placement, Shard) and placement.dim == outputs.ndim - 1
        for placement in outputs.placements
    )


TARGET = "target"


class PipelineStep:
    """One step of a stage: micro-batches forward and backward as the schedule orders, optimizer.

    The first stage gets the positional inputs, the last one `target` of the named ones. `returned`
    are the storages of gradients that are about to be sent or received.
    """

    interleaved = True

    def __init__(self, schedule: Any, inputs: Inputs, training: Training) -> None:
        self.schedule, self.inputs = schedule, inputs
        self._stages = stages_of(schedule)
        self.model = stage_modules(schedule)
        self.optimizer = optimizer_on_device(self.model, training)
        self.returned: set[int] = set()

    def __call__(self, begin: Callable[[StepPhase], None] = lambda _: None) -> None:
        """Run the step; `begin` is called with the name of each phase."""
        self.returned.clear()
        begin("forward")
        args = self.inputs.args if any(stage.is_first for stage in self._stages) else ()
        kwargs = {name: value for name, value in self.inputs.kwargs.items() if name != TARGET}
        if TARGET in self.inputs.kwargs and any(stage.is_last for stage in self._stages):
            kwargs[TARGET] = self.inputs.kwargs[TARGET]
        with _agreed(self._stages, self.returned):
            self.schedule.step(*args, **kwargs, return_outputs=False)
        begin("optimizer")
        self.optimizer.step()
        self.optimizer.zero_grad()


def is_schedule(value: Any) -> bool:
    """Whether a value is a schedule of torch.distributed.pipelining."""
    return hasattr(value, "step") and (hasattr(value, "_stage") or hasattr(value, "_stages"))


def stages_of(schedule: Any) -> list[Any]:
    """Return the stages of a schedule that this rank runs."""
    single = getattr(schedule, "_stage", None)
    return list(schedule._stages) if single is None else [single]  # noqa: SLF001 - not public


def stage_modules(schedule: Any) -> nn.Module:
    """Return the modules of the stages that this rank runs, as one."""
    modules = [stage.submod for stage in stages_of(schedule)]
    return modules[0] if len(modules) == 1 else nn.ModuleList(modules)


@restoring
def _agreed(stages: list[Any], returned: set[int]) -> Iterator[None]:
    """Have each stage take the shapes that it was given, which it else asks of its neighbours.

    Storages of the gradients that it exchanges with them are added to `returned`.

    Raises InputError `pipeline-shapes-missing` in a stage that was given none.
    """
    from torch.distributed.pipelining import stage as torchs

    pipelining: Any = torchs  # neither the vote nor its modes are public
    modes = getattr(pipelining, "InferenceMode", None)
    for own in (stage for stage in stages if isinstance(stage, pipelining.PipelineStage)):
        # Before torch 2.13 only the shapes of inputs were needed.
        if modes.needs_dynamic(own._user_meta, True) if modes else own.inputs_meta is None:  # noqa: SLF001
            raise InputError(
                f"Stage {own.stage_index} of the pipeline does not know its shapes.",
                id="pipeline-shapes-missing",
                cause="It would ask the stages before it, which are not run.",
                remedy="Give PipelineStage its input_args and output_args.",
            )

    def vote(*_: Any, **__: Any) -> SimpleNamespace:
        return SimpleNamespace(item=lambda: 1)

    def noting(original: Any) -> Any:
        def operations(*args: Any, **kwargs: Any) -> Any:
            exchanges = original(*args, **kwargs)
            returned.update(storage_key(operation.tensor) for operation in exchanges)
            return exchanges

        return operations

    stage_type = pipelining.PipelineStage
    with contextlib.ExitStack() as undo:
        for name in ("_warmup_forward_vote", "_warmup_backward_result"):
            if hasattr(stage_type, name):
                replace(undo, stage_type, name, vote)
        for name in ("get_bwd_send_ops", "get_bwd_recv_ops"):
            replace(undo, stage_type, name, noting(getattr(stage_type, name)))
        yield
