"""Regressions as lines: the metric, its change, and what is not known."""

from __future__ import annotations

from torchgauge import units
from torchgauge.model.comparison import Change
from torchgauge.model.regressions import Regressions
from torchgauge.report.comparison import corrected, interval, relative
from torchgauge.visible import one_line, printable


def render(found: Regressions) -> str:
    """Return one line for each metric."""
    lines = [f"{one.metric} got worse: {_change(one)}" for one in found.found]
    if not lines:
        lines.append("No regression was found.")
    lines += [
        f"{one.metric} is inconclusive: {_change(one)}; {one.reason}" for one in found.undecided
    ]
    return printable("\n".join(map(one_line, lines)))


def _change(one: Change) -> str:
    figures = f"{units.amount(one.baseline, one.unit)} → {units.amount(one.current, one.unit)}"
    reach = interval(one)
    parts = (relative(one.change), reach and f"95 % in {reach}", corrected(one))
    by = ", ".join(part for part in parts if part)
    return f"{figures} ({by})" if by else figures
