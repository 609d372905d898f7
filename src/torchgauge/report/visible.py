"""Names as a terminal and a table may have them: what would command them is shown instead."""

from __future__ import annotations

import re

# Control characters, ends of lines, and what turns the direction of writing.
_COMMAND = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Return the text with the escapes of Python's in place of such characters."""
    if text.isprintable():
        return text
    return _COMMAND.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return the text likewise, on one line: names may hold anything."""
    return visible(" ".join(text.split()))


def visible_lines(text: str) -> str:
    """Return the text likewise, its lines kept."""
    return "\n".join(map(visible, text.split("\n")))
