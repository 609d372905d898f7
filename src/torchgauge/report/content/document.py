"""The content of a report, as typed blocks; every format renders them without knowing it."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from torchgauge import units
from torchgauge.records.finding import Finding
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.quantity import Quantity
from torchgauge.records.timeline.tree import Tree as RecordedTree
from torchgauge.report.content.section import Section
from torchgauge.report.notebook.charts import Chart, Curve

Unit = Quantity | Literal["bar", "curve", "number", "delta", "change", "growth"]
"""How a column's values are shown; a value that is a text already is shown as it is."""
Tone = Literal["", "strong", "faint", "remark", "mark", "good", "bad", "doubtful"]
"""How a text stands out: its weight, or what it says of a change."""

FORMATS: dict[Unit, Callable[[Any], str]] = {
    "text": str,
    "time": lambda value: units.time(value, 3),
    "bytes": lambda value: units.size(value, 3),
    "count": lambda value: f"{value:,}",
    "percent": units.percent,
    "share": lambda value: f"{100 * value:.1f} %",
    "number": units.significant,
    "bytes/s": lambda value: f"{units.size(value, 3)}/s",
    "growth": lambda value: f"{'−' if value < 0 else '+'}{units.size(abs(value), 3)}",
}


class Detailed(NamedTuple):
    """A text, and what is less important behind it."""

    text: str
    detail: str

    def __str__(self) -> str:
        return self.text + self.detail


class AtLeast(float):
    """A figure that may be larger."""


class Options(NamedTuple):
    """What of a record is shown.

    Attributes:
        depth: Levels of layers; None: what suits the kind of record.
        top: Rows of a long table.
        sort: The order of operators (see `ORDERS`).
        by_shape: Whether operators on inputs of other shapes are told apart.
        by: What the work of a count is grouped by.
        points: Newest runs of a history that are listed.
        rank: The rank whose details are shown; None: the straggler or the first.
    """

    depth: int | None = None
    top: int = 10
    sort: str = "self"
    by_shape: bool = False
    by: Literal["layer", "operator", "type"] = "layer"
    points: int = 0
    rank: int | None = None


Value = str | float | Detailed | Curve | None


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table, for every output.

    Attributes:
        key: Its name, by which rows hold its values; that of the column in CSV.
        title: Its header; None: the key, of a bar nothing.
        unit: What its values are.
        get: Its value of a record; None: the attribute, or the entry, of its key.
        priority: When it is left out for room: the highest first; None: never.
        left_aligned: Whether it is a column of texts.
        tone: How it stands out.
        max_width: Of its texts, or how wide its bars are, in columns of a terminal.
        empty: What stands where a row has no value.
        recorded: Whether its texts come from a file, not from us.
        reserve: Columns of a terminal that its texts leave to others.
        judging: Whether it says in a word what the row's tone says.
        medium: What alone shows it; empty: all do.
    """

    key: str
    title: str | None = None
    unit: Unit = "text"
    get: Callable[[Any], Any] | None = None
    priority: int | None = None
    left_aligned: bool = False
    tone: Tone = ""
    max_width: int = 99
    empty: str = ""
    recorded: bool = False
    reserve: int = 0
    judging: bool = False
    medium: Literal["", "page", "text"] = ""

    @property
    def header(self) -> str:
        """The title, or the key in its place."""
        named = "" if self.unit == "bar" else self.key
        return named if self.title is None else self.title

    @property
    def drawn(self) -> bool:
        """Whether it is a drawing, for terminals alone."""
        return self.unit in ("bar", "curve")

    def value(self, record: Any) -> Any:
        """Return its value of a record, or of a mapping; None is unknown."""
        if self.get is not None:
            return self.get(record)
        return record.get(self.key) if isinstance(record, dict) else getattr(record, self.key)

    def text(self, row: Row) -> str:
        """Return the row's value as text."""
        value = row.cells.get(self.key)
        if value is None:
            return self.empty
        if isinstance(value, str | Detailed):
            return str(value)
        return "≥ " * isinstance(value, AtLeast) + FORMATS[self.unit](value)


class Row(NamedTuple):
    """A row of a table: `level` indents its name, `cells` are values by column.

    A `summary` is of several rows that are left out.
    """

    name: str | Detailed
    cells: Mapping[str, Value]
    level: int = 0
    tone: Tone = ""
    summary: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of a name and figures.

    Attributes:
        title: Its title, empty if what precedes it says what it is.
        how: How its figures are known, or what they are of.
        first: The header of the names.
        columns: Those after the names; one of which no row has a value is left out.
        rows: All rows, or the first of `total_rows`.
        recorded: Whether the names come from a file, not from us.
        notes: Sentences below it.
        total_rows: How many rows there are, where not all are given.
        top: How many rows a terminal shows at most; None: all.
        layout: On a terminal: "plain" wraps names, "cut" cuts them, "fitted" leaves columns out and
            cuts names, and "names last" gives long names the remaining room.
        longest: Columns of a name at most, of a fitted table.
        tight: Whether it belongs to what precedes it.
        noun: What rows that are left out are called.
        ranked_by: The column whose largest values a short form shows; empty: the first rows.
        key: What the page calls it; empty: the title.
    """

    title: str = ""
    how: str = ""
    first: str = ""
    columns: Sequence[Column]
    rows: Sequence[Row]
    recorded: bool = False
    notes: Sequence[str] = ()
    total_rows: int = 0
    top: int | None = None
    layout: Literal["plain", "cut", "fitted", "names last"] = "plain"
    longest: int = 48
    tight: bool = False
    noun: str = ""
    ranked_by: str = ""
    key: str = ""

    @property
    def text_columns(self) -> list[Column]:
        """The columns that are not the page's alone."""
        return [column for column in self.columns if column.medium != "page"]

    @property
    def used_columns(self) -> list[Column]:
        """The columns of which any row has a value, and those that say where one has none."""
        used = {key for row in self.rows for key in row.cells}
        return [column for column in self.text_columns if column.empty or column.key in used]

    @property
    def total(self) -> int:
        """How many rows there are in all."""
        return max(self.total_rows, len(self.rows))


def cells(columns: Iterable[Column], record: Any) -> dict[str, Value]:
    """Return a record's values by column, without unknown and empty ones."""
    values = {column.key: column.value(record) for column in columns}
    return {key: value for key, value in values.items() if value is not None and value != ""}


def rows_of(
    columns: Iterable[Column],
    records: Iterable[Any],
    name: Callable[[Any], str | Detailed] = operator.attrgetter("name"),
) -> list[Row]:
    """Return a row for each record, its values those that the columns get."""
    return [Row(name(record), cells(columns, record)) for record in records]


@dataclasses.dataclass(frozen=True)
class Facts:
    """Labels with their texts, below a title or the document's.

    `label` and `max_label` are how wide labels are on a terminal, at least and at most. Texts that
    are `recorded` are not ours.
    """

    pairs: Sequence[tuple[str, str | Detailed]]
    title: str = ""
    how: str = ""
    label: int = 14
    max_label: int | None = None
    recorded: bool = False
    tone: Tone = ""
    tight: bool = False


@dataclasses.dataclass(frozen=True)
class Findings:
    """What stands out, each with evidence and what to try; `ids` adds the ids of the rules."""

    findings: Sequence[Finding]
    title: str = "What stands out"
    ids: bool = False


@dataclasses.dataclass(frozen=True)
class Warnings:
    """Warnings of a measurement."""

    warnings: Sequence[MeasurementWarning]
    title: str = "Warnings"


@dataclasses.dataclass(frozen=True)
class Items:
    """Texts with a sign each, and a label each if given; `omitted_count` are left out."""

    title: str
    entries: Sequence[tuple[str, str | Detailed]]
    labels: Sequence[str] = ()
    recorded: bool = False
    omitted_count: int = 0
    level: int = 0
    tight: bool = False


@dataclasses.dataclass(frozen=True)
class Note:
    """A sentence by itself; a `tight` one belongs to what precedes it."""

    text: str
    tone: Tone = ""
    tight: bool = False
    level: int = 0


@dataclasses.dataclass(frozen=True)
class Heading:
    """A title of several blocks.

    Attributes:
        title: What they are about.
        detail: What is less important behind it.
        how: How their figures are known.
        headline: What came out, in a clause.
        line: What is said below it.
        tone: How it stands out.
        level: How far it is indented.
        tight: Whether it belongs to what precedes it.
    """

    title: str
    detail: str = ""
    how: str = ""
    headline: str = ""
    line: str = ""
    tone: Tone = "mark"
    level: int = 0
    tight: bool = False


@dataclasses.dataclass(frozen=True)
class Tree:
    """A recorded step as a tree: its layers, operators, kernels and lines, by time."""

    tree: RecordedTree
    options: Options


@dataclasses.dataclass(frozen=True)
class Listing:
    """Lines of a program."""

    lines: str
    language: Literal["python", "sh"] = "python"
    tight: bool = True


Block = Section | Tree | Listing | Table | Facts | Findings | Warnings | Items | Note | Heading


@dataclasses.dataclass(frozen=True)
class Document:
    """The content of a report.

    Attributes:
        title: What it is about.
        how: What was done to it: "measured", "recorded by …", "compared".
        headline: What came out, in a clause.
        line: What is said below the title.
        facts: What was measured, where and when.
        blocks: Figures, tables, findings and warnings in reading order.
        conclusion: What it comes to: the last on a terminal, the first elsewhere.
        names: The user's names that the title is made of; none: it is ours.
        tone: How the title stands out.
        charts: Drawings of the figures, for formats that draw.
    """

    title: str
    how: str = ""
    headline: str = ""
    line: str = ""
    facts: Facts | None = None
    blocks: Sequence[Block] = ()
    conclusion: Sequence[Block] = ()
    names: Sequence[str] = ()
    tone: Tone = "mark"
    charts: Sequence[Chart] = ()
