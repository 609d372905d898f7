"""The arguments of some forwards of one generation: copied before each, with the cache as it was.

They are what work is counted on, and what trees and memory are measured on, one forward at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from torchgauge.measure.generation.watched_modules import (
    encoders_of,
    is_compiled,
    nested_models,
)
from torchgauge.records.generation.call import GenerationCall
from torchgauge.signals import restoring
from torchgauge.targets.inputs.inputs import Inputs

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
    modules: tuple[nn.Module, ...],
    to_copy: Mapping[int, int],
    captured: dict[int, CapturedForward],
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
