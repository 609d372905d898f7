"""The passes of a training step on fake tensors of the CPU: what would be alive, and when."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import weakref
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from torchgauge import torch_private
from torchgauge.analyze.memory.training_memory import Block, BlockLifetimes, Passes, passes
from torchgauge.errors import MeasurementError
from torchgauge.formulas import workspaces
from torchgauge.formulas.operand import tensors
from torchgauge.measure.forward import running
from torchgauge.measure.work import internals
from torchgauge.measure.work.cuda_kernels import CudaKernels
from torchgauge.targets import hygiene, members
from torchgauge.targets.hygiene.recursion import deeper, recursion_limit
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.placement import DTYPES, Placement
from torchgauge.targets.training.named_training import mean_of_outputs
from torchgauge.targets.training.training import Phase, Training, TrainingStep, own_loss

_KNOWN_NAMESPACES = frozenset({"aten", "prims", "prim", "torchgauge", "torchvision"})
_NONE: dict[str, Any] = {}


class LiveBytes(internals.DispatchMode):
    """Notes when storages begin and end, on fake tensors too, and the scratch of CPU kernels.

    Storages of `existing` tensors were there before and are left out; so is the scratch without
    `workspaces`. `unknown` names operators of
    which it is not known what their kernels take.
    """

    def __init__(self, existing: Iterable[torch.Tensor], *, workspaces: bool = True) -> None:
        super().__init__()
        self.lives = BlockLifetimes()
        self.unknown: set[str] = set()
        self._workspaces = workspaces
        self._threads = torch.get_num_threads()
        self._alive: dict[int, Any] = {}
        for tensor in existing:
            self._alive[internals.storage_key(tensor)] = tensor.untyped_storage()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and note what it allocates."""
        outputs = func(*args, **(kwargs or _NONE))
        schema = getattr(func, "_schema", None)
        name = str(func) if schema is None else schema.name
        is_known = schema is not None and func.namespace in _KNOWN_NAMESPACES
        is_known &= not self._workspaces or not workspaces.is_unknown(name, args)
        if not is_known and any(True for _ in tensors((args, outputs))):
            self.unknown.add(name)
        self._note(name, args, outputs)
        return outputs

    def block_of(self, tensor: torch.Tensor) -> int | None:
        """Return the block that holds a tensor; None of one that was there before."""
        storage = self._alive.get(internals.storage_key(tensor))
        return storage.block if isinstance(storage, _Alive) else None

    def _note(self, name: str, args: Any, outputs: Any) -> None:
        backward = internals.graph_task() != -1
        real_sizes = workspaces.sizes(name, args, outputs)
        for index, tensor in enumerate(tensors(outputs)):
            key = internals.storage_key(tensor)
            if key in self._alive:
                continue
            storage = tensor.untyped_storage()
            real_size = real_sizes[index] if index < len(real_sizes) else None
            size = storage.nbytes() if real_size is None else real_size
            # Where it may, the engine adds to what a sum holds already; under a mode it may not.
            in_place = backward and name == "aten::add"
            block = self.lives.begin(Block(size, backward), may_replace=in_place)
            alive = self._alive[key] = _Alive(storage, self._ended(key, block))
            alive.block = block
        if self._workspaces and (size := workspaces.scratch(name, args, self._threads, outputs)):
            self.lives.end(self.lives.begin(Block(size, backward, scratch=True)))

    def _ended(self, key: int, block: int) -> Any:
        def ended(_: Any) -> None:
            self._alive.pop(key, None)
            self.lives.end(block)

        return ended


class _Alive(weakref.ref):  # type: ignore[type-arg]
    """A storage that is alive, by a reference that does not keep it, and its block."""

    block: int


internals.never_compiled(LiveBytes.__torch_dispatch__, below=True)


_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)


def simulate(
    placement: Placement, train: Training | None = None, kernels: CudaKernels | None = None
) -> Passes:
    """Run forward, loss and backward of a copy on fake CPU tensors, and return what they hold.

    Fake tensors take the paths of the CPU's kernels (fused attention and recurrent layers among
    them) and compute nothing; with `kernels` CUDA's where they save other tensors, and
    without workspaces. `train` None takes the loss that the model returns, else the mean of
    its outputs. `unknown` names the operators that may hold more than is known. Raises
    MeasurementError `step-not-simulated` where that cannot be, and those of `forward.running`.
    """
    # Plain SGD allocates nothing: what other optimizers do is computed.
    how = dataclasses.replace(
        train or Training(loss=own_or_mean, optimizer=torch.optim.SGD),
        optimizer=torch.optim.SGD,
        scaler=None,
    )
    module = _module(placement)
    mode = torch_private.FakeTensorMode(allow_non_fake_inputs=True)
    with hygiene.training(module, placement.inputs), running("cpu", "Simulating a training step"):
        copied, inputs = stand_ins(module, placement.inputs, StandIns(mode))
        existing = [*members.tensors(copied), *(tensor for _, tensor in inputs.tensors())]
        live = LiveBytes(existing, workspaces=kernels is None)
        with mode, kernels.everywhere() if kernels else contextlib.nullcontext():
            step = TrainingStep(copied, inputs, how, lambda: _arithmetic(placement))
            ends = _followed(step, live)
    gradients = (
        live.block_of(parameter.grad) for parameter in step.parameters if parameter.grad is not None
    )
    lives = live.lives
    del lives.events[ends["optimizer"] :]
    both_passes = passes(
        lives, ends["backward"], (block for block in gradients if block is not None)
    )
    return dataclasses.replace(both_passes, unknown=tuple(sorted(live.unknown)))


def own_or_mean(outputs: Any, inputs: Any) -> torch.Tensor:
    """Return the loss that the model made itself, else the mean of its outputs."""
    has = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    return mean_of_outputs(outputs, inputs) if has is None else own_loss(outputs, inputs)


def _followed(step: TrainingStep, live: LiveBytes) -> dict[Phase, int]:
    """Run the step; return how many events there were when each phase began."""
    begun: dict[Phase, int] = {}

    def mark(phase: Phase) -> None:
        begun[phase] = len(live.lives.events)

    with live:
        step(mark)
    return begun


def _module(placement: Placement) -> nn.Module:
    """Return the model. Raises MeasurementError where a copy of it would not run as it does."""
    model = placement.model
    if not isinstance(model, nn.Module):
        raise _refused("It is not a torch.nn.Module.")
    modules = list(model.modules())
    if any(isinstance(module, torch.jit.ScriptModule) for module in modules):
        raise _refused("A scripted program runs as one operator.")
    if any(map(internals.is_compiled, modules)):
        raise _refused("The memory that compiled kernels keep is not known.")
    return model


def _arithmetic(placement: Placement) -> AbstractContextManager[Any]:
    if placement.method != "autocast":
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=DTYPES[placement.precision])


class StandIns(TorchFunctionMode):
    """Makes one tensor without values for each tensor; as a mode, for those that are copied.

    They are fake where `mode` is a FakeTensorMode or one is on, else on the device "meta".
    """

    def __init__(self, mode: AbstractContextManager[Any], device: str = "cpu") -> None:
        super().__init__()
        self.mode = mode
        self.device = device
        self.fakes: dict[int, Any] = {}

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor's stand-in, the same one each time."""
        if id(tensor) not in self.fakes:
            self.fakes[id(tensor)] = self._make(tensor)
        return self.fakes[id(tensor)]  # type: ignore[no-any-return]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Copy a tensor that is an attribute as a fake; do everything else as usual."""
        if func is torch.Tensor.__deepcopy__:
            return self(args[0])
        return func(*args, **(kwargs or {}))

    def _make(self, tensor: torch.Tensor) -> torch.Tensor:
        if is_lazy(tensor) or type(tensor) not in _PLAIN or tensor.layout is not torch.strided:
            raise _refused(f"A {type(tensor).__name__} of layout {tensor.layout} has no fake.")
        with self.mode, torch.no_grad():
            fake = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device=self.device
            )
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(fake, tensor.requires_grad)
        return fake.requires_grad_(tensor.requires_grad)


def stand_ins(module: nn.Module, inputs: Inputs, fakes: StandIns) -> tuple[nn.Module, Inputs]:
    """Return copies of a module and its inputs, made of tensors without values.

    Raises MeasurementError `step-not-simulated` for tensors that have no such copy.
    """
    for tensor in members.tensors(module):
        fakes(tensor)
    with fakes, deeper(recursion_limit()):
        # A copy of a parameter asks no mode: what is in the memo is not copied.
        return copy.deepcopy(module, fakes.fakes), inputs.map(fakes)


def _refused(cause: str) -> MeasurementError:
    return MeasurementError(
        "A training step of this model cannot be simulated.",
        id="step-not-simulated",
        cause=cause,
        remedy="`torchgauge profile TARGET --train` measures its memory where it runs.",
    )
