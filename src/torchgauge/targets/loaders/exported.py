"""Saved programs: of torch.export, TorchScript and AOTInductor, loaded only with --trust.

Gives a TorchScript program its layers back: its submodules, called from Python while observed.

TorchScript runs in an interpreter where no call of a module is seen. While something observes them,
a method that calls submodules runs from here: the calls are those of modules, and what lies between
them runs in that interpreter still, as functions cut out of the method's graph. Otherwise the
program runs as it is.
"""

from __future__ import annotations

import functools
import importlib
import logging
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from torchgauge import torch_private
from torchgauge.errors import BuildError, InputError
from torchgauge.files import is_file
from torchgauge.targets.hygiene.functions import ORIGINAL
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.loaders import exported_layers
from torchgauge.targets.loaders.building import requested_inputs
from torchgauge.targets.loaders.script_methods import CannotFollowError, Method, calls_layers
from torchgauge.targets.target import Target, TargetRequest


class Layer(nn.Module):
    """A module of a TorchScript program; has its tensors, and runs its methods."""

    script: Any
    methods: dict[str, Method]

    @property
    def training(self) -> bool:
        """Whether the program is in training mode; a frozen one has none."""
        return bool(getattr(vars(self).get("script"), "training", False))

    @training.setter
    def training(self, mode: bool) -> None:
        script = vars(self).get("script")
        if script is not None and hasattr(script, "training"):
            script.training = mode

    def forward(self, method: str, *operands: Any) -> Any:
        """Run a method of the program's module."""
        return self.run(method, *operands)

    def run(self, method: str, *operands: Any) -> Any:
        """Run a method: from here where it calls submodules."""
        body = self.methods.get(method)
        if body is None:
            return getattr(self.script, method)(*operands)
        return body.run(self, operands)

    def _apply(self, fn: Any, recurse: bool = True) -> Layer:
        """Move or convert the tensors, and give the program the new ones."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, tensor in (*self._parameters.items(), *self._buffers.items()):
            if tensor is not None:
                self.script._c.setattr(name, tensor)  # noqa: SLF001 - by name, of any kind
        return self


class Program(Layer):
    """The whole program, called as it was saved."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program as it is, or its layers if somebody observes their calls."""
        if hasattr(nn.Module.__call__, ORIGINAL):
            return self.run_layers(*args, **kwargs)
        return self.script(*args, **kwargs)

    def run_layers(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program's layers from here."""
        named = self.script.forward.schema.arguments[1 + len(args) :]
        operands = [kwargs.get(argument.name, argument.default_value) for argument in named]
        return self.run("forward", *args, *operands)


def with_layers(script: torch.jit.ScriptModule) -> nn.Module:
    """Return a module with the layers of a TorchScript program; it shares the program's tensors.

    The program itself where its methods do what cannot be followed from here, or it has no modules.
    """
    try:
        program = _layer(script, Program, {})
    except CannotFollowError:
        return script
    return program if program.methods else script


def if_same(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the model; the program without layers where they do not return what it returns.

    A program may use what has no form in Python; whether it does shows when it runs.
    """
    if not isinstance(model, Program):
        return model
    script, mode = model.script, model.training
    model.training = False
    try:
        with torch.inference_mode():
            truth = script(*args, **kwargs)
            torch.testing.assert_close(model.run_layers(*args, **kwargs), truth, equal_nan=True)
    except Exception:  # noqa: BLE001 - if the program itself raises, that is said where it is run
        return script
    finally:
        model.training = mode
    return model


def _layer(script: Any, base: type[Layer], layers: dict[Any, Layer]) -> Layer:
    layer: Layer = _script_layers_kind(script.original_name, cast("Any", base))()
    vars(layer).update(script=script, methods={})
    for name, parameter in script._parameters.items():  # noqa: SLF001 - without those below it
        layer._parameters[name] = parameter  # noqa: SLF001 - tensors as the program has them
    for name, buffer in script._buffers.items():  # noqa: SLF001
        layer._buffers[name] = buffer  # noqa: SLF001
    layers[_identity(script)] = layer
    for name, child in script._modules.items():  # noqa: SLF001
        layer._modules[name] = layers.get(_identity(child)) or _layer(child, Layer, layers)  # noqa: SLF001
    for name in script._c._method_names():  # noqa: SLF001
        graph = script._c._get_method(name).graph  # noqa: SLF001
        if calls_layers(graph, script):
            layer.methods[name] = Method(graph, script)
    return layer


def _identity(script: Any) -> Any:
    """Return what a module that has tensors shares with itself under another name.

    A container has more modules than one in it that has its class and tensors.
    """
    tensors = (*script.parameters(), *script.buffers())
    # Tensors on meta have storages and no addresses.
    places = [
        (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape)  # noqa: SLF001
        for tensor in tensors
    ]
    return (script.original_name, len(list(script.modules())), *places) if places else id(script)


@functools.cache
def _script_layers_kind(name: str, base: Any) -> type[Any]:
    return type(name, (base,), {"__module__": __name__})


EXPORTED = ".pt2"
_UNKNOWN_CLASS = re.compile(r"Deserializing ([\w.]+)\.\w+ in pytree is not registered")
# What the archives of each kind have below their root; checkpoints, which hold no code, have none.
_PROGRAMS = {"models/": "exported", "data/aotinductor/": "aotinductor", "code/": "torchscript"}
_OLDER = "serialized_exported_program"


def matches(path: Path) -> bool:
    """Return whether the file holds a program; only the names in the archive are read."""
    return _exported_kind(path) is not None


def _exported_kind(path: Path) -> str | None:
    """Return "exported", "aotinductor" or "torchscript" by a file's content, None for none."""
    if not is_file(path):
        return None
    damaged = "exported" if path.suffix == EXPORTED else None  # loading it tells what is wrong
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return damaged
    if any(name.startswith(_OLDER) for name in names):
        return "exported"
    below_root = tuple(name.partition("/")[2] for name in names)
    kinds = (
        kind
        for beginning, kind in _PROGRAMS.items()
        if any(name.startswith(beginning) for name in below_root)
    )
    return next(kinds, damaged)


def load(request: TargetRequest, path: Path) -> Target:
    """Return the program in a file; an exported one brings the inputs it was exported with.

    Raises:
        InputError: `untrusted-file`, `program-unreadable`, `input-missing`, `input-spec`.
    """
    if not request.trust:
        raise InputError(
            f"{path} was not loaded: it holds a program, which loading and measuring would run.",
            id="untrusted-file",
            cause="What a file's program and its pickled objects do is up to whoever wrote it.",
            remedy="If you trust the file, add --trust: it is then loaded in a process of its own.",
        )
    kind = _exported_kind(path) or "torchscript"
    try:
        model, example = _LOADERS[kind](path, request.device)
    except Exception as error:  # a damaged file makes the loaders raise anything
        raise BuildError(
            f"{path} cannot be read as a saved program.",
            id="program-unreadable",
            cause=(str(error) or type(error).__name__).splitlines()[0],
            remedy="Give what torch.export.save, torch._inductor.aoti_compile_and_package or "
            "torch.jit.save wrote, on the kind of machine that it was compiled for.",
        ) from error
    inputs = _inputs(request, model, example)
    return Target(
        model=if_same(model, inputs.args, inputs.kwargs),
        inputs=inputs,
        spec=request.spec,
        kind=kind,
        name=path.stem,
        weights=f"from {path.name}",
        files=(path,),
    )


def _exported(path: Path, _device: str) -> tuple[torch.nn.Module, Inputs | None]:
    program = _read(path)
    module = exported_layers.with_layers(program.module())
    if program.example_inputs is None:
        return module, None
    args, kwargs = program.example_inputs
    return module, Inputs(args, kwargs)


def _read(path: Path) -> torch.export.ExportedProgram:
    """Return the program in a file; a library whose classes it returns is imported for it.

    torch logs what was wrong, and raises an error that does not say it.
    """
    reasons = _Reasons()
    log = logging.getLogger("torch.export")
    log.addFilter(reasons)
    try:
        return torch.export.load(path)
    except RuntimeError as error:
        unknown = _UNKNOWN_CLASS.match(str(reasons.last or ""))
        if unknown is None:
            raise (reasons.last or error) from error
        importlib.import_module(unknown[1])
        return torch.export.load(path)
    finally:
        log.removeFilter(reasons)


class _Reasons(logging.Filter):
    """Keeps the last exception that was logged, which is not printed then."""

    last: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is printed."""
        logged = record.exc_info[1] if record.exc_info else None
        self.last = logged or self.last
        return logged is None


def _scripted(path: Path, device: str) -> tuple[torch.nn.Module, Inputs | None]:
    load: Any = torch.jit.load
    # A script that was loaded with values can be moved to any device but meta.
    home = "meta" if device == "meta" else "cpu"
    return with_layers(load(path, map_location=home)), None


def _packaged(path: Path, _device: str) -> tuple[Callable[..., Any], Inputs | None]:
    """Return what AOTInductor compiled: a library that is called, and tells nothing of layers."""
    return torch_private.aoti_package(str(path)), None


_LOADERS: dict[str, Callable[[Path, str], tuple[Any, Inputs | None]]] = {
    "exported": _exported, "aotinductor": _packaged, "torchscript": _scripted,
}  # fmt: skip


def _inputs(request: TargetRequest, model: Any, example: Inputs | None) -> Inputs:
    inputs = requested_inputs(request, example)
    if inputs is not None:
        return inputs
    raise InputError(
        f"{request.spec} has no example inputs, and none are given.",
        id="input-missing",
        cause=f"The program is called as {_schema(model)}.",
        remedy="Give the shape of each, for example --input 1x3x224x224.",
    )


def _schema(model: Any) -> object:
    forward = getattr(getattr(model, "script", model), "forward", None)
    return getattr(forward, "schema", "forward(…)")
