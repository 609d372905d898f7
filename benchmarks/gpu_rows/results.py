"""The results of a run: JSON lines as they come, and the Markdown table made of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpu_rows.every import ROWS
from gpu_rows.line import Line

BEGIN, END = "<!-- gpu table -->\n", "<!-- end of gpu table -->\n"
HEAD = ("row", "of", "torchgauge", "beside it", "goal", "verdict")


def append(path: Path, line: Line) -> None:
    """Add a line to a file of JSON lines; the last one may have been cut."""
    cut = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    with path.open("a") as file:
        file.write("\n" * cut + json.dumps(line.as_dict()) + "\n")


def read(path: Path) -> list[Line]:
    """Return the lines of a file, without those that were cut where their writer was killed."""
    lines = []
    for text in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            lines.append(Line(**json.loads(text)))
    return lines


def not_run(reason: str, rows: Iterable[str] | None = None) -> list[Line]:
    """Return a line for each row that says why it was not run."""
    wanted = {row.name for row in ROWS} if rows is None else set(rows)
    return [
        Line(row.subject, verdict="not run", note=reason, row=row.name)
        for row in ROWS
        if row.name in wanted
    ]


def latest(runs: Iterable[Sequence[Line]]) -> list[Line]:
    """Return the lines of several runs: of each row those of the last run that has it."""
    by_row: dict[str, list[Line]] = {}
    for lines in runs:
        names = dict.fromkeys(line.row for line in lines)
        by_row |= {name: [line for line in lines if line.row == name] for name in names}
    order = [row.name for row in ROWS]
    names = sorted(by_row, key=lambda name: order.index(name) if name in order else len(order))
    return [line for name in names for line in by_row[name]]


def table(lines: Iterable[Line]) -> str:
    """Return the Markdown table."""
    text = f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}\n"
    for line in lines:
        verdict = line.verdict + (f": {line.note}" if line.note else "")
        cells = (line.row, line.of, line.ours, line.beside, line.goal, verdict)
        text += f"| {' | '.join(map(_cell, cells))} |\n"
    return text


def put_into_page(page: Path, made: str) -> None:
    """Replace the table between the marks of a page. Raises ValueError where there are none."""
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        message = f"{page} has no {BEGIN.strip()} … {END.strip()}"
        raise ValueError(message)
    page.write_text(before + begin + made + end + after)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split()) or "—"
