"""Which modules a watch of generation times: the model within its wrappers, and its encoders."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch._dynamo.eval_frame import OptimizedModule

from torchgauge.errors import InputError

MODALITIES = ("image", "video", "audio")


def model_of(source: Any) -> nn.Module:
    """Return the model itself, or that of a pipeline. Raises InputError `not-a-module`."""
    for candidate in (source, getattr(source, "model", None)):
        if isinstance(candidate, nn.Module):
            return candidate
    raise InputError(
        f"A {type(source).__name__} is not a model.",
        id="not-a-module",
        cause="Generation is watched on a torch.nn.Module, or on a pipeline that has one.",
        remedy="Give the model itself.",
    )


def nested_models(model: nn.Module) -> tuple[nn.Module, ...]:
    """Return a model and what it wraps, outermost first: compiled, parallel, with adapters."""
    models: list[nn.Module] = []
    inner: Any = model
    while isinstance(inner, nn.Module) and inner not in models:
        models.append(inner)
        inner = _wrapped_by(inner)
    return tuple(models)


def is_compiled(model: nn.Module) -> bool:
    """Return whether a model is what `torch.compile(model)` returns."""
    return isinstance(model, OptimizedModule)


def _wrapped_by(model: nn.Module) -> Any:
    if is_compiled(model):
        return model.get_submodule("_orig_mod")
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        return model.module
    base_model = getattr(type(model), "get_base_model", None)  # PEFT's
    return _generating_part(model) if base_model is None else base_model(model)


def _generating_part(model: nn.Module) -> nn.Module | None:
    """Return the part that a model leaves generation to; None where it is not a single one."""
    if is_standard(getattr(type(model), "generate", None)):
        return None
    parts: dict[str, nn.Module] = {}
    for name, part in model.named_modules():
        within = any(name.startswith(f"{outer}.") for outer in parts)
        if name and not within and is_standard(getattr(type(part), "generate", None)):
            parts[name] = part
    return next(iter(parts.values())) if len(parts) == 1 else None


def is_standard(generate: Any) -> bool:
    """Return whether a function is transformers' own `generate`: it returns ids, then new ones."""
    return getattr(generate, "__module__", "") == "transformers.generation.utils"


def without_wrapper(model: Any) -> Any:
    """Return the model that a parallel wrapper without a `generate()` holds; others as they are."""
    parallel = isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel)
    return model.module if parallel else model


def encoders_of(models: tuple[nn.Module, ...]) -> tuple[nn.Module, ...]:
    """Return the encoders that `generate()` calls before a model or one within it."""
    encoders = dict.fromkeys(encoder for model in models for encoder in _encoders_of(model))
    return tuple(encoder for encoder in encoders if encoder not in models)


def _encoders_of(model: nn.Module) -> tuple[nn.Module, ...]:
    """Return the encoders of one model, as transformers names them."""
    get_encoder = getattr(model, "get_encoder", None)
    config = getattr(model, "config", None)
    if get_encoder is None or config is None:
        return ()
    return tuple(dict.fromkeys(_encoders(model, get_encoder, config)))


def _encoders(model: nn.Module, get_encoder: Any, config: Any) -> Iterator[nn.Module]:
    modalities = (None,) if getattr(config, "is_encoder_decoder", False) else ()
    for modality in (*modalities, *MODALITIES):
        with contextlib.suppress(Exception):  # another library's: without it nothing is timed apart
            encoder = get_encoder() if modality is None else get_encoder(modality=modality)
            if isinstance(encoder, nn.Module) and encoder is not model:
                yield encoder
