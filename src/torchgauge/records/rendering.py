"""The one seam by which a record finds its renderer, by dotted name.

Records sit below reports and must not import them; a renderer is `render(record) -> str`, with
options where the format has any.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from torchgauge import randomness
from torchgauge.errors import InputError
from torchgauge.files import write_atomically
from torchgauge.garbage import no_collections

RENDERERS = {
    "benchmark": "torchgauge.report.export.benchmark",
    "brief": "torchgauge.report.export.brief",
    "console": "torchgauge.report.console.console",
    "csv": "torchgauge.report.csv.csv",
    "folded": "torchgauge.report.export.folded",
    "html": "torchgauge.report.page.html",
    "json": "torchgauge.report.export.json",
    "junit": "torchgauge.report.export.junit",
    "line": "torchgauge.report.console.line",
    "markdown": "torchgauge.report.markdown.markdown_blocks",
    "notebook": "torchgauge.report.notebook.notebook",
    "openmetrics": "torchgauge.report.export.openmetrics",
    "regressions": "torchgauge.report.content.rulings",
    "speedscope": "torchgauge.report.export.speedscope",
    "table": "torchgauge.report.csv.table",
}


def text(record: object, form: str, path: str | Path | None = None, **options: Any) -> str:
    """Return `record` rendered as `form`, and write it to `path` if one is given.

    Raises InputError `format-unfit` where the form is of another kind of record.
    """
    check_fit(type(record).__name__, form)
    with randomness.preserved_state(), no_collections():
        rendered: str = importlib.import_module(RENDERERS[form]).render(record, **options)
    if path is not None:
        write_atomically(Path(path), rendered.encode())
    return rendered


def segments(record: object, form: str, width: int) -> list[Any]:
    """Return what `rich` prints of the record in `width` columns, as "console" or "table"."""
    view = importlib.import_module(RENDERERS[form]).view
    plain = importlib.import_module("torchgauge.report.console.plain")
    with randomness.preserved_state():
        rendered: list[Any] = plain.segments(lambda columns: view(record, width=columns), width)
    return rendered


def check_fit(kind: str, form: str, name: str = "") -> None:
    """Raise InputError `format-unfit` where a kind of record has no such form, called `name`."""
    if not importlib.import_module("torchgauge.report.kinds").fits(kind, form):
        raise unfit(kind, name or form)


def save(record: object, path: Path) -> Path:
    """Write the record as JSON, whole or not at all, and return the path."""
    written: Path = importlib.import_module("torchgauge.records.codec").save(record, path)
    return written


def summary(record: object) -> dict[str, float | int | str | None]:
    """Return the flat view of a record, units in its keys."""
    row: dict[str, float | int | str | None] = importlib.import_module(
        "torchgauge.records.summary"
    ).summarize(record)
    return row


def categories(record: object) -> Any:
    """Return the table of a record's tree by category of operators."""
    return importlib.import_module("torchgauge.report.tables.category_table").of_record(record)


def unfit(kind: str, form: str) -> InputError:
    """Return the error that a kind of record cannot be written in a form."""
    return InputError(
        f"A record of this kind ({kind.lower()}) cannot be written as {form}.",
        id="format-unfit",
        remedy="Choose another: text and json show every record.",
    )


def trace(recorded: object, path: Path) -> Path:
    """Write a recording (`analyze.named_spans`) as a Chrome trace, and return the path."""
    with randomness.preserved_state():
        module = importlib.import_module("torchgauge.report.export.chrome_trace")
        written: Path = module.write(recorded, path)
    return written
