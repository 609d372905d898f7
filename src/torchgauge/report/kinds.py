"""The kinds of records, a line each: where its content is made, and the exports that fit it."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from torchgauge.records.record import How, Record
from torchgauge.report.content.document import Document, Options

_STACKS = frozenset({"folded", "openmetrics", "speedscope"})
_PAGE = frozenset({"csv", "html", "markdown"})
_RUN = _STACKS | _PAGE
_CI = frozenset({"benchmark", "junit"})


class Kind(NamedTuple):
    """How records of a kind are reported.

    Attributes:
        content: The module in `report/content/` with its `document`, or "module:function".
        exports: The formats that can show it, besides text and JSON, which show every record.
        page: The module in `report/page/` with the `PARTS` of its page; empty: any document's.
        csv: The module in `report/csv/` with its `table`, or "module:function"; empty: the first
            table of the document.
        how: How those figures are known whose block does not say it.
    """

    content: str
    exports: frozenset[str]
    page: str = ""
    csv: str = ""
    how: How = "measured"


# By the name of the type, whose schema the type itself has; `parts.py` has the parts of these.
KINDS = {
    "Advice": Kind("advice", frozenset({"html", "markdown"}), "page_advice"),
    "CapacityPlan": Kind(
        "serving.capacity", _PAGE, "serving.page_capacity", "rows_csv:settings", "estimated"
    ),
    "Comparison": Kind("comparison", _PAGE, "page_comparison", "comparison_csv"),
    "Count": Kind("count", _STACKS | {"csv", "markdown"}, "", "count_csv", "counted"),
    "Diagnosis": Kind("doctor", frozenset()),
    "Generation": Kind(
        "generation.generation",
        _PAGE | {"openmetrics"},
        "generation.page_generation",
        "rows_csv:shapes",
    ),
    "Growth": Kind("snapshot:growth_document", _PAGE, "page_growth", "snapshot_csv", "counted"),
    "Loop": Kind("loop", _RUN, "page_loop", "tree_csv"),
    "Parallel": Kind(
        "parallel.parallel",
        _PAGE | {"openmetrics"},
        "parallel.page_parallel",
        "tree_csv:of_parallel",
        "estimated",
    ),
    "Profile": Kind("profile", _RUN | {"benchmark"}, "page_profile", "tree_csv"),
    "Ranks": Kind("trace:ranks_document", _STACKS | {"csv", "markdown"}, "", "tree_csv"),
    "Serving": Kind(
        "serving.serving", _PAGE | {"openmetrics"}, "serving.page_serving", "rows_csv:levels"
    ),
    "Snapshot": Kind("snapshot", _PAGE, "page_snapshot", "snapshot_csv"),
    "Sweep": Kind("sweep", _PAGE | {"openmetrics"}, "page_sweep", "rows_csv:cells"),
    "Trace": Kind("trace", _PAGE, "page_trace", "tree_csv:of_trace"),
    "TraceDiff": Kind("trace:diff_document", frozenset({"html", "markdown"}), "page_trace_diff"),
    "TrainingRun": Kind("training.training_run", _PAGE | {"openmetrics"}, "", "tree_csv"),
    "Trend": Kind("trend", frozenset({"html"}), "page_trend"),
    "Verdict": Kind("verdict", _PAGE | _CI, "page_verdict", "comparison_csv"),
}
EXPORTS = frozenset[str]().union(*(kind.exports for kind in KINDS.values()))


def fits(name: str, form: str) -> bool:
    """Whether records of a type can be shown in a format."""
    kind = KINDS.get(name)
    return form not in EXPORTS or (kind is not None and form in kind.exports)


def document(record: Record, options: Options | None = None) -> Document:
    """Return the document of a record, or of a part of it."""
    if type(record).__name__ in KINDS:
        make = function(record, "content", "document")
    else:
        make = importlib.import_module("torchgauge.report.parts").document
    record_document: Document = make(record, options or Options())
    return record_document


def function(record: Record, format_name: str, name: str) -> Any:
    """Return its kind's function for "content" or "csv", called `name` unless it says another."""
    module = part(record, format_name)
    own_name = getattr(KINDS[type(record).__name__], format_name).partition(":")[2]
    return module and getattr(module, own_name or name)


def part(record: Record, format_name: str) -> Any:
    """Return its kind's module for "content", "page" or "csv"; None without one."""
    name = getattr(KINDS[type(record).__name__], format_name).partition(":")[0]
    return importlib.import_module(f"torchgauge.report.{format_name}.{name}") if name else None


def default_how(record: Record) -> How:
    """Return how a record's figures are known whose block does not say it."""
    kind = KINDS.get(type(record).__name__)
    how: How = getattr(record, "how", "measured") if kind is None else kind.how
    return how
