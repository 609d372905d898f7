"""Escape untrusted text for terminals and tables: control characters are shown, not obeyed.

Names, files and arguments may hold anything: escape sequences that move a terminal's cursor, ends
of lines that forge a message of ours, characters that turn the direction of writing.
"""

from __future__ import annotations

import re

# Control characters, ends of lines, what turns the direction of writing, halves of characters.
_COMMAND = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# What runners of workflows obey in a program's output: a line that begins with "::", and
# "##[group]", "##vso[…]", "##teamcity[…]" in any place.
_RUNNER = re.compile(r"(?:^[^\S\n]*:(?=:))|#(?=#\w*\[)", re.MULTILINE)


def visible(text: str) -> str:
    """Return the text with the escapes of Python's in place of such characters."""
    if text.isprintable():
        return text
    return _COMMAND.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return the text likewise, on one line: names may hold anything."""
    return visible(" ".join(text.split()))


def visible_lines(text: str) -> str:
    """Return the text likewise, its lines kept."""
    return text if text.isprintable() else "\n".join(map(visible, text.split("\n")))


def printable(text: str) -> str:
    """Return what a program may print: lines that command neither a terminal nor a runner."""
    return _RUNNER.sub(r"\g<0>\\", visible_lines(text))
