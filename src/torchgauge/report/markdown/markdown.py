"""The headline figures and top layers as Markdown, short enough for a pull request's comment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torchgauge import units
from torchgauge.records.advice import Advice
from torchgauge.records.comparison import Comparison
from torchgauge.records.exported import Exported
from torchgauge.records.profile import Profile
from torchgauge.records.record import Record
from torchgauge.records.snapshot import Growth, Snapshot
from torchgauge.records.sweep import Sweep
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.trace.ranks import Ranks
from torchgauge.records.trace.trace import Trace
from torchgauge.records.trace.trace_diff import TraceDiff
from torchgauge.records.verdict import Verdict
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.count import Count
from torchgauge.records.work.roofline import OtherDevice
from torchgauge.report.console import count as count_report
from torchgauge.report.console import loop as loop_report
from torchgauge.report.console import ranks as ranks_report
from torchgauge.report.console import traced_lines
from torchgauge.report.content import alive_tensors, sections
from torchgauge.report.content.section import Row, Section
from torchgauge.report.markdown import (
    markdown_advice,
    markdown_comparison,
    markdown_snapshot,
    markdown_sweep,
    markdown_trace,
    markdown_verdict,
)
from torchgauge.report.markdown.markdown_sheet import warning_blocks
from torchgauge.report.markdown.markdown_text import (
    Markdown,
    code,
    document,
    join,
    markdown,
    omitted,
    table,
    text,
    truncated_document,
)
from torchgauge.report.markdown.markdown_tree import TOP, layers

# The rows of the console's sections that a reviewer looks for; the record has all.
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
    report: str = RENDERERS[type(record)](record)
    return report


def _profile(profile: Profile) -> str:
    head, *body = sections.sections(profile)
    facts = {row.label: row.value for row in head.rows}
    environment = join(" · ", (facts[name] for name in ("run as", "machine", "software")))
    summary = markdown(
        "{}, input {}<br>{}", code(facts["target"]), code(facts["input"]), environment
    )
    blocks = [markdown("### {}", code(head.title)), summary, *_figures(body)]
    if profile.tree is not None:
        blocks += layers(profile.tree)
    blocks += alive_tensors.markdown(profile.memory)
    return document(blocks + warning_blocks(sections.warnings(profile)))


def _count(count: Count) -> str:
    passes = "forward and backward" if count.cost.backward else "forward"
    spec = code(count.target.spec)
    summary = markdown("{}, {}, counted on {} tensors", spec, passes, count.cost.counted_on)
    count_sections = [sections.cost(count.cost)]
    count_sections += [sections.size(count.size)] if count.size is not None else []
    if count.training is not None:
        count_sections.append(count_report.training(count.training))
    blocks = [markdown("### {}", code(count.target.name)), summary, *_figures(count_sections)]
    blocks += _counted_layers(count.cost)
    blocks += _other_devices(count.other_devices, training=count.training is not None)
    return document(blocks + warning_blocks(count.all_warnings))


def _loop(loop: Loop) -> str:
    roots = join(", ", map(code, loop.roots)) or "no module"
    rank = f", rank {loop.rank.number} of {loop.rank.world}" if loop.rank is not None else ""
    summary = text(f"{loop.count:,} steps, {loop_report.ENDS[loop.by]}{rank}")
    blocks = [markdown("### Loop of {}", roots), summary, *_figures([loop_report.steps(loop)])]
    if loop.without_model:
        blocks = [markdown("### A program that called no model")]
    if loop.tree is not None:
        blocks += layers(loop.tree)
    blocks += traced_lines.markdown(loop.functions or ())
    return document(blocks + warning_blocks(loop.all_warnings))


def _ranks(ranks: Ranks) -> str:
    rows = [
        (
            str(rank.number),
            *map(units.time, (rank.step, rank.work, rank.waiting, rank.communication)),
        )
        for rank in ranks.ranks
    ]
    rank_table = table(("rank", "step:", "work:", "waiting:", "communication:"), rows)
    sentences = [text(line) for line in ranks_report.lines(ranks)]
    return document(
        [
            markdown("### {} ranks", str(ranks.world)),
            rank_table,
            *sentences,
            *warning_blocks(ranks.warnings),
        ]
    )


def _figures(all_sections: Iterable[Section]) -> list[Markdown]:
    """Return the headline rows of the sections as one table, latency first."""
    all_sections = list(all_sections)
    rows = []
    for title, labels in HEADLINES.items():
        for section in all_sections:
            if section.title.startswith(title):
                rows_by_label = {row.label: row for row in section.rows if row.label in labels}
                rows += [
                    _figure(section, rows_by_label[label])
                    for label in labels
                    if label in rows_by_label
                ]
    return [table(("", "figure:", "", "how"), rows)] if rows else []


def _figure(section: Section, row: Row) -> tuple[str, str, str, str]:
    note = row.note if row.share is None else units.percent(row.share)
    title = f"{section.title}, {row.label}"
    return title, markdown("**{}**", row.value), note, row.how or section.how


def _counted_layers(cost: Cost) -> list[Markdown]:
    """Return the layers with most FLOPs of their own."""
    total_flops = sum(layer.own.flops for _, layer in cost.tree.walk())
    by_flops = sorted((layer for _, layer in cost.tree.walk()), key=lambda layer: -layer.own.flops)
    rows = [
        (
            code(layer.node.path or layer.node.name),
            code(layer.node.kind),
            ("≥ " if layer.own.at_least else "") + units.count(layer.own.flops, 3),
            f"{100 * layer.own.flops / total_flops:.1f} %",
            ("≥ " if layer.own.at_least else "") + units.size(layer.own.bytes, 3),
        )
        for layer in by_flops[:TOP]
        if layer.own.flops
    ]
    if not rows:
        return []
    layer_table = table(("layer", "class", "own FLOPs:", "share:", "own bytes:"), rows)
    return [
        markdown("**Where the FLOPs go ({})**", cost.how),
        layer_table,
        *omitted(sum(1 for layer in by_flops if layer.own.flops), TOP),
    ]


def _other_devices(estimates: Sequence[OtherDevice], *, training: bool) -> list[Markdown]:
    """Return the call's estimated time and memory on other devices."""
    rows = [
        (
            estimate.device,
            ("≥ " if estimate.latency_at_least and estimate.latency else "")
            + units.time(estimate.latency),
            ("≥ " if estimate.memory_at_least else "") + units.size(estimate.memory),
            units.size(estimate.memory_available, 3),
            count_report.fits(estimate, training=training),
        )
        for estimate in estimates
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
    Sweep: lambda sweep: truncated_document(markdown_sweep.blocks(sweep)),
    Trace: markdown_trace.render,
    TraceDiff: markdown_trace.render_diff,
    Verdict: markdown_verdict.render,
}
