"""What a thread runs, with the sizes of the caches of its own decode loops."""

from __future__ import annotations

from typing import Any

from torchgauge.measure.generation.cache_layout import CacheLayout, cache_layout
from torchgauge.measure.generation.forwards import Ongoing, TimedForward


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
        if held.identity is None or self._is_handed_on(positions):
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
