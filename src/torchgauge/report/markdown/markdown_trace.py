"""A recorded trace, and two of them side by side, as Markdown for an issue or a pull request."""

from __future__ import annotations

from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.trace import Trace
from torchgauge.records.trace.trace_diff import TraceDiff, TraceSide
from torchgauge.report.console import trace as trace_report
from torchgauge.report.console import trace_diff as diff_report
from torchgauge.report.console import tree
from torchgauge.report.content.trace_devices import devices, ranks
from torchgauge.report.content.trace_findings import rank_findings, rank_warnings
from torchgauge.report.content.trace_sheets import details
from torchgauge.report.markdown import markdown_sheet as sheets
from torchgauge.report.markdown.markdown_comparison import differences
from torchgauge.report.markdown.markdown_text import (
    Markdown,
    code,
    cut,
    items,
    join,
    markdown,
    omitted,
    text,
    truncated_document,
)
from torchgauge.report.markdown.markdown_tree import layers

RANKS = 16
MISSING = 20  # lines of what was not recorded


def render(trace: Trace) -> str:
    """Return what stands out, where time went, and the rank that the console shows too."""
    rank_trace = trace_report.chosen_rank(trace)
    by = rank_trace.contents.recorder
    facts = (
        markdown("{}: {}", label, cut(value))
        for label, value in trace_report.facts(trace, rank_trace)
    )
    blocks = [
        markdown("### {}, recorded{}", code(trace.name), markdown(" by {}", by) if by else "")
    ]
    blocks += [join("<br>", facts), *sheets.finding_blocks(rank_findings(trace, rank_trace))]
    if len(trace.ranks) > 1:
        blocks += sheets.sheet_blocks(ranks(trace, RANKS), RANKS)
        blocks.append(markdown("**Rank {}** ({})", str(rank_trace.rank), code(rank_trace.file)))
    if rank_trace.times:
        blocks += sheets.sheet_blocks(devices(rank_trace))
    for sheet in details(rank_trace):
        blocks += sheets.sheet_blocks(sheet)
    blocks += [*_tree(rank_trace.tree), *_missing(rank_trace.missing)]
    warnings = sheets.warning_blocks(rank_warnings(trace, rank_trace))
    return truncated_document(
        [*blocks, *([markdown("**Warnings**"), *warnings] if warnings else [])]
    )


def _tree(recorded_tree: Tree) -> list[Markdown]:
    """Return layers where there are any, operators, and kernels, those with most time first."""
    blocks = layers(recorded_tree) if any(row.kind == "layer" for row in recorded_tree.rows) else []
    options = tree.View(top=sheets.TOP)
    for name, listing, columns in (
        ("operator", tree.operators(recorded_tree, options), tree.OPERATORS),
        ("kernel", tree.launches(recorded_tree, options), tree.KERNELS),
    ):
        lines, omitted_count = listing
        if lines:
            title = f"{name.capitalize()}s by their own time"
            blocks += sheets.line_blocks(title, recorded_tree.how, lines, columns, first=name)
            blocks += omitted(len(lines) + omitted_count, len(lines))
    return blocks


def _missing(missing: tuple[str, ...]) -> list[Markdown]:
    listed = [cut(sentence) for sentence in missing[:MISSING]]
    omitted_note = omitted(len(missing), MISSING)
    return [markdown("**Not recorded**"), items(listed), *omitted_note] if listed else []


def render_diff(diff: TraceDiff) -> str:
    """Return what differs around two traces, then what changed where."""
    blocks = [
        markdown("### Two traces, compared"),
        markdown("**A** {}<br>**B** {}", _side(diff.baseline), _side(diff.current)),
        *differences(diff.differences),
    ]
    if diff.parts:
        scope, parts = diff_report.parts(diff)
        title = "Time of the devices"
        blocks += sheets.line_blocks(title, scope, parts, diff_report.PARTS, recorded=False)
    for changes in diff_report.shown_tables(diff):
        places, note = diff_report.places(changes, sheets.TOP)
        title = diff_report.TITLES[changes.kind]
        if places:
            blocks += sheets.line_blocks(title, diff_report.BY_OWN_TIME, places, diff_report.PLACES)
        blocks.append(text(note) if places else markdown("{}: {}", title, note))
    return truncated_document([*blocks, *sheets.warning_blocks(diff.warnings)])


def _side(side: TraceSide) -> Markdown:
    return markdown("{} {}", code(side.label), cut(diff_report.side_details(side)))
