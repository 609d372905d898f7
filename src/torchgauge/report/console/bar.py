"""A share drawn as a bar."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, get_character_cell_size
from rich.table import Table

from torchgauge.report.console.text import Text
from torchgauge.report.content.document import Column, Row, Tone
from torchgauge.visible import visible


def bar(share: float, width: int) -> str:
    """Return a share (0…1) drawn in `width` columns."""
    # A record edited by hand may hold a part that is larger than the whole.
    eighths = round(min(max(share, 0), 1) * width * 8)
    full, remainder = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[remainder] if remainder else "")).ljust(width)


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


NAME = 48  # columns of the first column at most, and at least
NARROW = 8
GAP = 2
BAR = 10


STYLES: dict[Tone, str] = {
    "": "",
    "strong": "bold",
    "faint": "dim",
    "remark": "italic",
    "mark": "cyan",
    "good": "green",
    "bad": "red",
    "doubtful": "yellow",
}


def fitted_table(
    first: str, rows: Sequence[Row], columns: Sequence[Column], width: int, longest: int = NAME
) -> Table:
    """Return the lines as a table that fits `width`; names that do not are cut, and still differ.

    A column of which no line has a cell is left out; no name is wider than `longest`.
    """
    used_columns = [
        dataclasses.replace(column, max_width=min(column.max_width, max(width - column.reserve, 0)))
        for column in columns
        if any(column.key in row.cells for row in rows)
    ]
    widths = {column.key: _width(column, rows) for column in used_columns}
    names = ["  " * row.level + visible(str(row.name)) for row in rows]
    natural = min(max([len(first), *map(cell_len, names)]), longest)
    shown_columns = _fitting_columns(used_columns, widths, width - natural)
    room = width - sum(widths[column.key] + GAP for column in shown_columns)
    grid = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    grid.add_column(first, no_wrap=True)
    for column in shown_columns:
        grid.add_column(_padded_cell(column.header, column, widths), style=style_of(column))
    indents = [2 * row.level for row in rows]
    labels = shortened_distinctly(names, min(natural, max(room, NARROW)), indents)
    for row, label in zip(rows, labels, strict=True):
        cells = (_padded_cell(cell_text(column, row), column, widths) for column in shown_columns)
        grid.add_row(Text(label), *cells, style=STYLES[row.tone])
    return grid


def cell_text(column: Column, row: Row) -> str:
    """Return a row's text in a column; a share is drawn as a bar."""
    value = row.cells.get(column.key)
    if column.unit == "bar" and isinstance(value, int | float):
        return bar(value, BAR)
    return column.text(row)


def style_of(column: Column) -> str:
    """Return rich's style of a column."""
    return STYLES["mark" if column.drawn and not column.tone else column.tone]


def _width(column: Column, rows: Sequence[Row]) -> int:
    cells = (cell_len(visible(cell_text(column, row))) for row in rows)
    return min(max([len(column.header), *cells]), column.max_width)


def _fitting_columns(columns: Sequence[Column], widths: dict[str, int], room: int) -> list[Column]:
    """Return the columns that fit: those always shown, then others by priority."""
    chosen_names = {column.key for column in columns if column.priority is None}
    room -= sum(widths[name] + GAP for name in chosen_names)
    optional = [column for column in columns if column.priority is not None]
    for column in sorted(optional, key=lambda column: column.priority or 0):
        if widths[column.key] + GAP <= room:
            room -= widths[column.key] + GAP
            chosen_names.add(column.key)
    return [column for column in columns if column.key in chosen_names]


def _padded_cell(text: str, column: Column, widths: dict[str, int]) -> Text:
    """Return a cell padded to its column's width; rich would strip blanks that align units."""
    width = widths[column.key]
    text = visible(text)
    if column.reserve and len(text) > width:
        text = f"{text[: width - 1]}…"  # of code the begin says most
    text = shortened(text, width)
    blank = " " * (width - cell_len(text))
    return Text(text + blank if column.left_aligned or column.drawn else blank + text, no_wrap=True)
