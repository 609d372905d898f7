"""A view as plain text: no colours, as wide as COLUMNS says."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable

from rich.console import Console, RenderableType

NARROWEST = 40

View = Callable[[int], RenderableType]
"""Returns what rich prints in so many columns."""


def plain(view: View) -> str:
    """Return the view as text, without blanks at the ends of lines.

    It is as wide as the environment's COLUMNS says, else as the terminal, and 80 without either.
    """
    width = max(shutil.get_terminal_size().columns, NARROWEST)
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, force_terminal=False, color_system=None)
    console.print(view(width))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())
