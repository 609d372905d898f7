"""Names, texts and tables as Markdown in which nothing of the user's is markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from torchgauge.report.visible import visible

LONGEST = 80  # characters of a name
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


def code(name: str) -> str:
    """Return a name as code, cut in the middle where it is long."""
    name = visible(" ".join(name.split()))
    if len(name) > LONGEST:
        name = f"{name[: LONGEST // 2]}…{name[-LONGEST // 2 + 1 :]}"
    # A fence must be longer than any of the name's own, and a cell ends at a bar even in code.
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", name)), default=0))
    space = " " if name.startswith("`") or name.endswith("`") else ""
    return fence + space + (name.replace("|", "\\|") or " ") + space + fence
