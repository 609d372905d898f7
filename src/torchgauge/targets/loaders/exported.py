"""Saved programs: what torch.export.save and torch.jit.save wrote, loaded only with --trust."""

from __future__ import annotations

import zipfile
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
# Members that the archives of the two kinds have; checkpoints, which hold no code, have none.
_PROGRAMS = {"archive_format": "exported", "serialized_exported_program": "exported",
             "code/": "torchscript"}  # fmt: skip


def matches(path: Path) -> bool:
    """Return whether the file holds a program; only the names in the archive are read."""
    return _kind(path) is not None


def _kind(path: Path) -> str | None:
    """Return "exported" or "torchscript" by a file's content, None for neither."""
    if not is_file(path):
        return None
    if path.suffix == EXPORTED:
        return "exported"  # a damaged one is said to be that
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return None
    return next((_PROGRAMS[sign] for sign in _PROGRAMS if any(sign in n for n in names)), None)


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
        model, example = _exported(path) if kind == "exported" else _scripted(path)
    except Exception as error:  # a damaged file makes the loaders raise anything
        raise InputError(
            f"{path} cannot be read as a saved program.",
            id="program-unreadable",
            cause=(str(error) or type(error).__name__).splitlines()[0],
            remedy="Give what torch.export.save (.pt2) or torch.jit.save (.pt, .ts) wrote.",
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


def _exported(path: Path) -> tuple[torch.nn.Module, Inputs | None]:
    program = torch.export.load(path)
    module = exported_layers.with_layers(program.module())
    if program.example_inputs is None:
        return module, None
    args, kwargs = program.example_inputs
    return module, Inputs(args, kwargs)


def _scripted(path: Path) -> tuple[torch.nn.Module, Inputs | None]:
    load: Any = torch.jit.load
    return script_layers.with_layers(load(path, map_location="cpu")), None


def _inputs(request: TargetRequest, model: torch.nn.Module, example: Inputs | None) -> Inputs:
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


def _schema(model: torch.nn.Module) -> object:
    script = getattr(model, "script", model)
    return getattr(script.forward, "schema", "forward(…)")
