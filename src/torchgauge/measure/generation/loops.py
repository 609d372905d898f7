"""Group the forwards of a program's own decode loops into calls, by their caches and tokens.

A last chunk of a single token, in a loop that computes the prompt in chunks, cannot be
distinguished from a step. Nor can drafts that were all accepted before any was rejected be
distinguished from chunks of the prompt.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from torchgauge.measure.generation.cache_layout import CacheLayout, cache_layout
from torchgauge.measure.generation.forwards import Ongoing, TimedForward
from torchgauge.measure.generation.stages import CountedForward, shape_of
from torchgauge.records.generation.call import Stage

_CACHE = TimedForward._fields.index("cache")


@dataclasses.dataclass(slots=True)
class Loop:
    """The forwards of one call of a loop, those of its encoder and draft model among them.

    Attributes:
        forwards: In order.
        steps: Forwards of a single token after the first forward.
        cropped: Whether positions were taken from its cache again, as drafts that were rejected.
    """

    forwards: list[CountedForward] = dataclasses.field(default_factory=list)
    steps: int = 0
    cropped: bool = False

    @property
    def own(self) -> list[CountedForward]:
        """The forwards of the model itself."""
        return [forward for forward in self.forwards if forward.timed.role == "model"]

    @property
    def last(self) -> CountedForward:
        """The model's last forward."""
        return next(f for f in reversed(self.forwards) if f.timed.role == "model")

    def add(self, forward: CountedForward) -> None:
        """Append a forward of its model."""
        if self.forwards and any(f.timed.role == "model" for f in self.forwards):
            self.steps += forward.tokens == 1 or forward.timed.cache is None
            self.cropped |= 0 < forward.cached < self.last.total
        self.forwards.append(forward)


def loops(forwards: Iterable[tuple[Any, ...]]) -> list[Loop]:
    """Return the calls that a thread's forwards outside of `generate()` belong to."""
    groups: list[Loop] = []
    by_cache: dict[int, Loop] = {}
    pending: list[CountedForward] = []  # drafts and encoders before a model's forward
    drafted: dict[int | None, int] = {}
    for fields in forwards:
        timed = TimedForward(*fields)
        sequences, tokens = shape_of(timed)
        if timed.role != "model":
            cached = _cached(timed, drafted.get(timed.cache, 0))
            drafted[timed.cache] = cached + tokens
            pending.append(CountedForward(timed, sequences, tokens, cached))
            continue
        loop = _continued(groups, by_cache, timed, sequences, tokens)
        cached = _cached(timed, 0 if loop is None else loop.last.total)
        if loop is None:
            before, pending = _split(pending)
            if groups:
                groups[-1].forwards += before
            loop = Loop()
            groups.append(loop)
        loop.forwards += pending
        pending = []
        loop.add(CountedForward(timed, sequences, tokens, cached))
        if timed.cache is not None:
            by_cache[timed.cache] = loop
    if groups:
        groups[-1].forwards += pending
    return groups


def loop_stages(loop: Loop) -> tuple[Stage, ...]:
    """Return the stage of each forward: prefill ends before a single token or a rejected draft."""
    assigned: list[Stage] = []
    decoding, own = False, loop.own
    later_of = dict(zip(map(id, own), own[1:], strict=False))
    for forward in loop.forwards:
        if forward.timed.role != "model":
            assigned.append("encoder" if forward.timed.role == "encoder" else "draft")
            continue
        later = later_of.get(id(forward))
        if forward is not own[0]:
            recomputed = forward.timed.cache is None
            rejected = later is not None and later.cached < forward.total
            decoding = decoding or recomputed or forward.tokens == 1 or rejected
        assigned.append("decode" if decoding else "prefill")
    return tuple(assigned)


def _continued(
    groups: list[Loop], by_cache: dict[int, Loop], timed: TimedForward, sequences: int, tokens: int
) -> Loop | None:
    """Return the call that a forward continues; None where it begins one."""
    if not groups:
        return None
    if timed.cache is None:
        last = groups[-1].last
        is_longer = last.timed.cache is None and tokens == last.tokens + 1
        return groups[-1] if is_longer and sequences == last.sequences and tokens > 1 else None
    if (loop := by_cache.get(timed.cache)) is not None:
        return loop if _follows(loop, timed, tokens) else None
    # A cache that the model made in the forward before, or tuples that are new for every forward.
    last = groups[-1].last
    cached = timed.cached
    handed_on = cached is None or int(cached) == last.total
    first = last.timed.cache is None and len(groups[-1].own) == 1
    if not handed_on or sequences != last.sequences or (cached is None and not first):
        return None
    return groups[-1] if _follows(groups[-1], timed, tokens) else None


def _follows(loop: Loop, timed: TimedForward, tokens: int) -> bool:
    """Return whether a forward with the same cache is of the same call, not of the next turn."""
    cached = _cached(timed, loop.last.total)
    if cached == 0 or cached > loop.last.total:
        return False
    return tokens == 1 or not loop.steps or loop.cropped or cached < loop.last.total


def _cached(timed: TimedForward, before: int) -> int:
    if timed.cached is not None:
        return int(timed.cached)
    return 0 if timed.cache is None else before


def _split(pending: list[CountedForward]) -> tuple[list[CountedForward], list[CountedForward]]:
    """Split drafts and encoders at the first that belongs to the call that begins after them."""
    for index, forward in enumerate(pending):
        if forward.timed.role == "encoder" or forward.cached == 0:
            return pending[:index], pending[index:]
    return pending, []


class LoopCaches:
    """The forwards of a thread outside of `generate()`, and the layouts of their caches.

    A loop does not say when it ends: its last cache is kept until another is used, and looked at
    then, before that forward begins.
    """

    def __init__(self) -> None:
        self.ongoing = Ongoing()
        self.ongoing.let_go = self._let_go
        self.forwards = self.ongoing.forwards
        self._layouts: dict[int, CacheLayout | None] = {}

    @property
    def own_forwards(self) -> tuple[tuple[Any, ...], ...]:
        """The forwards that belong to calls, in order."""
        packed = self.ongoing.held["model"].packed
        return tuple(fields for fields in tuple(self.forwards) if fields[_CACHE] not in packed)

    @property
    def packed_forwards(self) -> tuple[tuple[Any, ...], ...]:
        """Those of continuous batching, in order: of each a batch of what several requests need."""
        packed = self.ongoing.held["model"].packed
        return tuple(fields for fields in tuple(self.forwards) if fields[_CACHE] in packed)

    def layout(self, cache: int | None) -> CacheLayout | None:
        """Return the layout of a cache of a loop; None where it was not seen at the end."""
        held = self.ongoing.held["model"]
        if cache is not None and held.identity == cache and not self.ongoing.generating:
            return cache_layout(held.cache)
        return None if cache is None else self._layouts.get(cache)

    def close(self) -> None:
        """Look at the last cache, and keep none."""
        self.ongoing.release()
        self.ongoing.let_go = None

    def _let_go(self, ongoing: Ongoing, cache: Any, positions: Any) -> None:
        held = ongoing.held["model"]
        if held.identity is None or held.identity in held.packed:
            return
        if self._is_handed_on(positions):
            return
        if cache is not None and held.number_of(cache) is not None:
            # Two loops take turns: to look at each step would slow them, and once is too early.
            self._layouts.pop(held.identity, None)
        else:
            self._layouts[held.identity] = cache_layout(held.cache)
        ongoing.hold("assistant", None)

    def _is_handed_on(self, positions: Any) -> bool:
        """Return whether a forward goes on with what the last one made, as tuples that grow do."""
        if type(positions) is not int or not positions or not self.forwards:
            return False
        last = TimedForward(*self.forwards[-1])
        return type(last.cached) is int and positions == last.cached + (*last.shape, 0, 0)[1]
