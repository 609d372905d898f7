"""Texts in a page: nothing of the user's is markup, nor turns the direction of writing."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

import msgspec

from torchgauge.visible import visible, visible_lines

_MARKUP = "<>&"  # what would end the element or begin a comment in it
# In JSON's text: escapes, and what `visible` shows and JSON leaves as it is.
_COMMAND = re.compile(
    r"\\(?:u[0-9a-f]{4}|.)|[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_HARMLESS = ("\\n", "\\t", "\\\\", '\\"')


def escaped(text: str) -> str:
    """Return the text as it may stand in HTML, between elements or quoted."""
    return escape(visible_lines(text))


def script_data(content: object) -> str:
    """Return what a page's script reads, as JSON that may stand in the page's own markup."""
    data = _COMMAND.sub(_shown, _json(content).decode())
    for character in _MARKUP:
        data = data.replace(character, f"\\u{ord(character):04x}")
    return data


def _shown(found: re.Match[str]) -> str:
    if found[0] in _HARMLESS:
        return found[0]
    return json.dumps(visible(json.loads(f'"{found[0]}"')))[1:-1]


def _json(shown: object) -> bytes:
    try:
        return msgspec.json.encode(shown)
    except OverflowError:  # whole nanoseconds of more time than any clock has measured
        return msgspec.json.encode(_short(msgspec.to_builtins(shown)))


def _short(value: Any) -> Any:
    """Return the value with floats in place of integers of more than eight bytes."""
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_short(item) for item in value]
    return float(value) if isinstance(value, int) and abs(value) >= 2**63 else value
