"""Time every forward of a model that generates, without a change to the program that calls it.

torch calls `_compiled_call_impl` of a module, where it is set, in place of the module's own call.
Here that is a function that reads the clock before and after it: 1.5 µs a forward, where two hooks
take 3. It lies outside of whatever is compiled, and torch leaves it out of copies and pickles.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from torchgauge.signals import restoring

Role = Literal["model", "encoder", "assistant"]

_TOKENS = ("decoder_input_ids", "decoder_inputs_embeds", "input_ids", "inputs_embeds")
_CACHES = ("past_key_values", "cache_params", "past", "cache", "kv_cache", "state")
_REPLACED = "_compiled_call_impl"


class TimedForward(NamedTuple):
    """One forward, and what its arguments say of it.

    Attributes:
        role: Whose it is.
        begin: Nanoseconds of the clock before it.
        end: Nanoseconds after it, also where it raised.
        shape: That of its tokens, or of their embeddings; empty where no argument has these.
        cached: Positions in its cache before it; None where the cache does not say.
        cache: The identity of its cache; None without one.
        events: The device's events before and after; None on a CPU.
    """

    role: Role
    begin: int
    end: int
    shape: tuple[int, ...]
    cached: int | None
    cache: int | None
    events: tuple[Any, Any] | None


class ThreadForwards(threading.local):
    """What one thread has run.

    Attributes:
        forwards: Its forwards in order.
        inside: Whether one is running: those that it calls itself are parts of it.
        cache: The cache of the last forward.
    """

    def __init__(self) -> None:
        self.forwards: list[TimedForward] = []
        self.inside = False
        self.cache: Any = None


@restoring
def timed(module: nn.Module, role: Role, of_thread: ThreadForwards) -> Iterator[None]:
    """Append each forward of the module to those of the thread that runs it, until the block ends.

    `begin` is read after its arguments were looked at, `end` first thing after it.
    """
    attributes = module.__dict__
    replaced = attributes.get(_REPLACED)
    attributes[_REPLACED] = _timing(replaced or module._call_impl, role, of_thread, _events(module))
    try:
        yield
    finally:
        if replaced is None:
            attributes.pop(_REPLACED, None)
        else:
            attributes[_REPLACED] = replaced


def _timing(
    call: Callable[..., Any],
    role: Role,
    of_thread: ThreadForwards,
    event: Callable[[], Any] | None,
) -> Callable[..., Any]:
    clock, compiling = time.perf_counter_ns, torch.compiler.is_compiling

    def timed_call(*args: Any, **kwargs: Any) -> Any:
        if compiling() or of_thread.inside:
            return call(*args, **kwargs)
        cache = kwargs.get("past_key_values")
        if cache is None:
            cache = _first(kwargs, _CACHES)
        cached = None if cache is None else positions(cache)
        shape = _shape(args, kwargs)
        of_thread.inside = True
        of_thread.cache = cache
        before = None if event is None else event()
        begin = clock()
        try:
            return call(*args, **kwargs)
        finally:
            end = clock()
            of_thread.inside = False
            events = None if event is None else (before, event())
            identity = None if cache is None else id(cache)
            of_thread.forwards.append(
                TimedForward(role, begin, end, shape, cached, identity, events)
            )

    return timed_call


def _events(module: nn.Module) -> Callable[[], Any] | None:
    """Return what records an event on the stream of the module's GPU; None without one."""
    parameter = next(module.parameters(), None)
    if parameter is None or parameter.device.type != "cuda":
        return None
    device = parameter.device

    def event() -> Any:
        if torch.cuda.is_current_stream_capturing():
            return None
        recorded = torch.cuda.Event(enable_timing=True)
        recorded.record(torch.cuda.current_stream(device))
        return recorded

    return event


def _shape(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    tokens = _first(kwargs, _TOKENS)
    if tokens is None:
        tokens = next((value for value in args if isinstance(value, torch.Tensor)), None)
    shape: tuple[int, ...] = () if tokens is None else tokens.shape
    return shape


def _first(kwargs: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        value = kwargs.get(name)
        if value is not None:
            return value
    return None


def positions(cache: Any) -> int | None:
    """Return how many positions a cache holds; None where only its tensors' content would say."""
    try:
        length = cache.get_seq_length()
    except (AttributeError, TypeError, ValueError, IndexError):
        return _positions_of_tensors(cache)
    return length if type(length) is int else None


def _positions_of_tensors(cache: Any) -> int | None:
    """Return the positions of keys and values by layer, [batch, heads, positions, size]."""
    while isinstance(cache, list | tuple) and cache:
        cache = cache[0]
    return cache.shape[-2] if isinstance(cache, torch.Tensor) and cache.dim() == 4 else None
