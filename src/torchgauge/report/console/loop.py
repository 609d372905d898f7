"""The timeline of a loop for a terminal: its steps, what was captured, where the time went."""

from __future__ import annotations

from rich.console import Group, RenderableType

from torchgauge import units
from torchgauge.records.timeline.loop import Captured, Loop
from torchgauge.report.console import traced_lines
from torchgauge.report.console import tree as tree_report
from torchgauge.report.console.console import section_view, warnings_view
from torchgauge.report.console.plain import plain
from torchgauge.report.console.text import END, Text
from torchgauge.report.console.tree import View
from torchgauge.report.content.section import Row, Section

ENDS = {
    "": "no step was seen to end",
    "call": "each ended by a call of the model",
    "optimizer": "each ended by the optimizer",
    "explicit": "each ended by run.step()",
}


def render(loop: Loop) -> str:
    """Return the summary as plain text (see `plain`)."""
    return plain(lambda width: view(loop, width=width))


def view(loop: Loop, tree_options: View | None = None, *, width: int) -> RenderableType:
    """Return the summary as something rich prints in `width` columns."""
    blocks: list[RenderableType] = [_head(loop)]
    if not loop.without_model:
        blocks += [Text(""), section_view(steps(loop))]
    if loop.tree is not None:
        blocks += [Text(""), tree_report.view(loop.tree, tree_options, width=width)]
    if loop.functions is not None:
        blocks += [Text(""), traced_lines.view(loop.functions, width)]
    if loop.all_warnings:
        title = "Warnings" if loop.complete else "Failed and warnings"
        blocks += [Text(""), warnings_view(title, list(loop.all_warnings))]
    return Group(*blocks)


def _head(loop: Loop) -> Text:
    if loop.without_model:
        return Text("A program that called no model", "bold cyan")
    roots = ", ".join(loop.roots) or "no module was called"
    rank = f", rank {loop.rank.number} of {loop.rank.world}" if loop.rank is not None else ""
    steps = f"{loop.count:,} step{'s' if loop.count != 1 else ''}"
    facts = f"  {steps}, {ENDS[loop.by]}{rank}"
    return Text.assemble((f"Loop of {roots}", "bold cyan"), END, facts)


def steps(loop: Loop) -> Section:
    """Return how long the steps took, and how many were captured."""
    rows = [Row("bare", units.time(loop.bare), "median, nothing attached")]
    recorded = loop.median("record")
    if recorded is not None:
        rows.append(Row("recorded", units.time(recorded), "median"))
    rows.append(Row("captured", _captured(loop.captured), _capture_note(loop.captured)))
    if loop.communication:
        note = f"the loop waited for {units.time(loop.waiting)} of it"
        rows.append(Row("communicated", units.time(loop.communication), note))
    return Section("Steps", "measured", tuple(rows))


def _captured(captured: Captured) -> str:
    requested = "" if captured.requested is None else f" of {captured.requested:,}"
    return f"{captured.recorded:,}{requested} steps"


def _capture_note(captured: Captured) -> str:
    parts = [captured.reason] if captured.reason else []
    if captured.events is not None and captured.memory is not None:
        parts.append(
            f"{captured.events:,} events and {units.size(captured.memory, 3)} of memory a step, "
            f"budget {units.size(captured.budget, 3)}"
        )
    return "; ".join(parts)
