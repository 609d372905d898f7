"""A recorded trace, and two of them side by side, as Markdown for an issue or a pull request."""

from __future__ import annotations

from torchgauge.model.trace import Trace
from torchgauge.model.trace_diff import TraceDiff, TraceSide
from torchgauge.model.tree import Tree
from torchgauge.report import markdown_sheet as markdown
from torchgauge.report import trace as trace_report
from torchgauge.report import trace_diff as diff_report
from torchgauge.report import tree
from torchgauge.report.markdown_comparison import differences
from torchgauge.report.markdown_text import code, cut, joined, more, text
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
    facts = (f"{label}: {cut(text(said))}" for label, said in trace_report.facts(trace, one))
    blocks = [f"### {code(trace.name)}, recorded{f' by {text(by)}' if by else ''}"]
    blocks += ["<br>".join(facts), *markdown.findings(standing_out(trace, one))]
    if len(trace.ranks) > 1:
        blocks += markdown.sheet(ranks(trace, RANKS), RANKS)
        blocks.append(f"**Rank {one.rank}** ({code(one.file)})")
    if one.times:
        blocks += markdown.sheet(devices(one))
    for sheet in details(one):
        blocks += markdown.sheet(sheet)
    blocks += [*_tree(one.tree), *_missing(one.missing)]
    warnings = markdown.warnings(warned(trace, one))
    return joined([*blocks, *(["**Warnings**", *warnings] if warnings else [])])


def _tree(found: Tree) -> list[str]:
    """Return layers where there are any, operators, and kernels, those with most time first."""
    blocks = layers(found) if any(row.kind == "layer" for row in found.rows) else []
    shown = tree.View(top=markdown.TOP)
    for name, told, columns in (
        ("operator", tree.operators(found, shown), tree.OPERATORS),
        ("kernel", tree.launches(found, shown), tree.KERNELS),
    ):
        lines, left = told
        if lines:
            title = f"{name.capitalize()}s by their own time"
            blocks += markdown.lines(title, found.how, lines, columns, first=name)
            blocks += more(len(lines) + left, len(lines))
    return blocks


def _missing(said: tuple[str, ...]) -> list[str]:
    listed = [f"- {cut(text(one))}" for one in said[:MISSING]]
    left = more(len(said), MISSING)
    return ["**Not recorded**", "\n".join(listed), *left] if listed else []


def render_diff(diff: TraceDiff) -> str:
    """Return what differs around two traces, then what changed where."""
    blocks = [
        "### Two traces, compared",
        f"**A** {_side(diff.baseline)}<br>**B** {_side(diff.current)}",
        *differences(diff.differences),
    ]
    if diff.parts:
        of, parts = diff_report.parts(diff)
        title = "Time of the devices"
        blocks += markdown.lines(title, of, parts, diff_report.PARTS, recorded=False)
    for changes in diff_report.told(diff):
        places, note = diff_report.places(changes, markdown.TOP)
        title = diff_report.TITLES[changes.kind]
        if places:
            blocks += markdown.lines(title, diff_report.OWN, places, diff_report.PLACES)
        blocks.append(text(note) if places else f"{text(title)}: {text(note)}")
    return joined([*blocks, *markdown.warnings(diff.warnings)])


def _side(side: TraceSide) -> str:
    return f"{code(side.label)} {cut(text(diff_report.said(side)))}".rstrip()
