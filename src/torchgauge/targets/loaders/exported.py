"""Saved programs: of torch.export, TorchScript and AOTInductor, loaded only with --trust."""

from __future__ import annotations

import importlib
import logging
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchgauge.errors import InputError
from torchgauge.files import is_file
from torchgauge.targets.inputs.batching import with_batch
from torchgauge.targets.inputs.input_spec import make_inputs
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.inputs.random_tensors import RandomTensors
from torchgauge.targets.loaders import exported_layers, script_layers
from torchgauge.targets.target import Target, TargetRequest

EXPORTED = ".pt2"
_UNKNOWN_CLASS = re.compile(r"Deserializing ([\w.]+)\.\w+ in pytree is not registered")
# What the archives of each kind have below their root; checkpoints, which hold no code, have none.
_PROGRAMS = {"models/": "exported", "data/aotinductor/": "aotinductor", "code/": "torchscript"}
_OLDER = "serialized_exported_program"


def matches(path: Path) -> bool:
    """Return whether the file holds a program; only the names in the archive are read."""
    return _kind(path) is not None


def _kind(path: Path) -> str | None:
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
    kind = _kind(path) or "torchscript"
    try:
        model, example = _LOADERS[kind](path, request.device)
    except Exception as error:  # a damaged file makes the loaders raise anything
        raise InputError(
            f"{path} cannot be read as a saved program.",
            id="program-unreadable",
            cause=(str(error) or type(error).__name__).splitlines()[0],
            remedy="Give what torch.export.save, torch._inductor.aoti_compile_and_package or "
            "torch.jit.save wrote, on the kind of machine that it was compiled for.",
        ) from error
    inputs = _inputs(request, model, example)
    return Target(
        model=script_layers.if_same(model, inputs.args, inputs.kwargs),
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
    return script_layers.with_layers(load(path, map_location=home)), None


def _packaged(path: Path, _device: str) -> tuple[Callable[..., Any], Inputs | None]:
    """Return what AOTInductor compiled: a library that is called, and tells nothing of layers."""
    from torch._inductor import aoti_load_package

    return aoti_load_package(str(path)), None


_LOADERS: dict[str, Callable[[Path, str], tuple[Any, Inputs | None]]] = {
    "exported": _exported, "aotinductor": _packaged, "torchscript": _scripted,
}  # fmt: skip


def _inputs(request: TargetRequest, model: Any, example: Inputs | None) -> Inputs:
    if request.inputs:
        return make_inputs(request.inputs, request.batch, RandomTensors(request.device))
    if example is not None:
        return example if request.batch is None else with_batch(example, request.batch)
    raise InputError(
        f"{request.spec} has no example inputs, and none are given.",
        id="input-missing",
        cause=f"The program is called as {_schema(model)}.",
        remedy="Give the shape of each, for example --input 1x3x224x224.",
    )


def _schema(model: Any) -> object:
    forward = getattr(getattr(model, "script", model), "forward", None)
    return getattr(forward, "schema", "forward(…)")
