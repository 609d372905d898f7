"""`tg.mark`: a name for a part of the user's own loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

Naming = Callable[[str], contextlib.AbstractContextManager[Any]]

# What makes a span of a name while a timeline records; None at all other times.
_naming: Naming | None = None


class mark(contextlib.ContextDecorator):  # noqa: N801 - used like a function
    """Name what a block of the loop, or a function, does: `with tg.mark("data"):`.

    In the tree of `tg.timeline` its time outside of the model is a part of that name. Any text will
    do. Without a timeline that records it does nothing.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._span: contextlib.AbstractContextManager[Any] | None = None

    def __enter__(self) -> mark:
        """Begin the span."""
        if _naming is not None:
            self._span = _naming(self._name)
            self._span.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        if self._span is not None:
            span, self._span = self._span, None
            span.__exit__(None, None, None)

    def _recreate_cm(self) -> mark:
        return mark(self._name)  # a decorated function may call itself


def name_with(naming: Naming | None) -> None:
    """Let marks make spans by `naming`, or none any more."""
    global _naming
    _naming = naming
