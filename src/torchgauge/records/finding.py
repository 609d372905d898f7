"""A finding: what costs time or memory, or distorts a measurement, with evidence and a remedy."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import Record

Severity = Literal["info", "warning", "serious"]


class Finding(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One finding; `id` is stable.

    Of a machine, "serious": figures are most likely wrong. "warning": they scatter more, or are a
    few percent off. "info": nothing is wrong, and who reads the figures should know it. Of a model
    or a trace they say how much of the time or memory it is about.

    Attributes:
        id: The rule's name.
        severity: How much it matters.
        title: What it is, in one line.
        evidence: The figures that it is based on.
        remedy: What to do about it.
        time: Seconds that it speaks of, of the step or of the trace's window.
        worth: Seconds that the remedy could save at most; None where that is not known.
        path: The qualified name of the layer that it is about.
        node: The row of the tree to look at.
        search: What to look for in the tree.
        view: The view of the page that details it.
        source: Where the remedy is documented.
    """

    id: str
    severity: Severity
    title: str
    evidence: str
    remedy: str = ""
    time: float | None = None
    worth: float | None = None
    path: str = ""
    node: int | None = None
    search: str = ""
    view: str = ""
    source: str = ""
