"""The model of one rank: what the target's own function shards, or a plain model by a recipe."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from torchgauge.errors import InputError, option_conflict, text_of
from torchgauge.measure.forward import running
from torchgauge.measure.memory.simulated_step import StandIns, own_or_mean, stand_ins
from torchgauge.measure.parallel.checkpointing import checkpoint, repeated_layers
from torchgauge.measure.parallel.parallel_options import ParallelOptions
from torchgauge.measure.parallel.rank_step import is_schedule, stage_modules
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.loaders import building as python_factory
from torchgauge.targets.target import Target, TargetRequest
from torchgauge.targets.training.named_training import named_training
from torchgauge.targets.training.training import Training

RECIPES = ("fsdp", "tp", "ddp")
_OWN = "Give a function of your own that takes `mesh` and shards: file.py:function."
# What transformers call their styles, as torch's.
_STYLES: dict[str, Callable[[], Any]] = {
    "colwise": ColwiseParallel,
    "colwise_rep": lambda: ColwiseParallel(output_layouts=Replicate()),
    "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
    "rowwise": RowwiseParallel,
    "rowwise_rep": lambda: RowwiseParallel(input_layouts=Replicate()),
    "embedding_rowwise": lambda: RowwiseParallel(input_layouts=Replicate()),
    "sequence_parallel": SequenceParallel,
}


def check_recipes(options: ParallelOptions) -> None:
    """Raise InputError `recipe-unknown` for dimensions or combinations that no recipe has."""
    names = set(options.sizes)
    unknown = names.difference(RECIPES)
    if unknown:
        raise InputError(
            f"No recipe shards a plain model along '{min(unknown)}'.",
            id="recipe-unknown",
            cause=f"Recipes are {', '.join(RECIPES)}: what pipelines, context and expert "
            "parallelism divide differs from model to model.",
            remedy=_OWN,
        )
    if {"ddp", "tp"} <= names and "fsdp" not in names:
        raise InputError(
            "No recipe joins ddp with tp.",
            id="recipe-unknown",
            cause="DDP does not reduce the gradients of parameters that tp has sharded.",
            remedy="Name the dimension fsdp; or " + _OWN[:1].lower() + _OWN[1:],
        )


def shard(model: nn.Module, mesh: DeviceMesh, options: ParallelOptions) -> nn.Module:
    """Return the model sharded as the mesh's dimensions say, changed in place.

    First tp by the model's own plan, then checkpointing, then fsdp of each repeated layer and the
    whole, with ddp around it as replicas of the shards; or ddp alone.

    Raises InputError `recipe-unknown`, `recipe-unfit`, `mesh-does-not-divide`.
    """
    check_recipes(options)
    names = options.sizes
    if options.precision is not None and ("fsdp" not in names or options.precision == "fp32"):
        model.to(torch.bfloat16 if options.precision == "bf16" else torch.float32)
    if names.get("tp", 1) > 1:
        parallelize_module(model, mesh["tp"], _plan(model, names["tp"]))
    checkpoint(model, options.checkpoint or "none")
    if "fsdp" in names:
        _fully_shard(model, mesh, options)
    elif "ddp" in names:
        return DistributedDataParallel(model, device_mesh=mesh["ddp"])
    return model


def _fully_shard(model: nn.Module, mesh: DeviceMesh, options: ParallelOptions) -> None:
    arguments: dict[str, Any] = {
        "mesh": mesh["ddp", "fsdp"] if "ddp" in options.sizes else mesh["fsdp"]
    }
    if options.precision == "bf16":
        arguments["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32
        )
    for container, name in repeated_layers(model):
        fully_shard(container.get_submodule(name), **arguments)
    fully_shard(model, **arguments)


def _plan(model: nn.Module, size: int) -> dict[str, Any]:
    """Return the model's own plan of tensor parallelism, by module path."""
    own = getattr(model, "_tp_plan", None) or getattr(model, "base_model_tp_plan", None)
    if not own:
        raise InputError(
            f"{type(model).__name__} has no plan of tensor parallelism.",
            id="recipe-unfit",
            cause="The recipe tp takes the model's own plan (`_tp_plan`, of transformers).",
            remedy=_OWN,
        )
    _check_heads(model, size)
    plan = {}
    for path, _ in model.named_modules():
        style = own.get(path) or own.get(re.sub(r"\.\d+(?=\.|$)", ".*", path))
        if style is None:
            continue
        if style not in _STYLES:
            raise InputError(
                f"The style '{style}' of {path} has no counterpart in torch.",
                id="recipe-unfit",
                cause=f"The recipe tp knows {', '.join(_STYLES)}.",
                remedy=_OWN,
            )
        plan[path] = _STYLES[style]()
    return plan


def _check_heads(model: nn.Module, size: int) -> None:
    config = getattr(model, "config", None)
    for name in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(config, name, None)
        if isinstance(heads, int) and heads % size:
            raise InputError(
                f"A mesh with tp={size} does not divide the model's {heads} heads.",
                id="mesh-does-not-divide",
                cause=f"{name} is {heads}; each rank needs as many whole heads as others.",
                remedy=f"Choose a divisor of {heads} for tp.",
            )


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


def remedy_of(error: BaseException) -> str:
    """Return what to do about an error of a function or model in a job, "" where that is open."""
    return next((remedy for part, remedy in _REMEDIES if part in text_of(error)), "")


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
            raise option_conflict(
                f"{target.name} decides on its own {name}.",
                f"Leave the option out, or add a parameter `{name}` to the function.",
                cause=f"It shards for itself and has no parameter `{name}`.",
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
