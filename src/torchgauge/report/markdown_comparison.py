"""A comparison as Markdown for a pull request: below 60 KB whatever the record holds."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge import units
from torchgauge.model.comparison import Change, Comparison, Difference, Place, Side
from torchgauge.report.comparison import (
    TITLES,
    cells,
    changed,
    corrected,
    interval,
    relative,
    said,
)
from torchgauge.report.markdown_text import (
    Markdown,
    code,
    cut,
    items,
    joined,
    markdown,
    more,
    table,
    together,
)

TOP = 15  # of each kind of place
MOST = 25  # of differences and warnings
SIGNS = {"better": "🟢", "worse": "🔴", "same": "⚪", "inconclusive": "🟡", "unknown": "⚪"}


def render(comparison: Comparison) -> str:
    """Return the Markdown, with tables as GitHub and others know them."""
    return joined(blocks(comparison))


def blocks(comparison: Comparison) -> list[Markdown]:
    """Return the parts of the Markdown, a heading first."""
    old, new = comparison.baseline, comparison.current
    names = dict.fromkeys((old.target.name, new.target.name))
    return [
        markdown("### {}, compared", together(" → ", map(code, names))),
        markdown("**A** {}<br>**B** {}", _side(old), _side(new)),
        *differences(comparison.differences),
        _figures(comparison.changes),
        *_reasons(comparison.changes),
        *places(comparison),
        *_warnings(comparison),
    ]


def _side(side: Side) -> Markdown:
    return markdown("{} {}", code(side.label), cut(said(side)))


def differences(found: Sequence[Difference]) -> list[Markdown]:
    """Return what differs around the sides, and what that forbids."""
    rows = []
    for one in found[:MOST]:
        forbids = "times cannot be compared" if one.timing else ""
        if one.work:
            forbids += ", nor counts"
        name = cut(f"{one.part}: {one.name}")
        rows.append((name, code(one.baseline), code(one.current), forbids))
    if not rows:
        return []
    return [table(("differs", "A", "B", ""), rows), *more(len(found), MOST)]


def _figures(changes: Sequence[Change]) -> Markdown:
    rows = [
        (
            cut(one.metric),
            units.amount(one.baseline, one.unit),
            markdown("**{}**", units.amount(one.current, one.unit)),
            relative(one.change),
            interval(one),
            f"{SIGNS[one.judgement]} {one.judgement}",
            one.how,
        )
        for one in changes
    ]
    return table(("", "A:", "B:", "change:", "95 %:", "", "how"), rows)


def _reasons(changes: Sequence[Change]) -> list[Markdown]:
    reasons: dict[str, list[str]] = {}
    for one in changes:
        if one.reason:
            reasons.setdefault(one.reason, []).append(one.metric)
    lines = [cut(f"{one.metric}: {corrected(one)}") for one in changes if one.corrected is not None]
    lines += [
        markdown("{}: {}", ", ".join(names), cut(reason)) for reason, names in reasons.items()
    ]
    return [items(lines)] if lines else []


def places(comparison: Comparison) -> list[Markdown]:
    """Return a table for each kind of place that has one worth telling."""
    found = []
    for kind in (comparison.layers, comparison.operators, comparison.kernels):
        told = changed(kind, comparison, len(kind))
        if told:
            tested = comparison.places_tested if told[0].kind == "layer" else "not tested"
            found.append(markdown("**{}** ({})", TITLES[told[0].kind], cut(tested)))
            found.append(_places(told[:TOP]))
            found += more(len(told), TOP)
    return found


def _places(told: Sequence[Place]) -> Markdown:
    names = ("class", "baseline", "current", "adds", "change", "95 %", "calls", "FLOPs")
    every = [cells(one) for one in told]
    kept = [name for name in names if any(row[name] for row in every)]
    rows = [
        (
            markdown(
                "{}{}",
                code(one.name or "(the model itself)"),
                markdown(" ✔") if one.significant else "",
            ),
            *(code(row[name]) if name == "class" and row[name] else row[name] for name in kept),
        )
        for one, row in zip(told, every, strict=True)
    ]
    return table(("", *(name if name == "class" else f"{name}:" for name in kept)), rows)


def _warnings(comparison: Comparison) -> list[Markdown]:
    found = comparison.all_warnings
    lines = [markdown("⚠ {} {}", cut(one.message), code(one.id)) for one in found[:MOST]]
    return [items(lines), *more(len(found), MOST)] if lines else []
