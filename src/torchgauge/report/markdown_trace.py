"""A recorded trace, and two of them side by side, as Markdown for an issue or a pull request."""

from __future__ import annotations

from torchgauge.model.trace import Trace
from torchgauge.model.trace_diff import TraceDiff, TraceSide
from torchgauge.model.tree import Tree
from torchgauge.report import markdown_sheet as sheets
from torchgauge.report import trace as trace_report
from torchgauge.report import trace_diff as diff_report
from torchgauge.report import tree
from torchgauge.report.markdown_comparison import differences
from torchgauge.report.markdown_text import (
    Markdown,
    code,
    cut,
    items,
    joined,
    markdown,
    more,
    text,
    together,
)
from torchgauge.report.markdown_tree import layers
from torchgauge.report.trace_devices import devices, ranks
from torchgauge.report.trace_sheets import details
from torchgauge.report.trace_standing_out import standing_out, warned

RANKS = 16
MISSING = 20  # lines of what was not recorded


def render(trace: Trace) -> str:
    """Return what stands out, where time went, and the rank that the console shows too."""
    one = trace_report.chosen(trace)
    by = one.contents.recorder
    facts = (markdown("{}: {}", label, cut(said)) for label, said in trace_report.facts(trace, one))
    blocks = [
        markdown("### {}, recorded{}", code(trace.name), markdown(" by {}", by) if by else "")
    ]
    blocks += [together("<br>", facts), *sheets.findings(standing_out(trace, one))]
    if len(trace.ranks) > 1:
        blocks += sheets.sheet(ranks(trace, RANKS), RANKS)
        blocks.append(markdown("**Rank {}** ({})", str(one.rank), code(one.file)))
    if one.times:
        blocks += sheets.sheet(devices(one))
    for sheet in details(one):
        blocks += sheets.sheet(sheet)
    blocks += [*_tree(one.tree), *_missing(one.missing)]
    warnings = sheets.warnings(warned(trace, one))
    return joined([*blocks, *([markdown("**Warnings**"), *warnings] if warnings else [])])


def _tree(found: Tree) -> list[Markdown]:
    """Return layers where there are any, operators, and kernels, those with most time first."""
    blocks = layers(found) if any(row.kind == "layer" for row in found.rows) else []
    shown = tree.View(top=sheets.TOP)
    for name, told, columns in (
        ("operator", tree.operators(found, shown), tree.OPERATORS),
        ("kernel", tree.launches(found, shown), tree.KERNELS),
    ):
        lines, left = told
        if lines:
            title = f"{name.capitalize()}s by their own time"
            blocks += sheets.lines(title, found.how, lines, columns, first=name)
            blocks += more(len(lines) + left, len(lines))
    return blocks


def _missing(said: tuple[str, ...]) -> list[Markdown]:
    listed = [cut(one) for one in said[:MISSING]]
    left = more(len(said), MISSING)
    return [markdown("**Not recorded**"), items(listed), *left] if listed else []


def render_diff(diff: TraceDiff) -> str:
    """Return what differs around two traces, then what changed where."""
    blocks = [
        markdown("### Two traces, compared"),
        markdown("**A** {}<br>**B** {}", _side(diff.baseline), _side(diff.current)),
        *differences(diff.differences),
    ]
    if diff.parts:
        of, parts = diff_report.parts(diff)
        title = "Time of the devices"
        blocks += sheets.lines(title, of, parts, diff_report.PARTS, recorded=False)
    for changes in diff_report.told(diff):
        places, note = diff_report.places(changes, sheets.TOP)
        title = diff_report.TITLES[changes.kind]
        if places:
            blocks += sheets.lines(title, diff_report.OWN, places, diff_report.PLACES)
        blocks.append(text(note) if places else markdown("{}: {}", title, note))
    return joined([*blocks, *sheets.warnings(diff.warnings)])


def _side(side: TraceSide) -> Markdown:
    return markdown("{} {}", code(side.label), cut(diff_report.said(side)))
