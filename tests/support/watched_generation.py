"""Compare a generation with and without a watch, and its record with what is known of it."""

from __future__ import annotations

import inspect
import io
import pickle
from typing import Any

import torch
from tests.support.generating_models import PROMPT, GeneratingModel

from torchgauge.measure.generation.call_watch import CallWatch
from torchgauge.records.generation.call import GenerationCall

NEW_TOKENS = 5
MODES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "temperature": 0.8, "top_k": 20},
    "beams": {"do_sample": False, "num_beams": 3},
    "static": {"do_sample": False, "cache_implementation": "static"},
    "chunked": {"do_sample": False, "prefill_chunk_size": 4},
}


class Outcome:
    """What a `generate()` with a seed returned or raised, and what it left behind."""

    def __init__(self, made: GeneratingModel, mode: str) -> None:
        torch.manual_seed(3)
        self.error: Exception | None = None
        self.tokens: torch.Tensor | None = None
        self.cache: Any = None
        options = {"max_new_tokens": NEW_TOKENS, "return_dict_in_generate": True, **MODES[mode]}
        try:
            output = made.model.generate(**made.inputs, **options)
        except Exception as error:  # noqa: BLE001 - compared
            self.error = error
        else:
            self.tokens = output.sequences
            names = ("past_key_values", "cache_params", "state")
            caches = [output.get(name) for name in names]
            self.cache = next((cache for cache in caches if cache is not None), None)
        self.random = torch.get_rng_state()

    def same_as(self, other: Outcome) -> bool:
        if self.error is not None:
            same_text = str(self.error) == str(other.error)
            return type(self.error) is type(other.error) and same_text
        assert self.tokens is not None
        assert other.tokens is not None
        caches = zip(tensors_of(self.cache), tensors_of(other.cache), strict=True)
        return (
            torch.equal(self.tokens, other.tokens)
            and all(torch.equal(mine, theirs) for mine, theirs in caches)
            and torch.equal(self.random, other.random)
        )


def tensors_of(cache: Any) -> list[torch.Tensor]:
    """Return the tensors that pickle comes across: a way of its own through the objects."""
    tensors: list[torch.Tensor] = []

    class _Finder(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                tensors.append(value)
                return len(tensors)
            return "stream" if isinstance(value, torch.Stream) else None

    _Finder(io.BytesIO()).dump(cache)
    return tensors


def storage_bytes(cache: Any) -> int:
    """Return the bytes of the storages of all tensors but counters."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in tensors_of(cache)
        if tensor.dim()
    }
    return sum(storages.values())


def surroundings(model: Any) -> dict[str, Any]:
    """Return what a watch must leave as it was."""
    return {
        "attributes": {name: set(vars(module)) for name, module in model.named_modules()},
        "hooks": [
            len(hooks)
            for module in model.modules()
            for hooks in (module._forward_hooks, module._forward_pre_hooks)
        ],
        "calls": [module._compiled_call_impl for module in model.modules()],
        "signatures": (inspect.signature(model.generate), inspect.signature(model.forward)),
        "generate": model.generate,
        "configurations": (model.config.to_dict(), model.generation_config.to_dict()),
        "training": model.training,
    }


def check_watched(made: GeneratingModel, mode: str) -> bool:
    """Check one way to generate with a model; return whether the model itself supports it."""
    bare = Outcome(made, mode)
    before = surroundings(made.model)
    with CallWatch(made.model) as watch:
        within = inspect.signature(made.model.generate), inspect.signature(made.model.forward)
        watched = Outcome(made, mode)
    assert watched.same_as(bare)
    assert within == before["signatures"]
    assert surroundings(made.model) == before
    (call,) = watch.calls
    if bare.error is not None:
        assert call.error == type(bare.error).__name__
        return False
    check_counts(call, made, beams=MODES[mode].get("num_beams", 1))
    cache = watched.cache
    if cache is not None and made.returns_cache:
        assert call.cache is not None
        assert call.cache.held == storage_bytes(cache) == sum(call.cache.elements.values())
    return True


def check_counts(call: GenerationCall, made: GeneratingModel, beams: int = 1) -> None:
    """Check the stages of a call by token counts that are known beforehand."""
    forwards = call.forwards
    batch = next(iter(made.inputs.values())).shape[0]
    prefill, decode = forwards.indices("prefill"), forwards.indices("decode")
    assert (call.batch, call.sequences) == (batch, batch * beams)
    assert call.new_tokens == NEW_TOKENS
    assert len(forwards.indices("encoder")) == made.encoders
    assert sum(forwards.tokens[index] for index in prefill) == made.start
    assert len(decode) == NEW_TOKENS - 1
    assert prefill[-1] < decode[0]
    positions = [forwards.cached[index] + forwards.tokens[index] for index in decode]
    assert positions == [made.start + step for step in range(1, NEW_TOKENS)]
    assert call.emitted == (1,) * len(decode)
    if made.start == PROMPT:
        assert call.prompt == PROMPT
    assert 0 < call.first_token < call.duration
    parts = sum(forwards.duration) + sum(call.gaps) + forwards.begin[0]
    assert abs(parts - call.duration) < 1e-6
