"""The model of one rank: what the target's own function shards, or a plain model by a recipe."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from torchgauge.errors import InputError
from torchgauge.measure.forward import running
from torchgauge.measure.memory.simulated_step import StandIns, own_or_mean, stand_ins
from torchgauge.measure.parallel.parallel_options import ParallelOptions
from torchgauge.measure.parallel.pipeline_step import is_schedule, stage_modules
from torchgauge.measure.parallel.recipes import check_recipes, shard
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.loaders import python_factory
from torchgauge.targets.target import Target, TargetRequest
from torchgauge.targets.training.named_training import named_training
from torchgauge.targets.training.training import Training

MESH = "mesh"
BATCH = "batch"
_PASSED_ON = ("precision", "checkpoint", BATCH)
# What the text of an error contains, and what to do then.
_REMEDIES = (
    ("_local_scalar_dense", "Tensors of a job are fake: leave out what reads values (.item())."),
    ("process group twice", "Leave out init_process_group: the function is called in a job."),
    (
        "mixed torch.Tensor and DTensor",
        "Make all of its operands DTensors: optimizers need that too "
        "(or foreach=False), and torch's ring attention takes no dropout.",
    ),
    (
        "Failed to run stage backward",
        "Give PipelineStage input_args and output_args that require a "
        "gradient where they have one; see docs/parallel.md.",
    ),
    ("cuda devices", "Leave out the device: the tensors of a job are fake, on the CPU."),
)


@dataclasses.dataclass(frozen=True)
class ShardedTarget:
    """A model as one rank has it, with the inputs of that rank, and how it is trained."""

    target: Target
    model: nn.Module
    inputs: Inputs
    training: Training
    own: bool
    schedule: Any = None


def remedy_of(text: str) -> str:
    """Return what to do about an error of a function or model in a job, "" where that is open."""
    return next((remedy for part, remedy in _REMEDIES if part in text), "")


def takes_mesh(function: Any) -> bool:
    """Whether a function shards for itself: it has a parameter `mesh`."""
    if isinstance(function, nn.Module):
        return False
    try:
        return MESH in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def loaded(target: TargetRequest | Target, options: ParallelOptions) -> Target:
    """Load a target outside of any job: a model of meta tensors, or a function that shards.

    Raises what loading raises; InputError `recipe-unknown`, `not-a-module`.
    """
    if isinstance(target, TargetRequest):
        from torchgauge.targets.loaders.load import LIBRARIES, load

        is_python = target.spec.partition(":")[0] not in LIBRARIES  # "hf:gpt2" is of a library
        if is_python and python_factory.matches(target.spec):
            function = python_factory.named_factory(target.spec)
            if takes_mesh(function):
                name = target.spec.rpartition(":")[2]
                return Target(function, Inputs(), target.spec, "python", name)
        check_recipes(options)  # before minutes of building
        target = load(dataclasses.replace(target, device="meta", training=True))
    if not takes_mesh(target.model):
        check_recipes(options)
        if module_of(target.model) is None:
            raise InputError(
                f"{target.name} is neither a model nor a function that shards.",
                id="not-a-module",
                cause="It is not a torch.nn.Module, and it has no parameter `mesh`.",
                remedy="Give a module, or a function of `mesh` that returns (model, inputs).",
            )
    return target


def sharded(
    target: Target, mesh: DeviceMesh, options: ParallelOptions, train: Training | None
) -> ShardedTarget:
    """Return the model of this rank, where new tensors are fake.

    Raises what the recipe raises; InputError `option-conflict`, `factory-result`; ModelError
    `forward-raised` and its like for what the target's function raises.
    """
    if takes_mesh(target.model):
        model, inputs, own_training = _by_function(target, mesh, options)
    else:
        module = module_of(target.model)
        assert module is not None  # noqa: S101 - checked when it was loaded
        copy, inputs = stand_ins(module, target.inputs, StandIns(contextlib.nullcontext()))
        config: Any = getattr(copy, "config", None)
        if hasattr(config, "use_cache"):
            config.use_cache = False  # a training loop keeps no cache of keys and values
        copy.train()
        model, own_training = shard(copy, mesh, options), None
        if options.precision == "bf16":
            inputs = inputs.map(_in_bf16)
        target = dataclasses.replace(target, inputs=inputs)
    schedule = None
    if is_schedule(model):
        schedule, model = model, stage_modules(model)
    training = own_training or train or Training(own_or_mean, torch.optim.AdamW)
    if options.optimizer is not None:
        training = dataclasses.replace(training, optimizer=optimizer_of(options.optimizer))
    own = takes_mesh(target.model)
    return ShardedTarget(target, model, inputs, training, own, schedule)


def optimizer_of(name: str) -> Callable[..., torch.optim.Optimizer]:
    """Return what makes an optimizer, by its name. Raises InputError `optimizer-unknown`."""
    if name.lower() == "sgd-momentum":
        return functools.partial(torch.optim.SGD, lr=1e-3, momentum=0.9)
    return named_training(None, name, precision=None, device="cpu").optimizer


def _by_function(
    target: Target, mesh: DeviceMesh, options: ParallelOptions
) -> tuple[Any, Inputs, Training | None]:
    function: Any = target.model
    parameters = inspect.signature(function).parameters
    arguments = {MESH: mesh}
    for name in _PASSED_ON:
        value = getattr(options, name)
        if name in parameters and value is not None:
            arguments[name] = value
        elif value is not None:
            raise InputError(
                f"{target.name} decides on its own {name}.",
                id="option-conflict",
                cause=f"It shards for itself and has no parameter `{name}`.",
                remedy=f"Leave the option out, or add a parameter `{name}` to the function.",
            )
    with running("cpu", f"{target.name}(mesh)", remedy_of):
        result = function(**arguments)
    parts = result if isinstance(result, tuple) else (result,)
    model, inputs, training = (*parts, None, None)[:3]
    fits = isinstance(model, nn.Module) or is_schedule(model)
    if len(parts) > 3 or not fits or not isinstance(training, Training | None):
        raise InputError(
            f"{target.name} returns no model of a rank.",
            id="factory-result",
            cause=f"It returns {', '.join(type(part).__name__ for part in parts)}.",
            remedy="Return (model, inputs) or (model, inputs, tg.Training(…)); of a pipeline its "
            "schedule in place of the model.",
        )
    return model, target.inputs if inputs is None else Inputs.of(inputs), training


def _in_bf16(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
