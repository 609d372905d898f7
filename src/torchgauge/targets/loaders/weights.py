"""Loads a state dict from a file into a model, refusing files that would run code."""

from __future__ import annotations

import pickle
import pickletools
import re
import struct
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from torchgauge.errors import InputError
from torchgauge.files import check_file
from torchgauge.reading import PICKLE, WEIGHTS, too_large

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
