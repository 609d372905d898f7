"""Time every forward of a model that generates, without a change to the program that calls it.

torch calls `_compiled_call_impl` of a module, where it is set, in place of the module's own call.
Here that is a function that reads the clock before and after it. It lies outside of whatever is
compiled, and torch leaves it out of copies and pickles.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import nn

from torchgauge.signals import restoring

Role = Literal["model", "encoder", "assistant"]

_TOKENS = ("decoder_inputs_embeds", "inputs_embeds")
_CACHES = ("cache_params", "past", "cache", "kv_cache", "state", "mems")
_CONTINUOUS = "transformers.generation.continuous_batching"
_REPLACED = "_compiled_call_impl"
_numbers = itertools.count(1)


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


class HeldCache:
    """The cache of the last forward in a role, kept until another's comes.

    Attributes:
        cache: The cache.
        identity: A number that no other cache of the thread gets; None without a cache.
        length: What returns its positions.
        packed: Identities of caches that several requests share, whose tokens one forward computes.
    """

    __slots__ = ("_numbers", "cache", "identity", "length", "packed")

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[weakref.ref[Any], int]] = {}
        self.cache: Any = None
        self.identity: int | None = None
        self.length: Callable[[], Any] = _no_length
        self.packed: set[int] = set()

    def hold(self, cache: Any, length: Callable[[], Any]) -> None:
        """Keep a cache in place of the last one."""
        self.identity = None if cache is None else self.number_of(cache) or self._number(cache)
        self.cache, self.length = cache, length
        if self.identity is not None and type(cache).__module__.startswith(_CONTINUOUS):
            self.packed.add(self.identity)

    def look_again(self) -> Any:
        """Return the positions of a cache that had none, whose first layer may keep none ever."""
        self.length = _length_of(self.cache)
        return self.length()

    def number_of(self, cache: Any) -> int | None:
        """Return the identity of a cache that was held before; None of another."""
        reference, number = self._numbers.get(id(cache), (None, None))
        return number if reference is not None and reference() is cache else None

    def _number(self, cache: Any) -> int:
        number = next(_numbers)
        with contextlib.suppress(TypeError):  # a tuple, which has no weak references
            self._numbers[id(cache)] = weakref.ref(cache), number
        return number


class Ongoing:
    """What one thread runs; plain tuples with the fields of `TimedForward` keep this fast.

    Attributes:
        forwards: Its forwards since the list was last replaced, in order.
        inside: Whether one is running: those that it calls itself are parts of it.
        generating: The `generate()` that is running; None outside of one.
        drafting: Whether the model drafts tokens for itself in it.
        held: The last cache by role.
        let_go: Called with a forward's cache and its positions before the model's last one is let
            go.
    """

    __slots__ = ("drafting", "forwards", "generating", "held", "inside", "let_go")

    def __init__(self) -> None:
        self.forwards: list[tuple[Any, ...]] = []
        self.inside = self.drafting = False
        self.generating: Any = None
        self.let_go: Callable[[Ongoing, Any, Any], None] | None = None
        self.held = {role: HeldCache() for role in get_args(Role)}

    def hold(self, role: Role, cache: Any) -> Any:
        """Keep a forward's cache in place of the role's last one, and return its positions."""
        held, length = self.held[role], _length_of(cache)
        positions = length()  # which has just returned
        if self.let_go is not None and role == "model" and held.cache is not None:
            self.let_go(self, cache, positions)
        held.hold(cache, length)
        return positions

    def release(self) -> None:
        """Let all caches go."""
        for role in self.held:
            self.hold(role, None)


class ThreadForwards(threading.local):
    """The forwards of each thread: `ongoing` is that of the thread that asks.

    Every thread's is made by `make`, which may keep it.
    """

    def __init__(self, make: Callable[[], Ongoing] = Ongoing) -> None:
        self.ongoing = make()


@restoring
def timed(
    module: nn.Module, role: Role, of_thread: ThreadForwards, hidden: Sequence[nn.Module] = ()
) -> Iterator[None]:
    """Append each forward of the module to those of the thread that runs it, until the block ends.

    `begin` is read after its arguments were looked at, `end` first thing after it. `hidden` are
    the timed modules that a compiled forward would see.
    """
    attributes = module.__dict__
    replaced = attributes.get(_REPLACED)
    call = replaced or module._call_impl  # noqa: SLF001 - what torch calls without one
    timed_call = timing(call, module, role, of_thread, hidden)
    attributes[_REPLACED] = timed_call
    try:
        yield
    finally:
        if attributes.get(_REPLACED) is timed_call:  # else the program has compiled it meanwhile
            if replaced is None:
                del attributes[_REPLACED]
            else:
                attributes[_REPLACED] = replaced


def timing(
    call: Callable[..., Any],
    module: nn.Module,
    role: Role,
    of_thread: ThreadForwards,
    hidden: Sequence[nn.Module] = (),
) -> Callable[..., Any]:
    """Return the call of a module with a timer around it.

    While it runs, the modules `hidden` have their own call back: what is compiled from these
    depends on it, and would be compiled again in a watch and after it.
    """
    if hidden:
        call = _hiding(call, [inner.__dict__ for inner in hidden])
    return _timing(call, role, of_thread, _events(module))


def _hiding(call: Callable[..., Any], attributes: list[dict[str, Any]]) -> Callable[..., Any]:
    def call_bare(*args: Any, **kwargs: Any) -> Any:
        replaced = [inner.pop(_REPLACED, None) for inner in attributes]
        try:
            return call(*args, **kwargs)
        finally:
            for inner, timed_call in zip(attributes, replaced, strict=True):
                if timed_call is not None:
                    inner[_REPLACED] = timed_call

    return call_bare


def _timing(  # noqa: C901 - all in one function: each call more would cost 0.1 µs
    call: Callable[..., Any], role: Role, of_thread: ThreadForwards, event: Callable[[], Any] | None
) -> Callable[..., Any]:
    clock, compiling = time.perf_counter_ns, torch.compiler.is_compiling

    def timed_call(*args: Any, **kwargs: Any) -> Any:  # noqa: C901
        if compiling() or (ongoing := of_thread.ongoing).inside:
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
        current: Role = "assistant" if ongoing.drafting else role
        held = ongoing.held[current]
        if cache is held.cache:
            try:
                cached = held.length()
            except Exception:  # noqa: BLE001 - another library's method must not end the program
                cached = None
            if type(cached) is not int:
                if shape[1:2] == (1,):
                    cached = None  # of a step: as many as the forwards before it left
            elif not cached:
                cached = held.look_again()
        else:
            cached = ongoing.hold(current, cache)
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
            events = None if event is None else (before, event())
            if begin is not None:  # None: Ctrl-C came just before it
                if role == "encoder":
                    shape = _output_shape(result)
                ongoing.forwards.append((current, begin, end, shape, cached, held.identity, events))

    return timed_call


def _events(module: nn.Module) -> Callable[[], Any] | None:
    """Return what records an event on the stream of the module's GPU.

    None without a GPU, or with several, which have no clock in common.
    """
    devices = {parameter.device for parameter in module.parameters()}
    if len(devices) != 1 or (device := devices.pop()).type != "cuda":
        return None

    def event() -> Any:
        if torch.cuda.is_current_stream_capturing():
            return None
        recorded = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
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

    Of transformers' caches that is the own method of the first layer that has any: theirs takes
    0.5 µs longer.
    """
    if cache is None:
        return _no_length
    if isinstance(cache, list | tuple):
        return functools.partial(_positions_of_tensors, cache)
    layers = getattr(getattr(cache, "self_attention_cache", cache), "layers", None)
    layers = layers if isinstance(layers, list) else []
    filled = (layer for layer in layers if getattr(layer, "is_initialized", True))
    for holder in (next(filled, layers[0] if layers else None), cache):
        length = getattr(holder, "get_seq_length", None)
        if length is None:
            continue
        with contextlib.suppress(Exception):  # another library's method
            if isinstance(length(), int | torch.Tensor):
                return length  # type: ignore[no-any-return]
    return _no_length


def _positions_of_tensors(cache: Any) -> int | None:
    """Return the positions of keys and values by layer, [batch, heads, positions, size]."""
    while isinstance(cache, list | tuple) and cache:
        cache = cache[0]
    return cache.shape[-2] if isinstance(cache, torch.Tensor) and cache.dim() == 4 else None
