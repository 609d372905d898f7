"""Regressions as lines: the metric, its change, and what is not known."""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.comparison import Change, Regressions
from torchgauge.report.console.text import Text
from torchgauge.report.content.changes import corrected_change, interval, relative
from torchgauge.visible import one_line, printable


def render(regressions: Regressions) -> str:
    """Return one line for each metric."""
    lines = [f"{change.label} got worse: {_change(change)}" for change in regressions.regressed]
    if not lines:
        lines.append("No regression was found.")
    lines += [
        f"{change.label} is inconclusive: {_change(change)}; {change.reason}"
        for change in regressions.undecided
    ]
    return printable("\n".join(map(one_line, lines)))


def view(regressions: Regressions, *, width: int) -> Text:  # noqa: ARG001 - rich breaks the lines
    """Return the lines as something rich prints."""
    return Text.of_lines(render(regressions))


def _change(change: Change) -> str:
    baseline = units.amount(change.baseline, change.unit, change.metric)
    current = units.amount(change.current, change.unit, change.metric)
    figures = f"{baseline} → {current}"
    interval_text = interval(change)
    parts = (
        relative(change.change),
        interval_text and f"95 % in {interval_text}",
        corrected_change(change),
    )
    details = ", ".join(part for part in parts if part)
    return f"{figures} ({details})" if details else figures
