"""Builds a model on the requested device."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from torchgauge.errors import BuildError, InputError, text_of
from torchgauge.forks import translating
from torchgauge.signals import replaced, restoring
from torchgauge.similar import did_you_mean, similar
from torchgauge.targets.inputs.batching import with_batch
from torchgauge.targets.inputs.fake_tensors import RandomTensors
from torchgauge.targets.inputs.input_spec import make_inputs
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.loaders.python_source import candidates, imported
from torchgauge.targets.target import Target, TargetRequest


def build(make: Callable[[], Any], device: str) -> Any:
    """Return what `make` makes, its tensors created on `device`.

    Some constructors read the values of tensors they have just made, which the
    meta device does not have: these models are made on the CPU and moved afterwards.
    """
    if torch.device(device).type != "meta":
        with torch.device(device):
            return make()
    try:
        with _imports_with_values(), torch.device(device):
            return make()
    except Exception:  # noqa: BLE001 - where values are not the reason, it raises again
        model = make()
    return model.to(device) if isinstance(model, torch.nn.Module) else model


@restoring
def _imports_with_values() -> Iterator[None]:
    """Let modules that the block imports make real tensors: they stay after it, for all to use."""
    owner: Any = importlib._bootstrap  # noqa: SLF001 - every import of Python's passes here
    original = owner._load_unlocked  # noqa: SLF001

    def load(spec: Any) -> Any:
        if torch.get_default_device().type != "meta":  # of another thread
            return original(spec)
        with torch.device("cpu"):
            return original(spec)

    with replaced([(owner, "_load_unlocked", load)]):
        yield


PAIR = 2
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")
_REQUIRED_KINDS = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def matches(spec: str) -> bool:
    """Return whether `spec` is written as a Python file or module, with or without a factory."""
    module, _, name = spec.rpartition(":")
    if spec.rstrip(":").endswith(".py") or module.endswith(".py"):
        return True
    return _DOTTED.match(module) is not None and _DOTTED.match(name) is not None


def load(request: TargetRequest) -> Target:
    """Return what the named factory makes: a model, or (model, inputs).

    The factory may also be a class whose constructor needs no argument, or a model itself.

    Raises:
        InputError: `file-missing`, `module-missing`, `factory-missing`, `factory-arguments`,
            `factory-raised` (the factory's own exception is its `__cause__`), `factory-result`,
            `input-missing`, `input-batch`, `input-spec`.
    """
    # Imported without a device: what a module makes for good must have values.
    factory = named_factory(request.spec)
    # A user's function is called as the user would call it, and its model is moved afterwards:
    # under a GPU as default device, generators and arrays it makes on the CPU would not fit.
    result = build(
        lambda: _make(factory, request.spec), "meta" if request.device == "meta" else "cpu"
    )
    model, factory_inputs = _model_and_inputs(result, request.spec)
    return Target(
        model=model,
        inputs=_inputs(request, model, factory_inputs),
        spec=request.spec,
        kind="python",
        name=type(model).__name__ if isinstance(model, torch.nn.Module) else _name(request.spec),
        weights="as the factory made them",
    )


def _split(spec: str) -> tuple[str, str]:
    """Return the file or module, and the factory."""
    module, colon, name = spec.rpartition(":")
    if colon and name and not name.endswith(".py"):
        return module, name
    path = spec.rstrip(":")
    factories = candidates(Path(path))
    example = f"{path}:{factories[0] if factories else 'factory'}"
    raise InputError(
        f"{spec} does not say what makes the model.",
        id="factory-missing",
        cause=f"It has {', '.join(factories)}." if factories else "",
        remedy=f"Name the function, class or model after a colon, for example {example}.",
    )


def _name(spec: str) -> str:
    return spec.rpartition(":")[2]


def named_factory(spec: str) -> Any:
    """Return what a file or module has under the name after the colon. Raises as `load`."""
    module, name = _split(spec)
    factory: Any = imported(module)
    for part in name.split("."):
        factory = attribute(factory, part, module)
    return factory


def _make(factory: Any, spec: str) -> Any:
    if isinstance(factory, torch.nn.Module):
        return factory
    if not callable(factory):
        raise _wrong_result(spec, factory)
    needed, name = _required_arguments(factory), _name(spec)
    if needed:
        raise InputError(
            f"{spec} needs arguments: {', '.join(needed)}.",
            id="factory-arguments",
            cause="A factory is called without any.",
            remedy=f"Write a function without required arguments that calls {name} with them.",
        )

    def raised(error: BaseException) -> BuildError:
        return BuildError(
            f"{spec} raised {text_of(error)}",
            id="factory-raised",
            cause="The factory failed; its own traceback says where.",
            remedy=f"Call {name}() on its own first; it must work without arguments.",
        )

    with translating(raised):
        return factory()


def attribute(owner: Any, name: str, module: str) -> Any:
    """Return what a module has under a name; raises InputError `factory-missing`."""
    try:
        return getattr(owner, name)
    except AttributeError:
        names = [member for member in dir(owner) if not member.startswith("_")]
        prefix = ""
        if inspect.ismodule(owner):  # what it imports is not meant
            names = [member for member in names if not inspect.ismodule(vars(owner).get(member))]
            prefix = f"{module}:"
        targets = [prefix + member for member in similar(name, names)]
        raise InputError(
            f"{module} has no {name!r}.",
            id="factory-missing",
            remedy=did_you_mean(targets, f"It has {', '.join(names) or 'no public name'}."),
        ) from None


def _required_arguments(factory: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return []  # some built-in callables have no signature; calling them will tell
    return [
        name
        for name, parameter in parameters.items()
        if parameter.kind in _REQUIRED_KINDS and parameter.default is parameter.empty
    ]


def _model_and_inputs(result: Any, spec: str) -> tuple[Callable[..., Any], Inputs | None]:
    if isinstance(result, tuple):
        if len(result) != PAIR:
            raise _wrong_result(spec, result)
        model, inputs = result
        if not callable(model) or inspect.isclass(model):
            raise _wrong_result(spec, model)
        return model, Inputs.of(inputs)
    if not callable(result) or inspect.isclass(result):
        raise _wrong_result(spec, result)
    return result, None


def _wrong_result(spec: str, value: Any) -> InputError:
    description = f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__
    return InputError(
        f"{spec} gives {description}, not a model.",
        id="factory-result",
        remedy="Return a torch.nn.Module (or any callable), or a pair (model, inputs).",
    )


def requested_inputs(request: TargetRequest, own: Inputs | None = None) -> Inputs | None:
    """Return the inputs that a request asks for, else the target's own in the batch asked for."""
    if request.inputs:
        return make_inputs(request.inputs, request.batch, RandomTensors(request.device))
    return own if own is None or request.batch is None else with_batch(own, request.batch)


def _inputs(
    request: TargetRequest, model: Callable[..., Any], factory_inputs: Inputs | None
) -> Inputs:
    inputs = requested_inputs(request, factory_inputs)
    if inputs is not None:
        return inputs
    forward = model.forward if isinstance(model, torch.nn.Module) else model
    needed = _required_arguments(forward)
    if not needed:
        return Inputs()
    example = " ".join(f"--input {name}=1x3x224x224" for name in needed)
    raise InputError(
        f"{request.spec} has no example inputs, and none are given.",
        id="input-missing",
        cause=f"The model is called as forward{_signature(forward)}.",
        remedy=f"Give a shape for each, for example {example}, or return (model, inputs).",
    )


def _signature(forward: Callable[..., Any]) -> str:
    try:
        return str(inspect.signature(forward))
    except (TypeError, ValueError):
        return "(…)"
