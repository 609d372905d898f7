"""Texts cut to a width of terminal columns, so that different texts stay different."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, get_character_cell_size

CUT = "…"


def shortened(text: str, width: int, indent: int = 0) -> str:
    """Cut the middle out of a text that is too long: its ends tell most."""
    if cell_len(text) <= width:
        return text
    head = indent + (width - indent - 1) // 2
    tail = _fitting(reversed(text), width - 1 - head)
    return f"{text[: _fitting(text, head)]}{CUT}{text[len(text) - tail :]}"


def shortened_distinctly(
    texts: Sequence[str], width: int, indents: Sequence[int] | None = None
) -> list[str]:
    """Return each text cut to the width: its middle goes, or else what it shares with others.

    Texts that would be alike when cut begin again, behind the cut, at the word that differs first;
    where that is not enough, they are numbered.
    """
    indented = zip(texts, indents or [0] * len(texts), strict=True)
    cut = {text: shortened(text, width, indent) for text, indent in indented}
    pending = _collisions(cut, cut)
    while pending:
        group = pending.pop()
        start = _first_difference(group)
        for text in group:
            cut[text] = _from(text, start, width)
        pending += [smaller for smaller in _collisions(cut, group) if len(smaller) < len(group)]
    colliding = (text for group in _collisions(cut, cut) for text in group[1:])
    for number, text in enumerate(colliding, 2):
        mark = f"#{number}"
        cut[text] = shortened(text, width - len(mark)) + mark
    return [cut[text] for text in texts]


def _collisions(cut: dict[str, str], texts: Iterable[str]) -> list[list[str]]:
    """Return the groups of texts that are equal when cut."""
    groups: dict[str, list[str]] = {}
    for text in texts:
        groups.setdefault(cut[text], []).append(text)
    return [group for group in groups.values() if len(group) > 1]


def _first_difference(texts: Sequence[str]) -> int:
    """Return the length of the longest common prefix."""
    matches = (len(set(characters)) == 1 for characters in zip(*texts, strict=False))
    return next((place for place, equal in enumerate(matches) if not equal), min(map(len, texts)))


def _from(text: str, start: int, width: int) -> str:
    """Return the text's head, then what stands at `start`, or its end where that fits."""
    head = _fitting(text, width // 3)
    room = width - cell_len(text[:head]) - 2
    tail = _fitting(reversed(text), room + 1)
    word = text.rfind(" ", 0, start) + 1
    start = word if start - word <= room // 4 else start
    if len(text) - tail <= start:
        return f"{text[:head]}{CUT}{text[len(text) - tail :]}"
    return f"{text[:head]}{CUT}{text[start : start + _fitting(text[start:], room)]}{CUT}"


def _fitting(characters: Iterable[str], width: int) -> int:
    """Return how many of the characters there is room for: some are two columns wide, or none."""
    count = used = 0
    for character in characters:
        used += get_character_cell_size(character)
        if used > width:
            break
        count += 1
    return count
