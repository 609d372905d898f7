"""`tg.mark`: a name for a part of the user's own loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

Naming = Callable[[str], contextlib.AbstractContextManager[Any]]

# What makes a span of a name while a timeline records; None at all other times.
_naming: Naming | None = None
# Spans of this recording that have not ended.
_open: set[object] = set()
# Those of recordings that are over: to end or to free one would write into freed memory.
_left_open: list[object] = []


class mark(contextlib.ContextDecorator):  # noqa: N801 - used like a function
    """Name what a block of the loop, or a function, does: `with tg.mark("data"):`.

    In the tree of `tg.timeline` its time outside of the model is a part of that name. Any text will
    do. Without a timeline that records it does nothing.

    Examples:
        >>> import torch, torchgauge as tg
        >>> model = torch.nn.Linear(4, 2)
        >>> with tg.timeline(model) as run:
        ...     for _ in range(12):
        ...         with tg.mark("data"):
        ...             x = torch.rand(8, 4)
        ...         y = model(x)
        >>> "data" in [child.name for child in run.tree.root.children]
        True
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._span: contextlib.AbstractContextManager[Any] | None = None

    def __enter__(self) -> mark:
        """Begin the span."""
        if _naming is not None:
            self._span = _naming(self._name)
            self._span.__enter__()
            _open.add(self._span)
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        if self._span is not None:
            span, self._span = self._span, None
            if span in _open:
                _open.discard(span)
                span.__exit__(None, None, None)

    def _recreate_cm(self) -> mark:
        return mark(self._name)  # a decorated function may call itself


def name_with(naming: Naming | None) -> None:
    """Let marks make spans by `naming`, or none any more; spans that are open are left so."""
    global _naming
    _naming = naming
    _left_open.extend(_open)
    _open.clear()
