"""Loads a target as written on the command line: a model with example inputs."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import pickle
import pickletools
import random
import re
import struct
import subprocess
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.files import check_file, check_readable, is_file, path_remedy
from torchgauge.folders import expanded
from torchgauge.garbage import no_collections
from torchgauge.reading import PICKLE, WEIGHTS, too_large
from torchgauge.signals import replaced, restoring
from torchgauge.similar import did_you_mean, similar
from torchgauge.targets.huggingface.huggingface_config import PUBLISHED
from torchgauge.targets.inputs.content import with_inputs
from torchgauge.targets.inputs.fake_tensors import SEED
from torchgauge.targets.loaders import building as python_factory
from torchgauge.targets.loaders import executorch_file, exported, onnx_file
from torchgauge.targets.runtimes.runtime_options import is_onnx, is_program
from torchgauge.targets.target import Target, TargetRequest

FORMS = (
    "file.py:factory or package.module:factory (returns a model, or (model, inputs)); "
    "a Hugging Face folder (with config.json); a saved program (.pt2, TorchScript, .pte); "
    "an .onnx file; hf:ARCHITECTURE; torchvision:NAME; timm:NAME"
)
UNSUPPORTED = {
    ".pt2": "an exported program",
    ".pt": "a checkpoint",
    ".pth": "a checkpoint",
    ".ts": "a TorchScript program",
    ".bin": "a checkpoint",
    ".etdp": "a recording of ExecuTorch",
    ".etrecord": "a record of how ExecuTorch lowered a program",
    ".safetensors": "a checkpoint",
}
LIBRARIES = ("torchvision", "timm", "hf")
MAX_TARGETS = 3
_SEPARATORS = re.compile(r"[-_. ]")
EXECUTORCH = {
    ".etdp": "Read it by `torchgauge trace FILE`",
    ".etrecord": "Give the program (.pte), and this file by --etrecord",
}
CHECKPOINTS = (".pt", ".pth", ".bin", ".safetensors")


def load(request: TargetRequest) -> Target:
    """Return the model a request names, on the request's device, with example inputs.

    Random weights and inputs are the same in every process; the caller's random number generators
    are left as they were. The model's training flags are what its library or factory gave.

    Raises:
        InputError: the target, its inputs or its weights cannot be used; the `id` says which.
        MissingExtraError: the library the target comes from is not installed.
    """
    with _seeded(request.device), _programs_apart():
        target = _load(request)
    if request.weights is not None:
        load_weights(target.model, request.weights)
        target = dataclasses.replace(target, weights=request.weights.name, files=(request.weights,))
    return with_inputs(target, target.inputs)


def _load(request: TargetRequest) -> Target:
    scheme, _, name = request.spec.partition(":")
    if scheme in LIBRARIES:
        with no_collections():
            return _load_from_library(request, scheme, name)
    path = _path(request.spec)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise _unknown(request.spec, f"the folder {path} has no config.json")
        from torchgauge.targets.huggingface import huggingface

        return huggingface.load_directory(request, path)
    if is_onnx(path.name):
        return onnx_file.load(request, path)
    if is_program(path.name):
        return executorch_file.load(request, path)
    if exported.matches(path):
        return exported.load(request, path)
    if path.suffix in UNSUPPORTED:
        raise _unsupported(path)
    if python_factory.matches(request.spec):
        return _by_python(request)
    raise _unknown(request.spec, "it has none of the known forms", likely_targets(request.spec))


def _by_python(request: TargetRequest) -> Target:
    """Load what a file or a module makes; a missing one may be a misspelt scheme."""
    try:
        return python_factory.load(request)
    except InputError as error:
        near = likely_scheme(request.spec) if error.id == "module-missing" else ""
        error.remedy = did_you_mean([near] if near else [], error.remedy)
        raise


def _load_from_library(request: TargetRequest, scheme: str, name: str) -> Target:
    # Imported where needed: each of them pulls a library that takes seconds to import.
    from torchgauge.targets.loaders import torchvision_models

    if scheme == "torchvision":
        return torchvision_models.load(request, name)
    if scheme == "timm":
        return torchvision_models.load_timm(request, name)
    from torchgauge.targets.huggingface import huggingface

    return huggingface.load_architecture(request, name)


def _path(spec: str) -> Path:
    """Return the spec as a path; raises InputError `target-unknown` where it cannot be one."""
    try:
        path = expanded(spec)
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise _unknown(spec, f"as a path it cannot be used: {error}") from error
    check_readable(path)
    return path


@restoring
def _seeded(device: str) -> Iterator[None]:
    """Seed torch, NumPy and `random` alike, and put their states back afterwards."""
    on_cuda = torch.device(device).type == "cuda"
    python_state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([torch.device(device)] if on_cuda else []):
        # Not torch.manual_seed: that would also reseed every other CUDA device.
        torch.default_generator.manual_seed(SEED)
        if on_cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(SEED)
        random.seed(SEED)
        np.random.seed(SEED)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


@restoring
def _programs_apart() -> Iterator[None]:
    """Start programs in process groups of their own: `kill 0` in one ends that group, and not us.

    Not at a terminal, where programs may ask: a group in the background cannot read.
    """
    if not hasattr(os, "setpgid") or os.isatty(0):
        yield
        return
    start = subprocess.Popen.__init__

    def start_in_group(self: Any, *args: Any, **kwargs: Any) -> None:
        if not kwargs.get("start_new_session") and kwargs.get("preexec_fn") is None:
            kwargs.setdefault("process_group", 0)
        start(self, *args, **kwargs)

    def system(command: Any) -> int:
        code = subprocess.call(command, shell=True)  # noqa: S602 - the target's own command
        return -code if code < 0 else code << 8

    with replaced([(subprocess.Popen, "__init__", start_in_group), (os, "system", system)]):
        yield


def _unknown(spec: str, cause: str, likely: Sequence[str] = ()) -> InputError:
    return InputError(
        f"{spec!r} is not a target.",
        id="target-unknown",
        cause=f"{cause[:1].upper()}{cause[1:]}.",
        remedy=did_you_mean(likely, f"Give one of: {FORMS}."),
    )


def _unsupported(path: Path) -> InputError:
    if not path.exists():
        return InputError(f"There is no file {path}.", id="file-missing", remedy=path_remedy(path))
    remedy = "Write a file.py:factory that returns the model, and give that"
    if path.suffix in CHECKPOINTS:
        remedy += f"; where the file is a state dict, add --weights {path}"
    remedy = EXECUTORCH.get(path.suffix, remedy)
    return InputError(
        f"{path} cannot be loaded as a target.",
        id="target-not-supported",
        cause=f"torchgauge does not load {path.suffix} files yet ({UNSUPPORTED[path.suffix]}).",
        remedy=f"{remedy}.",
    )


def likely_targets(spec: str) -> list[str]:
    """Return the targets, the likeliest first: a file's function, else a library's model."""
    file = _file(spec)
    if file:
        return [file]
    images = _torchvision_names()
    exact = _equal_name(spec, images)
    if exact:
        return [f"torchvision:{exact}"]
    # A name on the hub begins with the model's or the architecture's.
    architecture = _beginning(spec.rpartition("/")[2], _transformers_names())
    if architecture:
        return [f"hf:{architecture}"]
    return [f"torchvision:{name}" for name in similar(spec, images, limit=MAX_TARGETS)]


def likely_scheme(spec: str) -> str:
    """Return the target with the scheme that was meant (`torchvison:…`), "" where none is near."""
    scheme, _, name = spec.partition(":")
    near = similar(scheme, LIBRARIES, limit=1)
    return f"{near[0]}:{name}" if near else ""


def _file(spec: str) -> str:
    """Return `models.py:make` for `models.make` where there is that file."""
    module, _, name = spec.rpartition(".")
    file = f"{module.replace('.', '/')}.py"
    return f"{file}:{name}" if module and name.isidentifier() and is_file(Path(file)) else ""


def _torchvision_names() -> list[str]:
    if importlib.util.find_spec("torchvision") is None:
        return []
    from torchgauge.targets.loaders.importing_torchvision import import_torchvision

    try:
        return list(import_torchvision().models.list_models())
    except TorchgaugeError:  # it does not fit the installed torch
        return []


def _transformers_names() -> list[str]:
    if importlib.util.find_spec("transformers") is None:
        return []
    import transformers

    return [*PUBLISHED, *transformers.CONFIG_MAPPING]


def _equal_name(name: str, names: Iterable[str]) -> str:
    """Return the name that differs in case and separators alone."""
    return next((candidate for candidate in names if _plain(candidate) == _plain(name)), "")


def _beginning(name: str, names: Iterable[str]) -> str:
    """Return the longest of the names that this one begins with, as a word of its own."""
    plain = name.lower().replace("_", "-")

    def begins(candidate: str) -> bool:
        candidate = candidate.lower().replace("_", "-")
        return (
            plain.startswith(candidate) and not plain[len(candidate) : len(candidate) + 1].isalpha()
        )

    return max(filter(begins, names), key=len, default="")


def _plain(name: str) -> str:
    return _SEPARATORS.sub("", name.lower())


# Names of the state dict in checkpoints of training scripts.
WRAPPERS = ("state_dict", "model_state_dict", "model")
# Prefixes that DistributedDataParallel and torch.compile add to every name.
PREFIXES = ("module.", "_orig_mod.")
MAX_SHOWN = 3
HARMLESS = ("torch._utils.", "collections.OrderedDict")


def load_weights(model: Callable[..., Any], path: Path) -> None:
    """Copy the state dict in `path` (.safetensors, else what torch.save wrote) into `model`.

    Every name and shape must match. On the meta device only that is checked.

    Raises:
        InputError: `file-missing`, `weights-untrusted`, `weights-unreadable`,
            `weights-mismatch`, or `weights-no-module` where the model has no state dict.
    """
    if not isinstance(model, torch.nn.Module):
        raise InputError(
            f"--weights needs a torch.nn.Module, and the target is {type(model).__name__}.",
            id="weights-no-module",
            remedy="Load the weights where the target is made.",
        )
    check_file(path, "weights file")
    state = read_state_dict(path)
    own = model.state_dict()
    _check(own, state, path, type(model).__name__)
    if not all(tensor.is_meta for tensor in own.values() if isinstance(tensor, torch.Tensor)):
        model.load_state_dict(state)


def read_state_dict(path: Path) -> dict[str, torch.Tensor]:
    """Return the state dict in a file, unwrapped from the checkpoint around it.

    Raises:
        InputError: `weights-untrusted`, `weights-unreadable`, `file-too-large`.
    """
    _check_unpacked(path)
    content = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)
    for key in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
        raise _unreadable(path, f"It holds {type(content).__name__}, not a state dict.")
    state = dict(content)
    for prefix in PREFIXES:
        if state and all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def _read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except Exception as error:  # a damaged header makes it raise anything
        raise _unreadable(path, _first_line(error)) from error


def _read_pickle(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        imported_name = named[1] if named else _code_in_pickle(path)
        if imported_name:
            raise _untrusted(path, imported_name) from error
        raise _unreadable(path, "torch.save did not write it.") from error
    except Exception as error:  # damaged opcodes make it raise anything
        raise _unreadable(path, _first_line(error)) from error


def _check_unpacked(path: Path) -> None:
    """Raise InputError `file-too-large` for an archive whose members unpack to more than it holds.

    torch.save packs nothing, and torch.load would unpack whatever it finds.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError, struct.error):
        return  # no archive, or what reads it says what is wrong with it
    pickles = [member.file_size for member in members if member.filename.endswith(".pkl")]
    for sizes, bound in (([member.file_size for member in members], WEIGHTS), (pickles, PICKLE)):
        limit = bound.limit_for(path.stat().st_size)
        if sum(sizes) > limit:
            raise too_large(str(path), f"What {len(sizes)} of its members hold", limit)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _code_in_pickle(path: Path) -> str | None:
    """Return the first name that a bare pickle would import, other than what tensors need.

    The opcodes are read, not run: torch refuses newer pickle protocols before it comes to names.
    """
    strings: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(path.read_bytes()):
            if opcode.name in ("GLOBAL", "INST"):
                strings = str(argument).split(" ")
            elif isinstance(argument, str):
                strings.append(argument)
            if opcode.name in ("GLOBAL", "INST", "STACK_GLOBAL"):
                name = ".".join(strings[-2:])
                if not name.startswith(HARMLESS):
                    return name
    except (ValueError, IndexError, UnicodeDecodeError):
        return None  # not a pickle, or not to its end
    return None


def _untrusted(path: Path, imported_name: str) -> InputError:
    return InputError(
        f"{path} was not loaded: unpickling it would run code.",
        id="weights-untrusted",
        cause=f"Its pickle asks for {imported_name}, which is more than tensors and plain "
        "containers.",
        remedy="Save the state dict alone, best as .safetensors: "
        "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')",
    )


def _unreadable(path: Path, cause: str) -> InputError:
    return InputError(
        f"{path} cannot be read as weights.",
        id="weights-unreadable",
        cause=cause,
        remedy="Give a .safetensors file or what torch.save(model.state_dict(), …) wrote.",
    )


def _check(own: Mapping[str, Any], state: Mapping[str, Any], path: Path, model: str) -> None:
    missing = [name for name in own if name not in state]
    unexpected = [name for name in state if name not in own]
    misshapen = [
        f"{name} ({_shape(state[name])}, the model has {_shape(own[name])})"
        for name in own
        if name in state and _shape(own[name]) != _shape(state[name])
    ]
    kinds = (
        ("missing from the file", missing),
        ("not in the model", unexpected),
        ("of another shape", misshapen),
    )
    problems = [f"{len(names)} {kind}: {_first(names)}" for kind, names in kinds if names]
    if problems:
        raise InputError(
            f"The weights in {path} do not fit {model}.",
            id="weights-mismatch",
            cause="; ".join(problems) + ".",
            remedy="Give the weights of this very architecture, or the target they belong to.",
        )


def _shape(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "x".join(map(str, value.shape)) or "scalar"
    return type(value).__name__


def _first(names: Iterable[str]) -> str:
    names = list(names)
    omitted = f", … ({len(names) - MAX_SHOWN} more)" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + omitted
