"""`tg.mark`: a name for a part of the user's own loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

Naming = Callable[[str], contextlib.AbstractContextManager[Any]]

# What makes a span of a name while a timeline records; None at all other times.
_naming: Naming | None = None
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
        self._made_by: Naming | None = None

    def __enter__(self) -> mark:
        """Begin the span."""
        if _naming is not None:
            self._made_by = _naming
            self._span = self._made_by(self._name)
            self._span.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        if self._span is not None:
            span, self._span = self._span, None
            if self._made_by is _naming:
                span.__exit__(None, None, None)
            else:  # its recording is over: to end it, or to free it, would write into freed memory
                _left_open.append(span)

    def _recreate_cm(self) -> mark:
        return mark(self._name)  # a decorated function may call itself


def name_with(naming: Naming | None) -> None:
    """Let marks make spans by `naming`, or none any more."""
    global _naming
    _naming = naming
