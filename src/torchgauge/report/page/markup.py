"""Texts in a page: nothing of the user's is markup, nor turns the direction of writing."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

import msgspec

from torchgauge.visible import visible, visible_lines

_MARKUP = "<>&"  # characters that could end the element or begin a comment in it
# In JSON's text: escapes, and what `visible` shows and JSON leaves as it is.
_COMMAND = re.compile(
    r"\\(?:u[0-9a-f]{4}|.)|[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_HARMLESS = ("\\n", "\\t", "\\\\", '\\"')


def escaped(text: str) -> str:
    """Return the text as it may stand in HTML, between elements or quoted."""
    return escape(visible_lines(text))


def script_data(content: object) -> str:
    """Return the data of a page's script as JSON that is safe inside the page's markup."""
    data = _COMMAND.sub(_visible_escape, _json(content).decode())
    for character in _MARKUP:
        data = data.replace(character, f"\\u{ord(character):04x}")
    return data


def _visible_escape(match: re.Match[str]) -> str:
    if match[0] in _HARMLESS:
        return match[0]
    return json.dumps(visible(json.loads(f'"{match[0]}"')))[1:-1]


def _json(content: object) -> bytes:
    try:
        return msgspec.json.encode(content)
    except OverflowError:  # whole nanoseconds of more time than any clock has measured
        return msgspec.json.encode(_short(msgspec.to_builtins(content)))


def _short(value: Any) -> Any:
    """Return the value with floats in place of integers of more than eight bytes."""
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_short(item) for item in value]
    return float(value) if isinstance(value, int) and abs(value) >= 2**63 else value
