"""A view as plain text: the only way from rich's output to a terminal, a pipe or a file.

Control characters in names and files are escaped: `text.Text` does so before the layout, so that
widths are right and a line stays one line; any that came another way are escaped here.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from torchgauge.visible import printable, visible, visible_lines

NARROWEST, WIDEST = 40, 10_000

View = Callable[[int], RenderableType]
"""Returns what rich prints in `width` columns."""


def plain(view: View) -> str:
    """Return the view as text, without blanks at the ends of lines.

    It is as wide as the environment's COLUMNS says, else as the terminal, and 80 without either.
    """
    width = _sensible(shutil.get_terminal_size().columns)
    buffer = io.StringIO()
    console = _Console(file=buffer, width=width, force_terminal=False, color_system=None)
    console.print(_Inert(view(width)))
    return "\n".join(line.rstrip() for line in printable(buffer.getvalue()).splitlines())


def print_styled(view: View) -> None:
    """Print the view to standard output, in its colours."""
    console = _Console()
    console.width = _sensible(console.width)
    console.print(_Inert(view(console.width)))


def segments(view: View, width: int) -> list[Segment]:
    """Return the view for another console of rich, in colours that its own way out may drop."""
    console = _Console(file=io.StringIO(), width=_sensible(width))
    return list(console.render(_Inert(view(console.width))))


def _sensible(columns: int) -> int:
    """Return a width that a view can be laid out in, whatever a terminal claims to have."""
    return min(max(columns, NARROWEST), WIDEST)


class _Console(Console):
    """A console without markup and emoji codes."""

    def __init__(self, **options: Any) -> None:
        # In a notebook rich would display what it prints, and give us no text.
        super().__init__(markup=False, emoji=False, force_jupyter=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text with its control characters escaped."""
        return super().render_str(visible(text), **options)


class _Inert:
    """A renderable whose texts have their control characters escaped; rich's own codes stay."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        for segment in console.render(self._renderable, options):
            text, style, control = segment
            yield segment if control else Segment(visible_lines(text), style)
