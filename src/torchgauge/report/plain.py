"""A view as plain text: no colours, a width of its own."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console, RenderableType

WIDTH = 80

View = Callable[[int], RenderableType]
"""Returns what rich prints in so many columns."""


def plain(view: View) -> str:
    """Return the view as text of `WIDTH` columns, without blanks at the ends of lines."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=WIDTH, force_terminal=False, color_system=None)
    console.print(view(WIDTH))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())
