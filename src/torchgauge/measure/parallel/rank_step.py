"""The training step of one rank, and what it holds, computes and sends."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import loss_parallel

from torchgauge.analyze.parallel.rank_lifetimes import rank_memory
from torchgauge.errors import InputError
from torchgauge.measure.parallel.collectives import Groups
from torchgauge.measure.parallel.current_layer import CurrentLayer, module_path
from torchgauge.measure.parallel.fake_ddp import replicas
from torchgauge.measure.parallel.rank_ledger import RankLedger, noting
from torchgauge.records.parallel.rank_memory import Part, RankMemory, StepPhase
from torchgauge.records.parallel.rank_work import CollectiveRow, WorkRow
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.training.training import Training


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
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise InputError(
            "The model has no parameter to train.",
            id="nothing-to-train",
            cause="No parameter has requires_grad set.",
            remedy="Call model.requires_grad_(True).",
        )
    optimizer = training.optimizer(parameters)
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
