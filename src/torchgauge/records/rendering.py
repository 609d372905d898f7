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

RENDERERS = {
    "advice": "torchgauge.report.console.advice",
    "benchmark": "torchgauge.report.export.benchmark",
    "comparison": "torchgauge.report.console.comparison",
    "console": "torchgauge.report.console.console",
    "count": "torchgauge.report.console.count",
    "csv": "torchgauge.report.csv.csv",
    "doctor": "torchgauge.report.console.doctor",
    "folded": "torchgauge.report.export.folded",
    "growth": "torchgauge.report.content.growth",
    "html": "torchgauge.report.page.html",
    "json": "torchgauge.report.export.json",
    "junit": "torchgauge.report.export.junit",
    "loop": "torchgauge.report.console.loop",
    "markdown": "torchgauge.report.markdown.markdown",
    "notebook": "torchgauge.report.page.notebook",
    "openmetrics": "torchgauge.report.export.openmetrics",
    "regressions": "torchgauge.report.console.regressions",
    "ranks": "torchgauge.report.console.ranks",
    "snapshot": "torchgauge.report.console.snapshot",
    "speedscope": "torchgauge.report.export.speedscope",
    "sweep": "torchgauge.report.console.sweep",
    "table": "torchgauge.report.csv.table",
    "trace": "torchgauge.report.console.trace",
    "trace_diff": "torchgauge.report.console.trace_diff",
    "trend": "torchgauge.report.console.trend",
    "verdict": "torchgauge.report.console.verdict",
}
_RUNS = frozenset({"Profile", "Count", "Loop", "Ranks"})
# What a form for other tools can show, by the records' names; what is not here shows every record.
FITTING = {
    "benchmark": frozenset({"Profile", "Verdict"}),
    "csv": _RUNS | {"Comparison", "Growth", "Snapshot", "Sweep", "Trace", "Verdict"},
    "folded": _RUNS,
    "html": frozenset(
        {"Advice", "Profile", "Loop", "Comparison", "Growth", "Snapshot", "Sweep", "Trace"}
        | {"TraceDiff", "Trend", "Verdict"}
    ),
    "junit": frozenset({"Verdict"}),
    "markdown": _RUNS
    | {"Advice", "Comparison", "Growth", "Snapshot", "Sweep", "Trace", "TraceDiff", "Verdict"},
    "openmetrics": _RUNS | {"Sweep"},
    "speedscope": _RUNS,
}


def text(record: object, form: str, path: str | Path | None = None, **options: Any) -> str:
    """Return `record` rendered as `form`, and write it to `path` if one is given.

    Raises InputError `format-unfit` where the form is of another kind of record.
    """
    kind = type(record).__name__
    if kind not in FITTING.get(form, {kind}):
        raise unfit(kind, form)
    with randomness.preserved_state():
        rendered: str = importlib.import_module(RENDERERS[form]).render(record, **options)
    if path is not None:
        write_atomically(Path(path), rendered.encode())
    return rendered


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


def unfit(kind: str, form: str) -> InputError:
    """Return the error that a kind of record cannot be written in a form."""
    return InputError(
        f"A {kind.lower()} cannot be written as {form}.",
        id="format-unfit",
        remedy="Choose another: text and json show every record.",
    )


def trace(recorded: object, path: Path) -> Path:
    """Write a recording (`analyze.named_spans`) as a Chrome trace, and return the path."""
    with randomness.preserved_state():
        module = importlib.import_module("torchgauge.report.export.chrome_trace")
        written: Path = module.write(recorded, path)
    return written
