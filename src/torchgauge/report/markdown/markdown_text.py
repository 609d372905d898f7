"""Names, texts and tables as Markdown in which nothing of the user's is markup.

`Markdown` is text with our own markup; every other text is escaped on its way into one. A report is
made of `Markdown` alone, so that no text can be left unescaped.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import LiteralString

from torchgauge.visible import one_line, printable, visible_lines

MAX_BYTES = 60_000  # GitHub refuses a comment of 65,536 characters
MAX_LIST_BYTES = 9_000  # so that no list or table takes the room of others
LONGEST = 80  # characters of a name
LONGEST_CELL = 300
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")


class Markdown(str):
    """A text in which only this program's markup is markup."""

    __slots__ = ()


def markdown(template: LiteralString, *parts: str) -> Markdown:
    """Return the template filled with the parts; those that are not Markdown are escaped."""
    return Markdown(template.format(*map(text, parts)))


def text(plain_text: str) -> Markdown:
    """Return the text so that nothing in it is markup."""
    if isinstance(plain_text, Markdown):
        return plain_text
    return Markdown(_SPECIAL.sub(r"\\\1", one_line(plain_text)).replace("&", "&amp;"))


def code(name: str, longest: int = LONGEST) -> Markdown:
    """Return a name as code, cut in the middle where it is long."""
    name = one_line(name)
    if len(name) > longest:
        name = f"{name[: longest // 2]}…{name[-longest // 2 + 1 :]}"
    if "\\|" in name:  # in code nothing can be written so that it does not end a table's cell
        return Markdown(f"<code>{text(name)}</code>")
    # A fence must be longer than any of the name's own, and a cell ends at a bar even in code.
    fence = _fence(name, 1)
    space = " " if name.startswith("`") or name.endswith("`") else ""
    return Markdown(fence + space + (name.replace("|", "\\|") or " ") + space + fence)


def listing(lines: str, language: LiteralString) -> Markdown:
    """Return lines of a language as a block of code, which nothing in them ends."""
    if not lines:
        return Markdown()
    lines = visible_lines(lines)
    fence = _fence(lines, 3)
    return Markdown(f"{fence}{language}\n{lines}\n{fence}")


def _fence(lines: str, min_length: int) -> str:
    """Return as many backticks as no run of them in the lines has."""
    return "`" * max(min_length, 1 + max(map(len, re.findall("`+", lines)), default=0))


def cut(plain_text: str, longest: int = LONGEST_CELL) -> Markdown:
    """Return the text, cut where it is absurdly long."""
    return text(plain_text if len(plain_text) <= longest else plain_text[: longest - 1] + "…")


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> Markdown:
    """Return a table; a name that ends in ":" marks a column of numbers."""
    lines = [[name.removesuffix(":") for name in names]]
    lines.append([Markdown("--:" if name.endswith(":") else "---") for name in names])
    lines += map(list, rows)
    return join("\n", (Markdown(f"| {join(' | ', line)} |") for line in lines))


def items(lines: Iterable[str]) -> Markdown:
    """Return a list, an item a line."""
    return join("\n", (markdown("- {}", line) for line in lines))


def join(separator: LiteralString, parts: Iterable[str]) -> Markdown:
    """Return the parts with the separator between them; those not Markdown are escaped."""
    return Markdown(separator.join(map(text, parts)))


def fitting_count(lines: Sequence[str], max_count: int) -> int:
    """Return how many of the lines are shown: `max_count`, or those for which there is room."""
    sizes = itertools.accumulate(len(line.encode()) for line in lines[:max_count])
    return sum(size <= MAX_LIST_BYTES for size in sizes)


def omitted(total: int, shown_count: int) -> list[Markdown]:
    """Return a note on how many of `total` are left out, if any."""
    return [markdown("… {} others", f"{total - shown_count:,}")] if total > shown_count else []


def document(blocks: Sequence[Markdown], end: Sequence[Markdown]) -> str:
    """Return the blocks as a report, the last before its end left out where it is too long."""
    kept_blocks = list(blocks)
    while kept_blocks and len("\n\n".join([*kept_blocks, *end]).encode()) > MAX_BYTES - 100:
        kept_blocks.pop()
    if len(kept_blocks) < len(blocks):
        omitted_count = str(len(blocks) - len(kept_blocks))
        kept_blocks.append(markdown("… {} sections more are in the record.", omitted_count))
    return printable("\n\n".join(block for block in [*kept_blocks, *end] if block)) + "\n"
