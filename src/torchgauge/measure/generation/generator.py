"""Calls that generate: a model's own `generate()`, or greedy decoding of a model without one.

Every call makes as many tokens as requested: no token ends it. What is set for that is set on
copies of the model's generation configuration, which the caller's hygiene takes away again.
"""

from __future__ import annotations

import copy
import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import nn

from torchgauge.errors import InputError
from torchgauge.measure.generation.generation_options import GenerationOptions
from torchgauge.measure.generation.prompts import fresh, is_encoder_decoder, main_input, takes
from torchgauge.measure.generation.watched_modules import nested_models
from torchgauge.targets.hygiene import module_of

_LENGTH_OF_STATIC = "_previous_max_cache_length"
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "typical_p")


class Generator(Protocol):
    """What generates from inputs."""

    def ready(self, inputs: Mapping[str, Any], cache_kind: str) -> Callable[[], object]:
        """Return the call that generates from the inputs, with everything set for it."""


def generator(model: Any, assistant: Any, options: GenerationOptions) -> Generator:
    """Return how the model generates. Raises InputError `no-generation` where it does not."""
    if module_of(model) is None:
        raise _no_generation(model, "It is not a torch.nn.Module.")
    if callable(getattr(model, "generate", None)):
        if hasattr(model, "generation_config"):
            return TransformersGenerate(model, assistant, options)
        return OwnGenerate(model, options)
    if hasattr(model, "can_generate"):
        kind = type(model).__name__
        raise _no_generation(model, f"{kind} is a base class without a head that predicts tokens.")
    if takes(model, "past_key_values") and takes(model, "use_cache"):
        return GreedyLoop(model, options)
    raise _no_generation(model, "It has no generate(), and its forward takes no cache.")


class TransformersGenerate:
    """Calls `generate()` of a model of transformers, greedily or with beams."""

    def __init__(self, model: Any, assistant: Any, options: GenerationOptions) -> None:
        self._model, self._assistant, self._options = model, assistant, options
        self._config = model.generation_config
        self._assistant_config = getattr(assistant, "generation_config", None)

    def ready(self, inputs: Mapping[str, Any], cache_kind: str) -> Callable[[], object]:
        """Return the call; a static cache is as long as this call needs it, not an earlier one."""
        logging.getLogger("transformers").setLevel(logging.ERROR)
        config = self._configured(cache_kind)
        for model in nested_models(self._model):  # with adapters that of the model within counts
            if "generation_config" in vars(model):
                model.generation_config = config
        vars(self._model).pop(_LENGTH_OF_STATIC, None)
        arguments = fresh(inputs)
        if self._assistant is not None:
            # A call adapts in it how many tokens the next one drafts.
            self._assistant.generation_config = copy.deepcopy(self._assistant_config)
            arguments["assistant_model"] = self._assistant
        return lambda: self._model.generate(**arguments)  # a watch replaces it meanwhile

    def _configured(self, cache_kind: str) -> Any:
        config, options = copy.deepcopy(self._config), self._options
        config.max_new_tokens, config.max_length = options.new_tokens, None
        config.min_length, config.min_new_tokens = None, None
        config.eos_token_id, config.forced_eos_token_id = None, None
        config.do_sample, config.num_beams, config.num_return_sequences = False, options.beams, 1
        for name in _SAMPLING:  # they would be warned of
            setattr(config, name, None)
        if config.pad_token_id is None:
            config.pad_token_id = 0
        if is_encoder_decoder(self._model) and config.decoder_start_token_id is None:
            config.decoder_start_token_id = config.pad_token_id
        config.use_cache = cache_kind != "none"
        if cache_kind in ("static", "none"):
            config.cache_implementation = "static" if cache_kind == "static" else None
        return config


class OwnGenerate:
    """Calls a `generate()` that is not of transformers; what it caches is its own affair."""

    def __init__(self, model: Any, options: GenerationOptions) -> None:
        self._model, self._options = model, options
        self._parameters = inspect.signature(model.generate).parameters
        if "max_new_tokens" not in self._parameters:
            raise _no_generation(model, "Its generate() takes no max_new_tokens.")
        if options.beams > 1:
            raise _no_generation(model, "Its own generate() is called without beams.")

    def ready(self, inputs: Mapping[str, Any], cache_kind: str) -> Callable[[], object]:
        """Return the call with those arguments of ours that it takes."""
        _only_dynamic(cache_kind, "The model's own generate() chooses its cache.")
        arguments = {"max_new_tokens": self._options.new_tokens, "do_sample": False}
        options = {name: arguments[name] for name in arguments if name in self._parameters}
        ids = inputs[main_input(self._model)]
        return lambda: self._model.generate(ids, **options)


class GreedyLoop:
    """Decodes greedily with a model that takes (ids, past_key_values=…, use_cache=True)."""

    def __init__(self, model: Any, options: GenerationOptions) -> None:
        self._model, self._options = model, options
        if options.beams > 1:
            raise _no_generation(model, "It has no generate(), which beams need.")

    def ready(self, inputs: Mapping[str, Any], cache_kind: str) -> Callable[[], object]:
        """Return the loop over forwards."""
        if cache_kind == "static":
            _only_dynamic(cache_kind, "A model without generate() makes its cache itself.")
        ids = inputs[main_input(self._model)]
        loop = self._with_cache if cache_kind == "dynamic" else self._without_cache
        return functools.partial(loop, ids)

    def _with_cache(self, ids: torch.Tensor) -> None:
        tokens, cache = ids, None
        for _ in range(self._options.new_tokens):
            outputs = self._model(tokens, past_key_values=cache, use_cache=True)
            logits, cache = _logits(self._model, outputs), _cache(self._model, outputs)
            tokens = logits[:, -1:].argmax(dim=-1)

    def _without_cache(self, ids: torch.Tensor) -> None:
        for _ in range(self._options.new_tokens):
            logits = _logits(self._model, self._model(ids, use_cache=False))
            ids = torch.cat([ids, logits[:, -1:].argmax(dim=-1)], dim=-1)


def _logits(model: nn.Module, outputs: Any) -> torch.Tensor:
    logits = outputs[0] if isinstance(outputs, tuple | list) else getattr(outputs, "logits", None)
    if logits is None and isinstance(outputs, Mapping):
        logits = outputs.get("logits")
    if not isinstance(logits, torch.Tensor) or logits.dim() != 3:
        raise _no_generation(model, "Its outputs have no logits of shape (batch, tokens, words).")
    return logits


def _cache(model: nn.Module, outputs: Any) -> Any:
    cache = getattr(outputs, "past_key_values", None)
    if cache is None and isinstance(outputs, Mapping):
        cache = outputs.get("past_key_values")
    if cache is None and isinstance(outputs, tuple | list) and len(outputs) > 1:
        cache = outputs[1]
    if cache is None:
        raise _no_generation(model, "Its outputs have no past_key_values.")
    return cache


def _only_dynamic(cache_kind: str, cause: str) -> None:
    if cache_kind != "dynamic":
        raise InputError(
            f"The model cannot be given a cache of another kind: '{cache_kind}'.",
            id="cache-unsupported",
            cause=cause,
            remedy='Leave cache at "dynamic", which is the model\'s own.',
        )


def _no_generation(model: Any, cause: str) -> InputError:
    return InputError(
        f"{type(model).__name__} does not generate tokens.",
        id="no-generation",
        cause=cause,
        remedy="Give a model with a generate(), such as AutoModelForCausalLM makes, or one whose "
        "forward takes (ids, past_key_values=…, use_cache=True) and returns logits and "
        "past_key_values.",
    )
