"""Watch a model's `generate()`: when it begins and ends, what it is given and what it returns."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from torchgauge.measure.generation.cache_layout import CacheLayout, cache_layout
from torchgauge.measure.generation.forwards import Ongoing, ThreadForwards, first_of, timing
from torchgauge.measure.generation.watched_modules import is_standard
from torchgauge.signals import restoring

_COMPILED = "get_compiled_call"
_FEATURES = ("input_features", "input_values", "pixel_values")
_DRAFTED = ("assistant_model", "prompt_lookup_num_tokens", "assistant_early_exit")


@dataclasses.dataclass(slots=True)
class GenerateCall:
    """One `generate()`, as it was seen; of tensors only the shapes are kept.

    Attributes:
        begin: Nanoseconds of the clock.
        end: Nanoseconds of the clock.
        forwards: Those of its thread meanwhile, as tuples with the fields of `TimedForward`.
        ids: The shape of the prompt's ids; None where there were none.
        inputs: The shape of what it was given in place of ids; None where there were ids.
        mask: The length of the attention mask; None without one.
        start: Tokens that the decoder of an encoder–decoder was given.
        encoder_decoder: Whether an encoder computes the prompt.
        chunk: Tokens of a chunk that the prompt is computed in; None where it is whole, and where
            drafts are checked, with which no prompt is divided.
        standard: Whether its output is that of transformers' `generate`: the ids, then new tokens.
        output: The shape of what it returned.
        cache: The layout of the last forward's cache; None without one.
        error: What ended it; None where it returned.
        inner: How often a part of the model was left to generate in it.
    """

    begin: int = 0
    end: int = 0
    forwards: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    ids: tuple[int, ...] | None = None
    inputs: tuple[int, ...] | None = None
    mask: int | None = None
    start: int = 1
    encoder_decoder: bool = False
    chunk: int | None = None
    standard: bool = False
    output: tuple[int, ...] | None = None
    cache: CacheLayout | None = None
    error: BaseException | None = None
    inner: int = 0


@restoring
def watched(
    module: nn.Module,
    of_thread: ThreadForwards,
    note: Callable[[GenerateCall], None],
    assisted: Callable[[Any], contextlib.AbstractContextManager[None]],
) -> Iterator[None]:
    """Pass each outermost `generate()` of a thread to `note` when it ends, until the block ends.

    `assisted` is entered with the draft model of each, or with None.
    """
    attributes = module.__dict__
    replaced = attributes.get("generate")
    generate = _watching(module, replaced, of_thread, note, assisted)
    attributes["generate"] = generate
    try:
        yield
    finally:
        if attributes.get("generate") is generate:
            if replaced is None:
                del attributes["generate"]
            else:
                attributes["generate"] = replaced


def _watching(
    module: nn.Module,
    replaced: Callable[..., Any] | None,
    of_thread: ThreadForwards,
    note: Callable[[GenerateCall], None],
    assisted: Callable[[Any], contextlib.AbstractContextManager[None]],
) -> Callable[..., Any]:
    kind: Any = type(module)
    function: Any = kind.generate if replaced is None else replaced
    standard = is_standard(function)
    encoder_decoder = bool(getattr(getattr(module, "config", None), "is_encoder_decoder", False))

    @functools.wraps(function)
    def generate(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        call = functools.partial(function, self) if replaced is None else replaced
        if self is not module:  # a copy of the model, which has this as its own
            return call(*args, **kwargs)
        ongoing = of_thread.ongoing
        if ongoing.generating:
            with _drafting(ongoing, kwargs):
                output = call(*args, **kwargs)
                if standard and not ongoing.drafting:
                    _note_inner(ongoing.generating, module, args, kwargs, output)
                return output
        with assisted(kwargs.get("assistant_model")), _noted(ongoing, note) as noted:
            noted.standard, noted.encoder_decoder = standard, encoder_decoder
            _note_inputs(noted, module, args, kwargs)
            noted.begin = time.perf_counter_ns()
            output = call(*args, **kwargs)
            noted.end = time.perf_counter_ns()
            if not noted.inner:
                noted.output = _sequences_shape(output)
            return output

    if replaced is None:
        return types.MethodType(generate, module)
    return functools.wraps(replaced)(functools.partial(generate, module))


@contextlib.contextmanager
def _drafting(ongoing: Ongoing, kwargs: dict[str, Any]) -> Iterator[None]:
    """Take the forwards for drafts where the model is its own assistant."""
    config = kwargs.get("generation_config")
    before, ongoing.drafting = ongoing.drafting, bool(getattr(config, "is_assistant", False))
    try:
        yield
    finally:
        ongoing.drafting = before


@contextlib.contextmanager
def _noted(ongoing: Ongoing, note: Callable[[GenerateCall], None]) -> Iterator[GenerateCall]:
    """Collect the thread's forwards in a call of their own, and note it, also where it raises."""
    ongoing.release()
    forwards, let_go = ongoing.forwards, ongoing.let_go
    noted = GenerateCall()
    try:
        ongoing.generating, ongoing.inside = noted, False
        ongoing.forwards, ongoing.let_go = noted.forwards, None
        yield noted
    except BaseException as error:  # Ctrl-C too: it is noted and goes on
        noted.error = error
        raise
    finally:
        if not noted.end:
            noted.end = time.perf_counter_ns()
        ongoing.generating, ongoing.inside = None, False
        noted.cache = cache_layout(ongoing.held["model"].cache)
        ongoing.release()
        ongoing.forwards, ongoing.let_go = forwards, let_go
        if noted.begin:
            note(noted)


def _note_inner(
    noted: GenerateCall,
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    output: Any,
) -> None:
    """Note the `generate()` of a part, which says more of the tokens than that around it."""
    noted.inner += 1
    noted.standard = noted.inner == 1  # several make one answer of their own
    _note_inputs(noted, module, args, kwargs)
    noted.output = _sequences_shape(output)


def _sequences_shape(output: Any) -> Any:
    return getattr(getattr(output, "sequences", output), "shape", None)


def _note_inputs(
    noted: GenerateCall, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    inputs = args[0] if args else first_of(kwargs, ("inputs", "input_ids", "inputs_embeds"))
    shape = getattr(inputs, "shape", None)
    if isinstance(inputs, torch.Tensor) and not inputs.is_floating_point():
        noted.ids = shape
    elif shape is not None:
        noted.inputs = shape
    else:
        noted.inputs = getattr(first_of(kwargs, _FEATURES), "shape", None)
    mask: tuple[int, ...] = getattr(kwargs.get("attention_mask"), "shape", ())
    noted.mask = mask[1] if len(mask) == 2 else None
    start: tuple[int, ...] = getattr(kwargs.get("decoder_input_ids"), "shape", ())
    noted.start = start[1] if len(start) == 2 else 1
    noted.chunk = _chunk(module, kwargs)


def _chunk(module: nn.Module, kwargs: dict[str, Any]) -> int | None:
    own = getattr(module, "generation_config", None)
    passed = kwargs.get("generation_config")

    def option(name: str) -> Any:
        values = (kwargs.get(name), getattr(passed, name, None), getattr(own, name, None))
        return next((value for value in values if value is not None), None)

    size = option("prefill_chunk_size")
    drafted = any(option(name) is not None for name in _DRAFTED)
    return size if isinstance(size, int) and size > 0 and not drafted else None


@restoring
def compiled_calls_timed(
    module: nn.Module, of_thread: ThreadForwards, hidden: Sequence[nn.Module]
) -> Iterator[None]:
    """Time what the module's `get_compiled_call` returns, from outside, until the block ends.

    It is compiled from the module's own call: the timers of the modules `hidden` are not in it.
    """
    attributes = module.__dict__
    replaced = attributes.get(_COMPILED)
    function: Any = type(module).get_compiled_call  # type: ignore[attr-defined]

    @functools.wraps(function)
    def get_compiled_call(self: nn.Module, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        compiled: Callable[..., Any] = function(self, *args, **kwargs)
        if self is not module or compiled == self.__call__:
            return compiled
        return timing(compiled, module, "model", of_thread, hidden)

    if replaced is None:
        attributes[_COMPILED] = types.MethodType(get_compiled_call, module)
    try:
        yield
    finally:
        if replaced is None:
            attributes.pop(_COMPILED, None)
