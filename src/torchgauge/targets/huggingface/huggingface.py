"""`hf:ARCHITECTURE` and Hugging Face folders: transformers models, without the network."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchgauge.device.counters import memory_available
from torchgauge.errors import BuildError, InputError
from torchgauge.imports import required
from torchgauge.targets import members
from torchgauge.targets.huggingface.huggingface_config import (
    architecture_of,
    class_named,
    configure,
)
from torchgauge.targets.huggingface.huggingface_inputs import example_inputs
from torchgauge.targets.huggingface.huggingface_sizes import in_vocabulary
from torchgauge.targets.inputs.tensors import nbytes, unique
from torchgauge.targets.loaders.building import build
from torchgauge.targets.target import Target, TargetRequest
from torchgauge.units import size


def check_fits(construct: Callable[[], Any], request: TargetRequest) -> None:
    """Construct the model without memory first, and compare its size with the free memory.

    Only for the CPU: a GPU says so itself, at once. A model that cannot be constructed on the
    meta device is not checked.

    Raises:
        InputError: `model-too-large`.
    """
    if torch.device(request.device).type != "cpu":
        return
    try:
        with torch.device("meta"):
            model = construct()
    except Exception:  # noqa: BLE001 - whatever is wrong, building it for real says so
        return
    need = sum(map(nbytes, unique(members.tensors(model))))
    free = memory_available()
    if free is not None and need > free:
        raise InputError(
            f"{request.spec} needs {size(need)} for its weights; {size(free)} are free.",
            id="model-too-large",
            remedy="Make it smaller (hf:…?num_hidden_layers=2), use --precision bf16, or count it "
            "without memory: --device meta.",
        )


DTYPES = {
    "fp16": torch.float16,
    "float16": torch.float16,
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
}
WEIGHT_SUFFIXES = (".safetensors", ".bin")


def load_architecture(request: TargetRequest, name: str) -> Target:
    """Return a model with random weights: `name` is a model type or class, with `?key=value&…`.

    Raises:
        InputError: `hf-unknown`, `hf-override`, `hf-load-failed`, `model-too-large`, or inputs
            that cannot be read or found.
        MissingExtraError: transformers is not installed.
    """
    transformers = import_transformers()
    config, model_class = configure(transformers, name)
    in_vocabulary(config)
    model_class = model_class or architecture_of(transformers, config)
    model = _from_config(model_class, config, request)
    return _target(request, model, "random", ())


def load_directory(request: TargetRequest, folder: Path) -> Target:
    """Return the model that `save_pretrained` wrote into a folder, by its own architecture.

    On the meta device the weights are not read. Pickled weights are loaded as tensors only, and
    code that came with the model is never run.

    Raises:
        InputError: `hf-config`, `hf-remote-code`, `hf-unknown`, `weights-mismatch`,
            `weights-untrusted`, `hf-load-failed`, `model-too-large`.
        MissingExtraError: transformers is not installed.
    """
    transformers = import_transformers()
    config, model_class = _read_config(transformers, folder)
    if torch.device(request.device).type == "meta":
        model = _from_config(model_class, config, request)
        return _target(request, model, f"from {folder} (not read on the meta device)", ())
    check_fits(lambda: _construct(model_class, config, request), request)
    return _target(
        request, _from_files(model_class, folder, request), f"from {folder}", _weight_files(folder)
    )


def import_transformers() -> Any:
    """Return transformers.

    Raises:
        MissingExtraError: it is not installed.
    """
    return required("transformers", "huggingface", "A Hugging Face target")


def _from_config(model_class: Any, config: Any, request: TargetRequest) -> torch.nn.Module:
    check_fits(lambda: _construct(model_class, config, request), request)
    try:
        model: torch.nn.Module = build(
            lambda: _construct(model_class, config, request), request.device
        )
    except Exception as error:  # a constructor may raise anything on a configuration
        raise _failed(model_class.__name__, error) from error
    return model


def _construct(model_class: Any, config: Any, request: TargetRequest) -> Any:
    dtype = DTYPES.get(request.precision or "")
    # The constructor alone would ignore the dtype and build everything in float32 first.
    return model_class._from_config(config, **({"dtype": dtype} if dtype else {}))  # noqa: SLF001


def _read_config(transformers: Any, folder: Path) -> tuple[Any, Any]:
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        model_type = raw.get("model_type")
    except (ValueError, AttributeError, OSError) as error:
        raise InputError(
            f"{path} is not a Hugging Face configuration.",
            id="hf-config",
            cause=str(error),
            remedy="Give the folder that save_pretrained wrote.",
        ) from error
    names = raw.get("architectures") or []
    own = class_named(transformers, names[0]) if names else None
    if model_type not in transformers.CONFIG_MAPPING or (names and own is None):
        raise _not_in_library(folder, raw, names)
    try:
        config = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # a damaged configuration makes it raise anything
        raise _failed(str(path), error) from error
    return config, own or architecture_of(transformers, config)


def _not_in_library(folder: Path, raw: dict[str, Any], names: list[str]) -> InputError:
    architecture = names[0] if names else raw.get("model_type")
    if "auto_map" in raw:
        return InputError(
            f"{folder} needs code that came with the model, which is not run.",
            id="hf-remote-code",
            cause=f"transformers has no {architecture}; the config's auto_map points to Python "
            "files.",
            remedy="Read that code; if you trust it, build the model in a file.py:factory.",
        )
    return InputError(
        f"transformers has no architecture {architecture!r}, which {folder} asks for.",
        id="hf-unknown",
        remedy="Install the transformers release that wrote the folder, or use a file.py:factory.",
    )


def _from_files(model_class: Any, folder: Path, request: TargetRequest) -> torch.nn.Module:
    dtype = DTYPES.get(request.precision or "")
    options: dict[str, Any] = {"dtype": dtype} if dtype else {}
    try:
        with torch.device(request.device):
            model, loading = model_class.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                output_loading_info=True,
                **options,
            )
    except Exception as error:  # damaged weights make it raise anything
        raise _failed(str(folder), error) from error
    absent = [*loading["missing_keys"], *(str(key) for key in loading["mismatched_keys"])]
    if absent:
        raise InputError(
            f"The weights in {folder} do not fill {model_class.__name__}.",
            id="weights-mismatch",
            cause=f"{len(absent)} missing or of another shape: {', '.join(sorted(absent)[:3])}.",
            remedy="The config's architectures must name the class that was saved.",
        )
    trained: torch.nn.Module = model
    return trained


def _failed(name: str, error: Exception) -> InputError:
    if isinstance(error, InputError):
        return error
    untrusted = "weights_only" in str(error) or "Weights only load failed" in str(error)
    return BuildError(
        f"transformers could not load {name}: {type(error).__name__}.",
        id="weights-untrusted" if untrusted else "hf-load-failed",
        cause=next(iter(str(error).splitlines()), ""),
        remedy="Save the weights as .safetensors."
        if untrusted
        else "If the default configuration lacks something, set it: hf:NAME?key=value.",
    )


def _weight_files(folder: Path) -> tuple[Path, ...]:
    """Return the weight files of a folder; where both formats lie there, safetensors is read."""
    for suffix in WEIGHT_SUFFIXES:
        files = sorted(
            path
            for path in folder.glob(f"*{suffix}")
            if path.name.startswith(("model", "pytorch_model"))
        )
        if files:
            return tuple(files)
    return ()


def _target(
    request: TargetRequest, model: torch.nn.Module, weights: str, files: tuple[Path, ...]
) -> Target:
    return Target(
        model=model,
        inputs=example_inputs(model, request),
        spec=request.spec,
        kind="huggingface",
        name=type(model).__name__,
        weights=weights,
        files=files,
    )
