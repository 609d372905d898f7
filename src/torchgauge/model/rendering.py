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
    "advice": "torchgauge.report.advice",
    "benchmark": "torchgauge.report.benchmark",
    "comparison": "torchgauge.report.comparison",
    "console": "torchgauge.report.console",
    "count": "torchgauge.report.count",
    "csv": "torchgauge.report.csv",
    "doctor": "torchgauge.report.doctor",
    "folded": "torchgauge.report.folded",
    "growth": "torchgauge.report.growth",
    "html": "torchgauge.report.html",
    "json": "torchgauge.report.json",
    "junit": "torchgauge.report.junit",
    "loop": "torchgauge.report.loop",
    "markdown": "torchgauge.report.markdown",
    "notebook": "torchgauge.report.notebook",
    "openmetrics": "torchgauge.report.openmetrics",
    "regressions": "torchgauge.report.regressions",
    "ranks": "torchgauge.report.ranks",
    "snapshot": "torchgauge.report.snapshot",
    "speedscope": "torchgauge.report.speedscope",
    "sweep": "torchgauge.report.sweep",
    "table": "torchgauge.report.table",
    "trace": "torchgauge.report.trace",
    "trace_diff": "torchgauge.report.trace_diff",
    "trend": "torchgauge.report.trend",
    "verdict": "torchgauge.report.verdict",
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
    with randomness.kept():
        rendered: str = importlib.import_module(RENDERERS[form]).render(record, **options)
    if path is not None:
        write_atomically(Path(path), rendered.encode())
    return rendered


def unfit(kind: str, form: str) -> InputError:
    """Return the error that a kind of record cannot be written in a form."""
    return InputError(
        f"A {kind.lower()} cannot be written as {form}.",
        id="format-unfit",
        remedy="Choose another: text and json show every record.",
    )


def trace(recorded: object, path: Path) -> Path:
    """Write a recording (`analyze.named_spans`) as a Chrome trace, and return the path."""
    with randomness.kept():
        module = importlib.import_module("torchgauge.report.chrome_trace")
        written: Path = module.write(recorded, path)
    return written
