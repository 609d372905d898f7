"""The page of any document: its figures, findings and warnings first, then its tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from torchgauge.records.finding import Finding
from torchgauge.records.record import MeasurementWarning, Record
from torchgauge.report import kinds
from torchgauge.report.content import sections
from torchgauge.report.content.document import Findings, Table, Warnings
from torchgauge.report.content.findings import evidence_text
from torchgauge.report.content.section import Section
from torchgauge.report.page.page_shorter import short, shortened_table
from torchgauge.report.page.page_tables import document_table

# The kind of events that a finding is about; the timeline shows the longest of them.
_KINDS = {
    "exposed-communication": "communication",
    "collectives-on-compute-stream": "communication",
    "small-collectives": "communication",
    "straggler": "communication",
    "slow-collective": "communication",
    "pageable-copies": "copy",
    "exposed-copies": "copy",
    "small-copies": "copy",
    "idle-host": "idle: host",
    "launch-bound": "idle: host",
    "synchronisation": "idle: host",
    "input-pipeline": "idle: host",
    "idle-device": "idle: other",
    "idle-unknown": "idle: unknown",
}


def first_screen(
    facts: Iterable[Sequence[str]],
    figures: Iterable[dict[str, str]],
    findings: Iterable[dict[str, Any]] = (),
    recorded_warnings: Iterable[MeasurementWarning] = (),
    *,
    created: str = "",
    bound: dict[str, Any] | None = None,
    phases: dict[str, Any] | None = None,
    complete: bool = True,
    interrupted: bool = False,
    notices: Iterable[str] | None = None,
) -> dict[str, Any]:
    """Return the first screen of a page.

    Args:
        facts: What was measured: label, text and what is less important behind it.
        figures: The headline figures, as `figure` makes them.
        findings: What stands out, as `finding_entry` or `finding` makes it.
        recorded_warnings: The warnings of the record.
        created: When the record was made.
        bound: What the call waits for.
        phases: The parts of a training step.
        complete: Whether no probe failed.
        interrupted: Whether Ctrl-C ended it.
        notices: Sentences above everything; None: the page has no room for any.
    """
    part = {} if notices is None else {"notices": list(notices)}
    return part | {
        "facts": [list(fact) for fact in facts],
        "created": created,
        "figures": list(figures),
        "bound": bound,
        "phases": phases,
        "findings": list(findings),
        "warnings": warnings(recorded_warnings),
        "complete": complete,
        "interrupted": interrupted,
    }


def figure(
    label: str, value: str, note: str = "", how: str = "measured", view: str = ""
) -> dict[str, str]:
    """Return a headline figure; `view` is the view with its details."""
    return {"label": label, "value": value, "note": note, "how": how, "view": view}


def finding(title: str, text: str, view: str) -> dict[str, Any]:
    """Return what stands out of a comparison or a history, and the view with its details."""
    return {"title": title, "text": text, "view": view, "node": None, "search": ""}


def finding_entry(record: Finding, view: str = "") -> dict[str, Any]:
    """Return a finding's entry; `view` is the view of a finding that names none."""
    return {
        "title": short(record.title),
        "text": short(f"{evidence_text(record)} {record.remedy}".strip()),
        "view": record.view or view,
        "node": record.node,
        "search": record.search,
        "kind": _KINDS.get(record.id, ""),
    }


def warnings(records: Iterable[MeasurementWarning]) -> list[dict[str, Any]]:
    """Return the warnings, those of failed probes first."""
    ordered = sorted(records, key=lambda warning: not warning.failed)
    return [
        {
            "id": warning.id,
            "probe": warning.probe,
            "failed": warning.failed,
            "text": sections.warning_text(warning),
        }
        for warning in ordered
    ]


def bar(
    name: str, total: int, amounts: Iterable[int], cells: list[str], note: str = "", level: int = 0
) -> dict[str, Any]:
    """Return a row of a chart of parts: `amounts` of the total, and further cells."""
    return {
        "name": name,
        "level": level,
        "whole": total,
        "amounts": list(amounts),
        "more": cells,
        "note": note,
        "option": None,
    }


MAX_ROWS = 5_000  # of a table


class Option(NamedTuple):
    """An option with its parts of the page; a part that is None is left out."""

    name: str
    parts: dict[str, Any]


class Choice(NamedTuple):
    """The options, what they are (`label`), and the index of the one shown first.

    They are chosen in the page's header, or in the `view` that they are about.
    """

    label: str
    options: list[Option]
    first: int = 0
    view: str = ""

    def without(self, names: Collection[str]) -> Choice:
        """Return the choice without the parts of these names, and without parts that are None."""
        options = [
            Option(
                option.name,
                {k: v for k, v in option.parts.items() if v is not None and k not in names},
            )
            for option in self.options
        ]
        return self._replace(options=options)


def title(record: Record) -> str:
    """Return the title of the document."""
    return kinds.document(record).title


def overview(record: Record) -> dict[str, Any]:
    """Return the first screen: facts, figures, what stands out, and warnings."""
    document = kinds.document(record)
    facts = () if document.facts is None else document.facts.pairs
    sections = [block for block in document.blocks if isinstance(block, Section)]
    listed = [block.warnings for block in document.blocks if isinstance(block, Warnings)]
    recorded_warnings = [warning for group in listed for warning in group]
    return first_screen(
        ([label, short(str(text)), ""] for label, text in facts),
        (
            figure(row.label, row.value, row.note, row.how or section.how)
            for section in sections
            for row in section.rows
        ),
        (
            finding_entry(finding)
            for block in document.blocks
            if isinstance(block, Findings)
            for finding in block.findings
        ),
        recorded_warnings,
        complete=not any(warning.failed for warning in recorded_warnings),
    )


def tables(record: Record) -> list[dict[str, Any]] | None:
    """Return the tables, each figure in its unit; texts where a column has other values."""
    shown_tables = [block for block in kinds.document(record).blocks if isinstance(block, Table)]
    return [shortened_table(document_table(block), MAX_ROWS) for block in shown_tables] or None


PARTS = {"overview": overview, "tables": tables}
