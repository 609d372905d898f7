"""Names, texts and tables as Markdown in which nothing of the user's is markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from torchgauge.report.visible import visible

MOST_BYTES = 60_000  # GitHub refuses a comment of 65,536 characters
LONGEST = 80  # characters of a name
LONGEST_CELL = 300
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a name that ends in ":" is of a column of numbers."""
    line = [" | ".join(name.removesuffix(":") for name in names)]
    line.append(" | ".join("--:" if name.endswith(":") else "---" for name in names))
    line += [" | ".join(row) for row in rows]
    return "\n".join(f"| {one} |" for one in line)


def text(said: str) -> str:
    """Return the text so that nothing in it is markup."""
    return _SPECIAL.sub(r"\\\1", visible(" ".join(said.split()))).replace("&", "&amp;")


def code(name: str, longest: int = LONGEST) -> str:
    """Return a name as code, cut in the middle where it is long."""
    name = visible(" ".join(name.split()))
    if len(name) > longest:
        name = f"{name[: longest // 2]}…{name[-longest // 2 + 1 :]}"
    # A fence must be longer than any of the name's own, and a cell ends at a bar even in code.
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", name)), default=0))
    space = " " if name.startswith("`") or name.endswith("`") else ""
    return fence + space + (name.replace("|", "\\|") or " ") + space + fence


def cut(said: str) -> str:
    """Return the text of a cell, cut where it is absurdly long."""
    return said if len(said) <= LONGEST_CELL else said[: LONGEST_CELL - 1] + "…"


def more(count: int, shown: int) -> list[str]:
    """Say how many were left out."""
    return [f"… {count - shown:,} others"] if count > shown else []


def joined(parts: Sequence[str]) -> str:
    """Return the parts one after the other, the last ones left out where it becomes too long."""
    kept = list(parts)
    while len("\n\n".join(kept).encode()) > MOST_BYTES - 100:
        kept.pop()
    if len(kept) < len(parts):
        kept.append(f"… {len(parts) - len(kept)} sections more are in the record.")
    return "\n\n".join(kept) + "\n"
