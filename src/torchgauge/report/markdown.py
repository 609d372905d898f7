"""The headline figures and top layers as Markdown, short enough for a pull request's comment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torchgauge import units
from torchgauge.model.advice import Advice
from torchgauge.model.comparison import Comparison
from torchgauge.model.cost import Cost
from torchgauge.model.count import Count
from torchgauge.model.exported import Exported
from torchgauge.model.loop import Loop
from torchgauge.model.profile import Profile
from torchgauge.model.ranks import Ranks
from torchgauge.model.record import Record
from torchgauge.model.roofline import Elsewhere
from torchgauge.model.snapshot import Growth, Snapshot
from torchgauge.model.sweep import Sweep
from torchgauge.model.trace import Trace
from torchgauge.model.trace_diff import TraceDiff
from torchgauge.model.verdict import Verdict
from torchgauge.report import (
    alive_tensors,
    markdown_advice,
    markdown_comparison,
    markdown_snapshot,
    markdown_sweep,
    markdown_trace,
    markdown_verdict,
    sections,
    traced_lines,
)
from torchgauge.report import count as count_report
from torchgauge.report import loop as loop_report
from torchgauge.report import ranks as ranks_report
from torchgauge.report.markdown_sheet import warnings
from torchgauge.report.markdown_text import (
    Markdown,
    code,
    document,
    joined,
    markdown,
    more,
    table,
    text,
    together,
)
from torchgauge.report.markdown_tree import TOP, layers
from torchgauge.report.section import Row, Section

# The rows of the console's sections that a reviewer looks for; others are in the record.
HEADLINES = {
    "Latency": ("median", "p90", "p99", "GPU time", "machine"),
    "Throughput": ("images", "tokens", "samples", "calls"),
    "Training step": ("forward", "backward", "optimizer", "at least", "together"),
    "Memory of a step": ("peak", "after", "for backward"),
    "Cost": ("FLOPs", "executed", "bytes", "coverage"),
    "Size": ("parameters", "on disk"),
    "Bottleneck": ("bound by", "efficiency"),
    "Steps": ("bare", "recorded", "captured", "communicated"),
}


def render(record: Exported) -> str:
    """Return the Markdown, with tables as GitHub and others know them."""
    made: str = RENDERERS[type(record)](record)
    return made


def _profile(profile: Profile) -> str:
    head, *others = sections.sections(profile)
    said = {row.label: row.value for row in head.rows}
    where = together(" · ", (said[name] for name in ("run as", "machine", "software")))
    what = markdown("{}, input {}<br>{}", code(said["target"]), code(said["input"]), where)
    blocks = [markdown("### {}", code(head.title)), what, *_figures(others)]
    if profile.tree is not None:
        blocks += layers(profile.tree)
    blocks += alive_tensors.markdown(profile.memory)
    return document(blocks + warnings(sections.warnings(profile)))


def _count(count: Count) -> str:
    passes = "forward and backward" if count.cost.backward else "forward"
    spec = code(count.target.spec)
    where = markdown("{}, {}, counted on {} tensors", spec, passes, count.cost.counted_on)
    found = [sections.cost(count.cost)]
    found += [sections.size(count.size)] if count.size is not None else []
    if count.training is not None:
        found.append(count_report.training(count.training))
    blocks = [markdown("### {}", code(count.target.name)), where, *_figures(found)]
    blocks += _counted_layers(count.cost)
    blocks += _elsewhere(count.elsewhere, training=count.training is not None)
    return document(blocks + warnings(count.all_warnings))


def _loop(loop: Loop) -> str:
    roots = together(", ", map(code, loop.roots)) or "no module"
    rank = f", rank {loop.rank.number} of {loop.rank.world}" if loop.rank is not None else ""
    where = text(f"{loop.count:,} steps, {loop_report.ENDS[loop.by]}{rank}")
    blocks = [markdown("### Loop of {}", roots), where, *_figures([loop_report.steps(loop)])]
    if loop.without_model:
        blocks = [markdown("### A program that called no model")]
    if loop.tree is not None:
        blocks += layers(loop.tree)
    blocks += traced_lines.markdown(loop.functions or ())
    return document(blocks + warnings(loop.all_warnings))


def _ranks(ranks: Ranks) -> str:
    rows = [
        (str(one.number), *map(units.time, (one.step, one.work, one.waiting, one.communication)))
        for one in ranks.ranks
    ]
    found = table(("rank", "step:", "work:", "waiting:", "communication:"), rows)
    said = [text(line) for line in ranks_report.lines(ranks)]
    return document(
        [markdown("### {} ranks", str(ranks.world)), found, *said, *warnings(ranks.warnings)]
    )


def _figures(found: Iterable[Section]) -> list[Markdown]:
    """Return the headline rows of the sections as one table, latency first."""
    found = list(found)
    rows = []
    for title, labels in HEADLINES.items():
        for section in found:
            if section.title.startswith(title):
                known = {row.label: row for row in section.rows if row.label in labels}
                rows += [_figure(section, known[label]) for label in labels if label in known]
    return [table(("", "figure:", "", "how"), rows)] if rows else []


def _figure(section: Section, row: Row) -> tuple[str, str, str, str]:
    note = row.note if row.share is None else units.percent(row.share)
    what = f"{section.title}, {row.label}"
    return what, markdown("**{}**", row.value), note, row.how or section.how


def _counted_layers(cost: Cost) -> list[Markdown]:
    """Return the layers with most FLOPs of their own."""
    whole = sum(layer.own.flops for _, layer in cost.tree.walk())
    own = sorted((layer for _, layer in cost.tree.walk()), key=lambda one: -one.own.flops)
    rows = [
        (
            code(one.node.path or one.node.name),
            code(one.node.kind),
            ("≥ " if one.own.at_least else "") + units.count(one.own.flops, 3),
            f"{100 * one.own.flops / whole:.1f} %",
            ("≥ " if one.own.at_least else "") + units.size(one.own.bytes, 3),
        )
        for one in own[:TOP]
        if one.own.flops
    ]
    if not rows:
        return []
    found = table(("layer", "class", "own FLOPs:", "share:", "own bytes:"), rows)
    return [
        markdown("**Where the FLOPs go ({})**", cost.how),
        found,
        *more(sum(1 for o in own if o.own.flops), TOP),
    ]


def _elsewhere(found: Sequence[Elsewhere], *, training: bool) -> list[Markdown]:
    """Return what the call takes on devices that are not here."""
    rows = [
        (
            one.device,
            ("≥ " if one.latency_at_least and one.latency else "") + units.time(one.latency),
            ("≥ " if one.memory_at_least else "") + units.size(one.memory),
            units.size(one.memory_available, 3),
            count_report.fits(one, training=training),
        )
        for one in found
    ]
    names = ("device", "time at best:", "memory:", "of:", "")
    return [markdown("**Elsewhere (estimated)**"), table(names, rows)] if rows else []


RENDERERS: dict[type[Record], Callable[[Any], str]] = {
    Advice: markdown_advice.render,
    Comparison: markdown_comparison.render,
    Count: _count,
    Growth: markdown_snapshot.render_growth,
    Loop: _loop,
    Profile: _profile,
    Ranks: _ranks,
    Snapshot: markdown_snapshot.render,
    Sweep: lambda sweep: joined(markdown_sweep.blocks(sweep)),
    Trace: markdown_trace.render,
    TraceDiff: markdown_trace.render_diff,
    Verdict: markdown_verdict.render,
}
