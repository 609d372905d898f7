"""The modules of a loop: one is its model, or several, or whatever modules are called in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from torchgauge.analyze.call_tree import Call
from torchgauge.measure.modules import Modules
from torchgauge.measure.ranges import Ranges


def loop() -> None:
    """Stand for the loop itself, where it has no one model."""


class LoopModules(Modules):
    """Numbers modules; number 0 is the only root, or else the loop, and roots are below it.

    A wrapper around the only root (DistributedDataParallel) is no layer: its own time is outside.
    """

    def __init__(self, roots: Sequence[nn.Module]) -> None:
        self.target: Callable[..., Any] = roots[0] if len(roots) == 1 else loop
        super().__init__(self.target)
        for root in roots:
            self.number(root)
        self.roots = tuple(type(root).__name__ for root in roots)

    def wraps(self, module: nn.Module) -> bool:
        """Return whether the module is around the only root."""
        return (
            self.root is not None
            and module is not self.root
            and any(one is self.root for one in module.modules())
        )

    def inner(self, calls: Sequence[Call]) -> list[Call]:
        """Return the calls without those of wrappers."""
        around = {n for n, one in enumerate(self.of) if one is not None and self.wraps(one)}
        return [call for call in calls if call.module not in around]


class InnerRanges(Ranges):
    """Ranges of all modules but those that wrap the only root."""

    def __init__(self, modules: LoopModules) -> None:
        super().__init__(modules.target, modules)
        self._loop = modules

    def _new(self, module: nn.Module, key: int) -> Any:
        if self._loop.wraps(module):
            self._free.setdefault(key, [])
            return contextlib.nullcontext()
        return super()._new(module, key)
