"""A record as one line for logs, lists and the interpreter: what it is and its headline figures."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType

from torchgauge import units
from torchgauge.records.record import Record
from torchgauge.records.run import Run
from torchgauge.report import kinds
from torchgauge.report.console.bar import fitted_table
from torchgauge.report.console.text import Text
from torchgauge.report.content import document as doc
from torchgauge.report.content.section import Section
from torchgauge.visible import one_line

LONGEST, LONGEST_NAME, LONGEST_CLAUSE = 120, 40, 60
END = ", …>"


def render(record: Record) -> str:
    """Return `<Profile Net: median 10.00 ms, peak 1.000 kB, …>`, at most 120 characters."""
    kind, document = type(record).__name__, kinds.document(record)
    title = one_line(", ".join(document.names) or document.title)
    title = _cut(title, LONGEST_NAME)
    head = title if title.startswith(kind) else f"{kind} {title}".strip()
    return line(head, _clauses(document))


def line(head: str, clauses: Iterable[str]) -> str:
    """Return the head with as many of the clauses as there is room for."""
    text, separator = f"<{head}", ": "
    for clause in filter(None, map(one_line, clauses)):
        text_of_clause = _cut(clause.rstrip("."), LONGEST_CLAUSE)
        if len(text) + len(separator) + len(text_of_clause) + len(END) > LONGEST:
            return text + END
        text, separator = f"{text}{separator}{text_of_clause}", ", "
    return f"{text}>"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _clauses(document: doc.Document) -> Iterator[str]:
    """Yield what came out: the first figure of each section, or all of a single one."""
    yield document.headline
    yield document.line
    sections = [block for block in document.blocks if isinstance(block, Section)]
    for section in sections:
        for row in section.rows if len(sections) == 1 else section.short.rows[:1]:
            yield f"{row.label} {row.value}"
    if not sections:
        for block in document.blocks:
            yield from _texts(block)
        facts = () if document.facts is None else document.facts.pairs
        yield from (f"{label} {text}" for label, text in facts)


def _texts(block: doc.Block) -> Iterator[str]:
    """Yield what a block says, in clauses."""
    if isinstance(block, doc.Facts):
        yield from (f"{label} {text}" for label, text in block.pairs)
    elif isinstance(block, doc.Items):
        yield from (str(text) for _, text in block.entries)
    elif isinstance(block, doc.Note):
        yield block.text
    elif isinstance(block, doc.Findings):
        yield from [block.title] * (block.title != doc.Findings.title)
        yield from (finding.title for finding in block.findings)
    elif isinstance(block, doc.Warnings):
        yield from (f"{warning.id}: {warning.message}" for warning in block.warnings)
    elif isinstance(block, doc.Tree):
        root = block.tree.root
        yield f"{root.name} {units.time(root.time, 3)}"
        yield f"{len(block.tree.rows):,} rows"
    elif isinstance(block, doc.Table):
        yield from (text for row in block.rows if (text := _row(block, row)))


def _row(table: doc.Table, row: doc.Row) -> str:
    """Return a row's change, or its first figure."""
    columns = [column for column in table.columns if not column.drawn and column.text(row)]
    chosen = next((column for column in columns if column.key == "change"), None)
    column = chosen or next(iter(columns), None)
    return "" if column is None else f"{row.name} {column.text(row)}"


COLUMNS = (
    # Of a generation the shape, of a load the level: runs of one record differ in nothing else.
    doc.Column("part", left_aligned=True, max_width=44),
    doc.Column("run", left_aligned=True),
    doc.Column("commit", left_aligned=True),
    doc.Column("branch", priority=1, left_aligned=True, max_width=20),
    doc.Column("device", priority=2, left_aligned=True),
    doc.Column("precision", priority=4, left_aligned=True),
    doc.Column("machine", priority=3, left_aligned=True),
    doc.Column("labels", priority=5, left_aligned=True, max_width=30),
)


def view(runs: Sequence[Run], width: int) -> RenderableType:
    """Return one line per run."""
    if not runs:
        return Text("No such run.")
    lines = [doc.Row(f"{created_at(run)}  {run.target}", _cells(run)) for run in runs]
    return fitted_table("created           target", lines, COLUMNS, width)


def created_at(run: Run) -> str:
    """Return when a run was made, to the minute and in UTC."""
    return run.created[:16].replace("T", " ")


def head(run: Run) -> Text:
    """Return a run's id, commit, branch, message and labels in one line."""
    commit = run.commit[:10] + (" with changes" if run.dirty else "")
    labels = " ".join(f"{key}={value}" for key, value in run.labels.items())
    parts = [f"run {run.uuid}", commit, run.branch, run.message, labels]
    return Text(one_line(" · ".join(filter(None, parts))), style="dim")


def _cells(run: Run) -> dict[str, doc.Value]:
    cells = {
        "part": run.model.partition(", ")[2],
        "run": run.uuid[:8],
        "commit": run.commit[:10] + ("+" if run.dirty else ""),
        "branch": run.branch,
        "device": run.device,
        "precision": run.precision,
        "machine": run.machine[:8],
        "labels": " ".join(f"{key}={value}" for key, value in run.labels.items()),
    }
    return {name: text for name, text in cells.items() if text}


BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the values between their lowest and highest, in `width` columns at most.

    Where there are more values than columns, a column is the median of its share.
    """
    columns = min(width, len(values))
    ends = [len(values) * column // columns for column in range(columns + 1)] if columns else []
    medians = [statistics.median(values[a:b]) for a, b in itertools.pairwise(ends)]
    low, high = min(medians, default=0.0), max(medians, default=0.0)
    if low == high:
        return BLOCKS[3] * columns
    return "".join(BLOCKS[round((value - low) / (high - low) * 7)] for value in medians)


def stepped(points: Sequence[Sequence[float | None]], column: int, width: int) -> str:
    """Draw a column of points: the first is the time, and each holds until the next."""
    end = points[-1][0] or 1.0
    columns: list[float] = [0.0] * width
    for point, next_point in itertools.pairwise((*points, points[-1])):
        begin, last = (_column((endpoint[0] or 0) / end, width) for endpoint in (point, next_point))
        for index in range(begin, last + 1):
            columns[index] = max(columns[index], point[column] or 0)
    return sparkline(columns, width)


def _column(share: float, width: int) -> int:
    """Return the column of a share of the width; a clock that ran back gives a share below 0."""
    return min(int(min(max(share, 0.0), 1.0) * width), width - 1)
