"""Text for rich with control characters escaped, so that no name or file commands a terminal."""

from __future__ import annotations

from typing import Any

from rich import text as rich_text
from rich.style import Style

from torchgauge.visible import visible

END = "\n"
"""A part that ends a line; within any other part a line end is escaped."""


class Text(rich_text.Text):
    """rich's text with control characters escaped; all views use this class."""

    def __init__(self, text: str = "", style: str | Style = "", **options: Any) -> None:
        super().__init__(_escaped(text), style, **options)

    @classmethod
    def assemble(
        cls, *parts: rich_text.Text | str | tuple[str, str | Style], **options: Any
    ) -> Text:
        """Return the parts one after the other, each with its style where it is a pair."""
        text = cls(**options)
        for part in parts:
            if isinstance(part, tuple):
                text.append(*part)
            else:
                text.append(part)
        return text

    @classmethod
    def of_lines(cls, text: str, style: str | Style = "", **options: Any) -> Text:
        """Return a text that may have several lines, such as code or a tool's output."""
        lines = cls("", style, **options)
        for index, line in enumerate(text.split(END)):
            lines.append(END if index else "").append(line)
        return lines

    def append(
        self, text: rich_text.Text | str, style: str | Style | None = None
    ) -> rich_text.Text:
        """Add a text and return the whole."""
        return super().append(_escaped(text) if isinstance(text, str) else text, style)


def _escaped(text: str) -> str:
    return text if text == END else visible(text)
