"""What of a trace could not be read as it stands, and the correction of text that is not JSON."""

from __future__ import annotations

import dataclasses
import re

# Of an escape with its backslash, what JSON allows is kept as it is.
_INVALID = re.compile(
    rb'(?P<valid>\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|\\["\\/bfnrt])'
    rb"|(?P<surrogate>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|(?P<backslash>\\)"
    rb"|(?P<control>[\x00-\x1f])"
    rb"|(?P<number>(?<=[:\[,\s])-?(?:NaN|Infinity)(?=\s*[,\]}]))"
)
_REPLACEMENTS = {
    "surrogate": "\N{REPLACEMENT CHARACTER}".encode(),
    "backslash": rb"\\",
    "control": b" ",  # between values it is white space
    "number": b"null",
}


@dataclasses.dataclass
class Damage:
    """What is wrong with a trace; `first` is the place and the nature of the first damage."""

    lost: int = 0
    corrected: int = 0
    cut_off: bool = False
    first: str = ""

    def note(self, place: str) -> None:
        """Keep the place of the first damage."""
        self.first = self.first or place

    def __bool__(self) -> bool:
        return bool(self.lost or self.corrected or self.cut_off)


def corrected(text: bytes) -> bytes:
    """Return text with what JSON forbids replaced: control characters, NaN, invalid escapes, UTF-8.

    A backslash that begins no escape is doubled (a path of Windows), NaN and infinities are null,
    half a surrogate pair and bytes that are no UTF-8 become U+FFFD, control characters a space.
    """
    text = text.decode("utf-8", "replace").encode()
    return _INVALID.sub(lambda match: _REPLACEMENTS.get(match.lastgroup or "", match[0]), text)
