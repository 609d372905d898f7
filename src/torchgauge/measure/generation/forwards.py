"""Time every forward of a model that generates, without a change to the program that calls it.

torch calls `_compiled_call_impl` of a module, where it is set, in place of the module's own call.
Here that is a function that reads the clock before and after it. It lies outside of whatever is
compiled, and torch leaves it out of copies and pickles.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from torchgauge.signals import restoring

Role = Literal["model", "encoder", "assistant"]

_TOKENS = ("decoder_inputs_embeds", "inputs_embeds")
_CACHES = ("cache_params", "past", "cache", "kv_cache", "state")
_REPLACED = "_compiled_call_impl"


class TimedForward(NamedTuple):
    """One forward, and what its arguments say of it.

    Attributes:
        role: Whose it is.
        begin: Nanoseconds of the clock before it.
        end: Nanoseconds after it, also where it raised.
        shape: That of its tokens, or of their embeddings; of an encoder that of its output; empty
            where none is known.
        cached: Positions in its cache before it, or a tensor with them; None where the cache does
            not say.
        cache: The identity of its cache; None without one.
        events: The device's events before and after; None on a CPU.
    """

    role: Role
    begin: int
    end: int
    shape: tuple[int, ...]
    cached: int | torch.Tensor | None
    cache: int | None
    events: tuple[Any, Any] | None


class Ongoing:
    """What one thread runs; plain tuples with the fields of `TimedForward` keep this fast.

    Attributes:
        forwards: Its forwards since the list was last replaced, in order.
        inside: Whether one is running: those that it calls itself are parts of it.
        generating: Whether a `generate()` is running.
        drafting: Whether the model drafts tokens for itself in it.
        cache: The cache of the last forward.
        length: What returns the positions in that cache.
        let_go: Called with a forward's cache and its positions before the last one's is let go.
    """

    __slots__ = ("cache", "drafting", "forwards", "generating", "inside", "length", "let_go")

    def __init__(self) -> None:
        self.forwards: list[tuple[Any, ...]] = []
        self.inside = self.generating = self.drafting = False
        self.let_go: Callable[[Ongoing, Any, Any], None] | None = None
        self.cache: Any = None
        self.length: Callable[[], Any] = _no_length

    def hold(self, cache: Any) -> Any:
        """Keep a forward's cache in place of the last one's, and return its positions."""
        length = _length_of(cache)
        positions = length()
        if self.let_go is not None and self.cache is not None:
            self.let_go(self, cache, positions)
        self.cache, self.length = cache, length
        return positions


class ThreadForwards(threading.local):
    """The forwards of each thread: `ongoing` is that of the thread that asks.

    Every thread's is made by `make`, which may keep it.
    """

    def __init__(self, make: Callable[[], Ongoing] = Ongoing) -> None:
        self.ongoing = make()


@restoring
def timed(
    module: nn.Module, role: Role, of_thread: ThreadForwards, within: Sequence[nn.Module] = ()
) -> Iterator[None]:
    """Append each forward of the module to those of the thread that runs it, until the block ends.

    `begin` is read after its arguments were looked at, `end` first thing after it. While a forward
    runs, the modules `within` it have their own call back: what is compiled there must not see it.
    """
    attributes = module.__dict__
    replaced = attributes.get(_REPLACED)
    call = replaced or module._call_impl
    for inner in within:
        call = untimed(call, inner)
    timed_call = _timing(call, role, of_thread, _events(module))
    attributes[_REPLACED] = timed_call
    try:
        yield
    finally:
        if attributes.get(_REPLACED) is timed_call:  # else the program has compiled it meanwhile
            if replaced is None:
                del attributes[_REPLACED]
            else:
                attributes[_REPLACED] = replaced


def untimed(call: Callable[..., Any], module: nn.Module) -> Callable[..., Any]:
    """Return the call during which a module has its own call back, as where nothing is timed.

    A compiled graph depends on it: with another one there it would be compiled again.
    """
    attributes = module.__dict__

    def call_untimed(*args: Any, **kwargs: Any) -> Any:
        timed_call = attributes.pop(_REPLACED, None)
        try:
            return call(*args, **kwargs)
        finally:
            if timed_call is not None:
                attributes[_REPLACED] = timed_call

    return call_untimed


def _timing(
    call: Callable[..., Any],
    role: Role,
    of_thread: ThreadForwards,
    event: Callable[[], Any] | None,
) -> Callable[..., Any]:
    clock, compiling = time.perf_counter_ns, torch.compiler.is_compiling

    def timed_call(*args: Any, **kwargs: Any) -> Any:
        if compiling():
            return call(*args, **kwargs)
        ongoing = of_thread.ongoing
        if ongoing.inside:
            return call(*args, **kwargs)
        cache = kwargs.get("past_key_values")
        if cache is None:
            cache = first_of(kwargs, _CACHES)
        tokens = kwargs.get("decoder_input_ids")
        if tokens is None:
            tokens = kwargs.get("input_ids")
            if tokens is None:
                tokens = _tokens(args, kwargs)
        shape = getattr(tokens, "shape", ())
        if cache is ongoing.cache:
            cached = ongoing.length()
            if type(cached) is not int and shape[1:2] == (1,):
                cached = None  # of a step: as many as the forwards before it left
        else:
            cached = ongoing.hold(cache)
        if type(cached) is not int and cached is not None:
            cached = cached.clone()  # to read a tensor here would wait for its device
        result = begin = before = None
        try:
            ongoing.inside = True
            if event is not None:
                before = event()
            begin = clock()
            result = call(*args, **kwargs)
            return result
        finally:
            ongoing.inside = False
            end = clock()
            if begin is not None:  # None: Ctrl-C came just before it
                ongoing.forwards.append(
                    (
                        "assistant" if ongoing.drafting else role,
                        begin,
                        end,
                        _output_shape(result) if role == "encoder" else shape,
                        cached,
                        None if cache is None else id(cache),
                        None if event is None else (before, event()),
                    )
                )

    return timed_call


def _events(module: nn.Module) -> Callable[[], Any] | None:
    """Return what records an event on the stream of the module's GPU; None without one, or with
    several, which have no time in common.
    """
    devices = {parameter.device for parameter in module.parameters()}
    if len(devices) != 1 or (device := devices.pop()).type != "cuda":
        return None

    def event() -> Any:
        if torch.cuda.is_current_stream_capturing():
            return None
        recorded = torch.cuda.Event(enable_timing=True)
        recorded.record(torch.cuda.current_stream(device))
        return recorded

    return event


def _tokens(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    embeddings = first_of(kwargs, _TOKENS)
    if embeddings is not None:
        return embeddings
    return next((value for value in args if isinstance(value, torch.Tensor)), None)


def first_of(kwargs: dict[str, Any], names: Sequence[str]) -> Any:
    """Return the first argument among `names` that is given; None without."""
    for name in names:
        value = kwargs.get(name)
        if value is not None:
            return value
    return None


def _output_shape(output: Any) -> tuple[int, ...]:
    hidden = getattr(output, "last_hidden_state", output)
    while isinstance(hidden, list | tuple) and hidden:
        hidden = hidden[0]
    shape: tuple[int, ...] = getattr(hidden, "shape", ())
    return shape


def _no_length() -> None:
    return None


def _length_of(cache: Any) -> Callable[[], Any]:
    """Return what reads how many positions a cache holds, as an int or a tensor; never raises.

    Of transformers' caches that is the first layer's own method: theirs takes 0.5 µs longer.
    """
    if cache is None:
        return _no_length
    if isinstance(cache, list | tuple):
        return functools.partial(_positions_of_tensors, cache)
    layers = getattr(getattr(cache, "self_attention_cache", cache), "layers", None)
    for holder in (layers[0] if isinstance(layers, list) and layers else None, cache):
        length = getattr(holder, "get_seq_length", None)
        if length is None:
            continue
        try:
            positions = length()
        except Exception:  # noqa: BLE001 - another library's method, which need not be known here
            continue
        if isinstance(positions, int | torch.Tensor):
            return length  # type: ignore[no-any-return]
    return _no_length


def _positions_of_tensors(cache: Any) -> int | None:
    """Return the positions of keys and values by layer, [batch, heads, positions, size]."""
    while isinstance(cache, list | tuple) and cache:
        cache = cache[0]
    return cache.shape[-2] if isinstance(cache, torch.Tensor) and cache.dim() == 4 else None
