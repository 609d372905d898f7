"""Watch a model while a program generates with it, and make records of its calls."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from torch import nn

from torchgauge.forks import Owner, after_fork_in_child
from torchgauge.measure.generation import watched_modules
from torchgauge.measure.generation.cache_layout import CacheLayout, PositionTensor
from torchgauge.measure.generation.forwards import Ongoing, ThreadForwards, timed
from torchgauge.measure.generation.generate_calls import GenerateCall, compiled_calls_timed, watched
from torchgauge.measure.generation.loops import Loop, LoopCaches, loop_stages, loops
from torchgauge.measure.generation.stages import (
    NANO,
    CountedForward,
    Prompt,
    columns,
    counted,
    prompt_chunks,
    prompt_end,
    stages,
)
from torchgauge.records.generation.call import CacheSize, GenerationCall, Stage
from torchgauge.signals import HeldBack, restoring, uninterrupted


class CallWatch:
    """A context manager; `calls` are those of `generate()` and of decode loops within its block.

    The model, its caches and its outputs are as they would be without it. In a forked process
    nothing is recorded. The last cache of a loop is kept until the next call or the block's end.
    """

    def __init__(self, model: Any, assistant: Any = None) -> None:
        self.model = watched_modules.model_of(model)
        self.assistant = None if assistant is None else watched_modules.model_of(assistant)
        self._threads: list[LoopCaches] = []
        self._of_thread = ThreadForwards(self._begin_thread)
        self._assistants = _Assistants(self._of_thread)
        self._generated: list[GenerateCall] = []
        self._interrupted = False
        self._open = contextlib.ExitStack()
        self._owner = Owner()
        models = watched_modules.nested_models(self.model)
        self._models, self._config = models, getattr(models[-1], "config", None)
        parameter = next(self.model.parameters(), None)
        self.device = "cpu" if parameter is None else str(parameter.device)

    def __enter__(self) -> CallWatch:
        """Begin to watch."""
        self._owner = Owner()
        try:
            with HeldBack():
                self._watch()
                _open_watches.add(self)
        except BaseException:  # also of a signal that came meanwhile: the model must be as it was
            uninterrupted(self._leave)
            raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Put the model back as it was, and let its caches go."""
        if self._owner.in_fork:
            return
        self._interrupted = isinstance(error, KeyboardInterrupt)
        uninterrupted(self._leave)

    def _leave(self) -> None:
        _open_watches.discard(self)
        self._open.close()
        for thread in self._threads:
            thread.close()

    @property
    def calls(self) -> tuple[GenerationCall, ...]:
        """The calls in the order in which they began; waits for what a GPU has not finished.

        Within the block these are the ended calls of `generate()`, and loops as far as they went.
        """
        if self._owner.in_fork:
            return ()
        calls = [
            (call.begin, generate_record(call, self.device, self._config))
            for call in tuple(self._generated)
        ]
        for thread in tuple(self._threads):
            calls += self._loops(thread)
        calls.sort(key=lambda call: call[0])
        if self._interrupted and calls and calls[-1][1].by == "loop":
            begin, call = calls[-1]
            error = KeyboardInterrupt.__name__
            calls[-1] = begin, msgspec.structs.replace(call, error=error, interrupted=True)
        return tuple(call for _, call in calls)

    @property
    def packed_forwards(self) -> int:
        """How many forwards computed tokens of several requests at once; they are in no call."""
        return sum(len(thread.packed_forwards) for thread in tuple(self._threads))

    def _loops(self, thread: LoopCaches) -> Iterator[tuple[int, GenerationCall]]:
        calls = loops(thread.own_forwards)
        last_of_cache = {loop.last.timed.cache: loop for loop in calls}
        for loop in calls:
            cache = loop.last.timed.cache
            layout = thread.layout(cache) if last_of_cache[cache] is loop else None
            record = loop_record(loop, self.device, self._config, layout)
            yield loop.forwards[0].timed.begin, record

    def _watch(self) -> None:
        enter, of_thread, models = self._open.enter_context, self._of_thread, self._models
        encoders = watched_modules.encoders_of(models)
        for depth, model in enumerate(models):
            inner = (*models[depth + 1 :], *encoders) if watched_modules.is_compiled(model) else ()
            enter(timed(model, "model", of_thread, inner))
            if callable(getattr(type(model), "generate", None)) or "generate" in model.__dict__:
                enter(watched(model, of_thread, self._note, self._assistants.timed))
            if hasattr(type(model), "get_compiled_call"):
                enter(compiled_calls_timed(model, of_thread, (model, *encoders)))
        for encoder in encoders:
            enter(timed(encoder, "encoder", of_thread))
        if self.assistant is not None:
            enter(self._assistants.timed(self.assistant))

    def _note(self, call: GenerateCall) -> None:
        if not self._owner.in_fork:
            self._generated.append(call)

    def _begin_thread(self) -> Ongoing:
        thread = LoopCaches()
        self._threads.append(thread)
        return thread.ongoing

    def _forget(self) -> None:
        self._assistants = _Assistants(self._of_thread)
        self._open.close()


class _Assistants:
    """Draft models that are timed, with how many calls use each: threads may share one."""

    def __init__(self, of_thread: ThreadForwards) -> None:
        self._of_thread = of_thread
        self._users: dict[int, int] = {}
        self._timers: dict[int, contextlib.ExitStack] = {}
        self._lock = threading.Lock()

    @restoring
    def timed(self, assistant: Any) -> Iterator[None]:
        """Time a draft model until the block ends; None, or what is not a module, is left alone."""
        if not isinstance(assistant, nn.Module):
            yield
            return
        self._begin(assistant)
        try:
            yield
        finally:
            self._end(id(assistant))

    def _begin(self, assistant: nn.Module) -> None:
        key = id(assistant)
        with self._lock:
            self._users[key] = self._users.get(key, 0) + 1
            if self._users[key] == 1:
                timer = self._timers[key] = contextlib.ExitStack()
                timer.enter_context(timed(assistant, "assistant", self._of_thread))

    def _end(self, key: int) -> None:
        with self._lock:
            self._users[key] -= 1
            if not self._users[key]:
                self._timers.pop(key).close()
                del self._users[key]


_open_watches: set[CallWatch] = set()


def _forget_in_child() -> None:
    """Put the models back as they were in a forked process, which is the program's alone."""
    while _open_watches:
        _open_watches.pop()._forget()  # noqa: SLF001 - the same file


after_fork_in_child(_forget_in_child)


def size_of(layout: CacheLayout, config: Any, positions: int | None = None) -> CacheSize:
    """Return what a cache of that layout takes.

    `config` is the model's, for the formula. `positions` that it has seen are needed for caches
    that do not say how many (static ones, whose count is a tensor on the device).
    """
    positions = layout.length if positions is None else positions
    used = _used(layout, positions)
    formula, no_formula = _formula(layout, config, positions)
    reasons = [*_reasons(layout, positions, used, formula), *([no_formula] if no_formula else [])]
    return CacheSize(
        kind=layout.kind,
        held=layout.held,
        used=used,
        formula=formula,
        reason="; ".join(reasons),
        positions=positions,
        sequences=layout.sequences,
        elements=layout.elements,
    )


def _used(layout: CacheLayout, positions: int | None) -> int | None:
    if layout.unknown:
        return None
    used = layout.states + layout.quantized
    for tensor in layout.keys:
        length = positions if tensor.length is None else tensor.length
        if length is None:
            return None
        used += tensor.bytes_of(min(length, tensor.capacity))
    return used


def _formula(layout: CacheLayout, config: Any, positions: int | None) -> tuple[int | None, str]:
    """Return the bytes by the configuration's sizes, or the reason why there is no formula."""
    if layout.unknown:
        return None, f"no formula for {layout.kind}"
    if layout.quantized:
        return None, "no formula for quantized caches"
    if layout.states:
        return None, f"no formula for {'hybrid' if layout.keys else 'state-space'} models"
    if config is None or positions is None:
        return None, "no formula without the model's configuration and positions"
    widths = next((widths for widths in _widths(config) if _described(widths, layout)), None)
    if widths is None:
        return None, f"no formula for {getattr(config, 'model_type', layout.kind)} models"
    if any(_is_of_others(tensor, positions) for tensor in layout.keys):
        return None, "no formula for layers that hold positions of their own, as of images"
    formula = 0
    for tensor in layout.keys:
        length = (
            tensor.capacity if tensor.by_encoder else min(positions, tensor.window or positions)
        )
        formula += tensor.sequences * length * widths[tensor.role] * tensor.element_bytes
    return formula, ""


def _widths(config: Any) -> Iterator[dict[str, int]]:
    """Yield the elements of a position's keys and values, and the layers, by the configuration.

    With latent attention a model may keep the latents, or the keys and values made of these.
    """
    text_config = getattr(config, "get_text_config", None)
    sizes = config if text_config is None else text_config(decoder=True)
    layers = _first(sizes, "num_hidden_layers")
    queries = _first(sizes, "num_attention_heads")
    hidden = _first(sizes, "hidden_size", "d_model")
    if layers is None or queries is None or hidden is None:
        return
    latent, rotated = _first(sizes, "kv_lora_rank"), _first(sizes, "qk_rope_head_dim")
    if latent is not None and rotated is not None:
        size_of_keys = (_first(sizes, "qk_nope_head_dim") or 0) + rotated
        size_of_values = _first(sizes, "v_head_dim") or 0
        yield {"layers": layers, "keys": latent, "values": rotated}
        yield {"layers": layers, "keys": queries * size_of_keys, "values": queries * size_of_values}
        return
    heads = _first(sizes, "num_key_value_heads", "num_kv_heads") or queries
    if getattr(sizes, "multi_query", False) and not getattr(sizes, "new_decoder_architecture", 0):
        heads = 1
    size = _first(sizes, "head_dim", "d_kv") or hidden // queries
    yield {"layers": layers, "keys": heads * size, "values": heads * size}


def _is_of_others(tensor: PositionTensor, positions: int) -> bool:
    """Return whether a tensor's positions are not those of the tokens, without a window on them."""
    if tensor.by_encoder or tensor.window is not None or tensor.length is None:
        return False
    return tensor.length != positions


def _first(sizes: Any, *names: str) -> int | None:
    values = (getattr(sizes, name, None) for name in names)
    return next((value for value in values if type(value) is int and value > 0), None)


def _described(widths: dict[str, int], layout: CacheLayout) -> bool:
    """Return whether the cache has the sizes that the configuration says; else it is another's."""
    has_widths = all(tensor.width == widths[tensor.role] for tensor in layout.keys)
    return has_widths and widths["layers"] == layout.layers


def _reasons(
    layout: CacheLayout, positions: int | None, used: int | None, formula: int | None
) -> Iterator[str]:
    """Say why what is held, what is used and the formula differ, where they do."""
    own = [tensor for tensor in layout.keys if not tensor.by_encoder]
    if layout.unknown:
        yield f"the layout of {layout.unknown:,} bytes is not known"
    elif used is None:
        yield "how many positions hold tokens is not known"
    elif layout.held > used:
        yield from _allocated(layout, own, positions)
    windows = {tensor.window for tensor in own if tensor.window}
    if formula is not None and used is not None and formula != used and windows:
        yield f"layers with a window of {min(windows)} keep one position less than it"
    if formula is None and windows and positions and positions > min(windows):
        yield f"a window of {min(windows)} positions"


def _allocated(
    layout: CacheLayout, own: list[PositionTensor], positions: int | None
) -> Iterator[str]:
    capacity = max((tensor.capacity for tensor in own), default=0)
    if positions is not None and capacity > positions:
        yield f"{capacity:,} positions are allocated, {positions:,} hold tokens"
    visible = sum(tensor.bytes_of(tensor.capacity) for tensor in layout.keys)
    if layout.held > visible + layout.states + layout.quantized:
        yield "its tensors are parts of larger ones, which are held as a whole"


def generate_record(call: GenerateCall, device: str, config: Any) -> GenerationCall:
    """Return the record of a `generate()`; waits for what a GPU has not finished.

    `config` is the model's, for the formula of its cache.
    """
    forwards = counted(call.forwards)
    prompt = Prompt(
        _prompt_tokens(call), call.mask, in_decoder=not call.encoder_decoder, chunk=call.chunk
    )
    end = prompt_end(forwards, prompt)
    stage = stages(forwards, end, prompt_chunks(forwards, prompt))
    return GenerationCall(
        by="generate",
        batch=_batch(call),
        sequences=_sequences(forwards) or _batch(call),
        prompt=_prompt(call, forwards, stage, end),
        new_tokens=_new_tokens(call, forwards, stage, end),
        duration=(call.end - call.begin) * NANO,
        forwards=columns(forwards, stage, call.begin),
        cache=_cache_size(call.cache, config, forwards, call.error),
        device=device,
        error="" if call.error is None else type(call.error).__name__,
        interrupted=isinstance(call.error, KeyboardInterrupt),
    )


def loop_record(
    loop: Loop, device: str, config: Any, layout: CacheLayout | None = None
) -> GenerationCall:
    """Return the record of a call of a program's own loop, `layout` that of its cache at the end.

    It ends with its last forward: when the token of that was chosen is not known.
    """
    stage = loop_stages(loop)
    begin = loop.forwards[0].timed.begin
    sequences = _sequences(loop.forwards)
    prefills = [f for f, s in zip(loop.forwards, stage, strict=True) if s == "prefill"]
    end = prefills[-1].total
    return GenerationCall(
        by="loop",
        batch=sequences,
        sequences=sequences,
        prompt=_encoded(loop.forwards, stage) or end,
        new_tokens=chosen_tokens(loop.forwards, stage, end),
        duration=(loop.forwards[-1].timed.end - begin) * NANO,
        forwards=columns(loop.forwards, stage, begin),
        cache=_cache_size(layout, config, loop.forwards),
        device=device,
    )


def _cache_size(
    layout: CacheLayout | None,
    config: Any,
    forwards: Sequence[CountedForward],
    error: BaseException | None = None,
) -> CacheSize | None:
    last = next((f for f in reversed(forwards) if f.timed.role == "model"), None)
    if layout is None or last is None:
        return None
    if layout.length is not None or error is not None:  # a forward that raised has added some
        return size_of(layout, config)
    return size_of(layout, config, last.total)


def _encoded(forwards: Sequence[CountedForward], stage: Sequence[Stage]) -> int:
    return max(
        (f.tokens for f, s in zip(forwards, stage, strict=True) if s == "encoder"), default=0
    )


def _batch(call: GenerateCall) -> int:
    shape = call.ids if call.ids is not None else call.inputs
    return shape[0] if shape else 1  # without any, transformers begins one sequence


def _sequences(forwards: Sequence[CountedForward]) -> int:
    return max((f.sequences for f in forwards if f.timed.role == "model"), default=0)


def _prompt_tokens(call: GenerateCall) -> int | None:
    if call.ids is not None:
        return call.ids[1] if len(call.ids) == 2 else None
    return call.inputs[1] if call.inputs is not None and len(call.inputs) == 3 else None


def _prompt(
    call: GenerateCall, forwards: Sequence[CountedForward], stage: Sequence[Stage], end: int
) -> int:
    """Return the prompt's positions: an encoder's, or those in the cache before the first step."""
    if call.encoder_decoder:
        return _encoded(forwards, stage) or _prompt_tokens(call) or 0
    steps = [forward for forward, s in zip(forwards, stage, strict=True) if s == "decode"]
    if any(step.tokens > 1 and step.timed.cache is not None for step in steps):
        return end  # drafts are checked, in the first forward too
    computed = (f.total for f, s in zip(forwards, stage, strict=True) if s == "prefill")
    return max(end, max(computed, default=0))  # images take more positions than ids


def _new_tokens(
    call: GenerateCall, forwards: Sequence[CountedForward], stage: Sequence[Stage], end: int
) -> int:
    if call.standard and call.output is not None and len(call.output) == 2:
        return max(0, call.output[1] - _start(call, stage, end))
    chosen = chosen_tokens(forwards, stage, end)
    return chosen if call.error is None or chosen == 0 else chosen - 1


def _start(call: GenerateCall, stage: Sequence[Stage], end: int) -> int:
    """Return how many tokens of the output were there before the new ones."""
    if call.encoder_decoder:  # a start token is put before what was given, where it lacks one
        return call.start if "draft" in stage else end
    if call.ids is not None:
        return call.ids[-1]
    return 0 if call.inputs is not None else 1


def chosen_tokens(forwards: Sequence[CountedForward], stage: Sequence[Stage], end: int) -> int:
    """Return the tokens of a sequence that the forwards make, the last of them with it."""
    steps = [forward for forward, s in zip(forwards, stage, strict=True) if s == "decode"]
    if any(step.tokens > 1 and step.timed.cache is not None for step in steps):
        return steps[-1].cached - end + 2  # what was accepted before it, the first and its own
    prefills = [forward for forward, s in zip(forwards, stage, strict=True) if s == "prefill"]
    begun = sum(prefill.cached == 0 for prefill in prefills)
    return len(steps) + max(begun, min(1, len(prefills)))
