"""The headline figures and top layers as Markdown, short enough for a pull request's comment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchgauge import units
from torchgauge.model import tables
from torchgauge.model.advice import Advice
from torchgauge.model.comparison import Comparison
from torchgauge.model.cost import Cost
from torchgauge.model.count import Count
from torchgauge.model.loop import Loop
from torchgauge.model.profile import Profile
from torchgauge.model.ranks import Ranks
from torchgauge.model.record import MeasurementWarning
from torchgauge.model.roofline import Elsewhere
from torchgauge.model.sweep import Sweep
from torchgauge.model.tree import Node, Tree
from torchgauge.model.verdict import Verdict
from torchgauge.report import count as count_report
from torchgauge.report import loop as loop_report
from torchgauge.report import (
    markdown_advice,
    markdown_comparison,
    markdown_sweep,
    markdown_verdict,
    sections,
)
from torchgauge.report import ranks as ranks_report
from torchgauge.report.markdown_text import code, table, text
from torchgauge.report.sections import Row, Section

TOP = 10
NOTHING = "–"
LAYERS = ("layer", "class", "calls:", "own time:", "share:", "own FLOPs:", "peak memory:")
# The rows of the console's sections that a reviewer looks for; others are in the record.
HEADLINES = {
    "Latency": ("median", "p90", "p99", "GPU time"),
    "Throughput": ("images", "tokens", "samples", "calls"),
    "Training step": ("forward", "backward", "optimizer", "at least", "together"),
    "Memory of a step": ("peak", "for backward"),
    "Cost": ("FLOPs", "executed", "bytes", "coverage"),
    "Size": ("parameters", "on disk"),
    "Bottleneck": ("bound by", "efficiency"),
    "Steps": ("bare", "recorded", "captured", "communicated"),
}


def render(
    record: Profile | Count | Loop | Ranks | Comparison | Sweep | Verdict | Advice,
) -> str:
    """Return the Markdown, with tables as GitHub and others know them."""
    if isinstance(record, Advice):
        return markdown_advice.render(record)
    if isinstance(record, Comparison):
        return markdown_comparison.render(record)
    if isinstance(record, Verdict):
        return markdown_verdict.render(record)
    if isinstance(record, Sweep):
        return markdown_comparison.joined(markdown_sweep.blocks(record))
    if isinstance(record, Ranks):
        return "\n\n".join(_ranks(record)) + "\n"
    if isinstance(record, Loop):
        blocks = _loop(record)
    elif isinstance(record, Count):
        blocks = _count(record)
    else:
        blocks = _profile(record)
    return "\n\n".join(blocks) + "\n"


def _profile(profile: Profile) -> list[str]:
    head, *others = sections.sections(profile)
    said = {row.label: row.value for row in head.rows}
    where = " · ".join(text(said[name]) for name in ("run as", "machine", "software"))
    what = f"{code(said['target'])}, input {code(said['input'])}"
    blocks = [f"### {code(head.title)}", f"{what}<br>{where}", *_figures(others)]
    if profile.tree is not None:
        blocks += _layers(profile.tree)
    return blocks + _warnings(sections.warnings(profile))


def _count(count: Count) -> list[str]:
    passes = "forward and backward" if count.cost.backward else "forward"
    where = f"{code(count.target.spec)}, {passes}, counted on {count.cost.counted_on} tensors"
    found = [sections.cost(count.cost)]
    found += [sections.size(count.size)] if count.size is not None else []
    if count.training is not None:
        found.append(count_report.training(count.training))
    blocks = [f"### {code(count.target.name)}", where, *_figures(found)]
    blocks += [*_counted_layers(count.cost), *_elsewhere(count.elsewhere)]
    return blocks + _warnings(count.all_warnings)


def _loop(loop: Loop) -> list[str]:
    roots = ", ".join(map(code, loop.roots)) or "no module"
    rank = f", rank {loop.rank.number} of {loop.rank.world}" if loop.rank is not None else ""
    where = f"{loop.count:,} steps, {loop_report.ENDS[loop.by]}{rank}"
    blocks = [f"### Loop of {roots}", where, *_figures([loop_report.steps(loop)])]
    if loop.tree is not None:
        blocks += _layers(loop.tree)
    return blocks + _warnings(loop.all_warnings)


def _ranks(ranks: Ranks) -> list[str]:
    rows = [
        (str(one.number), *map(units.time, (one.step, one.work, one.waiting, one.communication)))
        for one in ranks.ranks
    ]
    found = table(("rank", "step:", "work:", "waiting:", "communication:"), rows)
    said = [text(line) for line in ranks_report.lines(ranks)]
    return [f"### {ranks.world} ranks", found, *said, *_warnings(ranks.warnings)]


def _figures(found: Iterable[Section]) -> list[str]:
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
    return text(what), f"**{text(row.value)}**", text(note), section.how


def _layers(tree: Tree) -> list[str]:
    """Return the layers and buckets with most time of their own."""
    whole = tree.root.time
    if not whole:
        return []
    axis = "host" if tree.root.device_time is None else "device"
    parts = [node for node in tree.root.walk() if node.kind in ("model", "layer", "bucket")]
    own = [(tables.sum_of(tables.own(node), axis) or 0.0, node) for node in parts]
    own.sort(key=lambda one: -one[0])
    rows = [_layer(node, time, whole) for time, node in own[:TOP] if time]
    kept = [place for place in range(len(LAYERS)) if any(row[place] != NOTHING for row in rows)]
    names, *shown = ([line[place] for place in kept] for line in (LAYERS, *rows))
    step = f"Where the time of a step goes ({tree.how}, time on the {axis})"
    return [f"**{step}**", table(names, shown), *_more(sum(time > 0 for time, _ in own))]


def _layer(node: Node, time: float, whole: float) -> tuple[str, ...]:
    own = tables.own(node)
    flops = tables.sum_of(own, "flops")
    least = "≥ " if any(one.row.unknown for one in own) else ""
    return (
        code(node.row.path or node.name) if node.kind != "bucket" else f"*{text(node.name)}*",
        code(node.row.type) if node.row.type else "",
        f"{node.calls:,}" if node.calls else NOTHING,
        units.time(time, 3),
        f"{100 * time / whole:.1f} %",
        NOTHING if flops is None else least + units.count(flops, 3),
        NOTHING if node.peak is None else units.size(node.peak, 3),
    )


def _counted_layers(cost: Cost) -> list[str]:
    """Return the layers with most FLOPs of their own."""
    whole = sum(layer.own.flops for _, layer in cost.tree.walk())
    own = sorted((layer for _, layer in cost.tree.walk()), key=lambda one: -one.own.flops)
    rows = [
        (
            code(one.node.path or one.node.name),
            code(one.node.kind),
            ("≥ " if one.own.at_least else "") + units.count(one.own.flops, 3),
            f"{100 * one.own.flops / whole:.1f} %",
            units.size(one.own.bytes, 3),
        )
        for one in own[:TOP]
        if one.own.flops
    ]
    if not rows:
        return []
    found = table(("layer", "class", "own FLOPs:", "share:", "own bytes:"), rows)
    return [
        f"**Where the FLOPs go ({cost.how})**",
        found,
        *_more(sum(1 for o in own if o.own.flops)),
    ]


def _elsewhere(found: Sequence[Elsewhere]) -> list[str]:
    """Return what the call takes on devices that are not here."""
    rows = [
        (
            text(one.device),
            units.time(one.latency),
            ("≥ " if one.memory_at_least else "") + units.size(one.memory),
            units.size(one.memory_available, 3),
            count_report.fits(one),
        )
        for one in found
    ]
    names = ("device", "time at best:", "memory:", "of:", "")
    return ["**Elsewhere (estimated)**", table(names, rows)] if rows else []


def _more(count: int) -> list[str]:
    return [f"… {count - TOP} others"] if count > TOP else []


def _warnings(found: Sequence[MeasurementWarning]) -> list[str]:
    lines = [
        f"- {'✗' if one.failed else '⚠'} {f'{text(one.probe)}: ' if one.probe else ''}"
        f"{text(sections.warning_text(one))} {code(one.id)}"
        for one in found
    ]
    return ["\n".join(lines)] if lines else []
