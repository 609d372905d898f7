"""Which modules a watch of generation times: the model within its wrappers, and its encoders.

The arguments of some forwards of one generation: copied before each, with the cache as it was.

They are what work is counted on, and what trees and memory are measured on, one forward at a time.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from torchgauge import torch_private
from torchgauge.errors import InputError
from torchgauge.records.generation.call import GenerationCall
from torchgauge.signals import restoring
from torchgauge.targets.inputs.inputs import Inputs

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
    return isinstance(model, torch_private.OptimizedModule)


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


_REPLACED = "_compiled_call_impl"
_CACHES = ("past_key_values", "cache_params")


class CapturedForward(NamedTuple):
    """A forward that can be run again.

    Attributes:
        module: The model, or its encoder.
        inputs: Its arguments, copied before it ran.
        cached: Positions in its cache before it.
    """

    module: nn.Module
    inputs: Inputs
    cached: int

    @property
    def cache(self) -> Any:
        """The cache among its arguments; None without one."""
        return cache_in(self.inputs.kwargs)


class CapturedStages(NamedTuple):
    """The forwards that a cell's work is of.

    Attributes:
        prefill: All before the first token: the encoder's, and each chunk of the prompt.
        first: The first decode step; None of one token.
        last: The last decode step; None of one token.
    """

    prefill: tuple[CapturedForward, ...]
    first: CapturedForward | None
    last: CapturedForward | None


def cache_in(arguments: Mapping[str, Any]) -> Any:
    """Return the cache among the arguments of a forward, or among its outputs."""
    return next((arguments[name] for name in _CACHES if arguments.get(name) is not None), None)


def captured_stages(
    model: nn.Module, generate: Callable[[], object], call: GenerationCall
) -> CapturedStages:
    """Generate once more, and return the forwards of the stages, which `call` was watched to have.

    The copies are of ordinary tensors, not of inference mode's, which could be written to there
    alone.
    """
    columns = zip(call.forwards.stage, call.forwards.cached, strict=True)
    own_forwards = [(stage, cached) for stage, cached in columns if stage != "draft"]
    stages = [stage for stage, _ in own_forwards]
    prefill = [index for index, stage in enumerate(stages) if stage in ("encoder", "prefill")]
    decode = [index for index, stage in enumerate(stages) if stage == "decode"]
    to_copy = {index: own_forwards[index][1] for index in (*prefill, *decode[:1], *decode[-1:])}
    captured: dict[int, CapturedForward] = {}
    # What is compiled would be compiled again with a capture in it.
    models = (model,) if is_compiled(model) else nested_models(model)
    with (
        torch.inference_mode(mode=False),
        torch.no_grad(),
        _capturing((*models, *encoders_of(models)), to_copy, captured),
    ):
        generate()
    return CapturedStages(
        tuple(captured[index] for index in prefill if index in captured),
        captured.get(decode[0]) if decode else None,
        captured.get(decode[-1]) if decode else None,
    )


def whole_prefill(forwards: tuple[CapturedForward, ...]) -> CapturedForward | None:
    """Return the prefill as one forward: with an encoder's part in it, else the last chunk."""
    if not forwards:
        return None
    last = forwards[-1]
    encoder = next((forward for forward in forwards if forward.module is not last.module), None)
    if encoder is None:
        return last
    kwargs = {**last.inputs.kwargs, **encoder.inputs.kwargs}
    # The model calls its encoder itself where its outputs are not among the arguments.
    for name in ("encoder_outputs", "return_dict", "output_attentions", "output_hidden_states"):
        kwargs.pop(name, None)
    return CapturedForward(last.module, Inputs(encoder.inputs.args, kwargs), last.cached)


@restoring
def _capturing(
    modules: tuple[nn.Module, ...], to_copy: Mapping[int, int], captured: dict[int, CapturedForward]
) -> Iterator[None]:
    """Copy arguments until the block ends; `to_copy` is a forward's number → positions cached."""
    before = [(vars(module), vars(module).get(_REPLACED)) for module in modules]
    state = _Count()
    for module, (attributes, replaced) in zip(modules, before, strict=True):
        call = replaced or module._call_impl  # noqa: SLF001 - what nn.Module calls
        attributes[_REPLACED] = _capture(module, call, state, to_copy, captured)
    try:
        yield
    finally:
        for attributes, replaced in before:
            if replaced is None:
                attributes.pop(_REPLACED, None)
            else:
                attributes[_REPLACED] = replaced


class _Count:
    def __init__(self) -> None:
        self.forwards = 0
        self.inside = False


def _capture(
    module: nn.Module,
    call: Callable[..., Any],
    state: _Count,
    to_copy: Mapping[int, int],
    captured: dict[int, CapturedForward],
) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        if state.inside:
            return call(*args, **kwargs)
        number, state.forwards, state.inside = state.forwards, state.forwards + 1, True
        try:
            if number in to_copy:
                captured[number] = _copied(module, args, kwargs, to_copy[number])
            return call(*args, **kwargs)
        finally:
            state.inside = False

    return forward


def _copied(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], cached: int
) -> CapturedForward:
    # What belongs to the model is not the call's to copy.
    memo: dict[int, Any] = {id(part): part for part in (module, getattr(module, "config", None))}
    args, kwargs = copy.deepcopy((args, kwargs), memo)
    return CapturedForward(module, Inputs(args, kwargs), cached)
