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
from torchgauge.report.markdown_text import code, cut, joined, more, table, text

TOP = 15  # of each kind of place
MOST = 25  # of differences and warnings
SIGNS = {"better": "🟢", "worse": "🔴", "same": "⚪", "inconclusive": "🟡", "unknown": "⚪"}


def render(comparison: Comparison) -> str:
    """Return the Markdown, with tables as GitHub and others know them."""
    return joined(blocks(comparison))


def blocks(comparison: Comparison) -> list[str]:
    """Return the parts of the Markdown, a heading first."""
    old, new = comparison.baseline, comparison.current
    names = dict.fromkeys((old.target.name, new.target.name))
    sides = f"**A** {_side(old)}<br>**B** {_side(new)}"
    return [
        f"### {' → '.join(map(code, names))}, compared",
        sides,
        *differences(comparison.differences),
        _figures(comparison.changes),
        *_reasons(comparison.changes),
        *places(comparison),
        *_warnings(comparison),
    ]


def _side(side: Side) -> str:
    return f"{code(side.label)} {cut(text(said(side)))}"


def differences(found: Sequence[Difference]) -> list[str]:
    """Return what differs around the sides, and what that forbids."""
    rows = []
    for one in found[:MOST]:
        forbids = "times cannot be compared" if one.timing else ""
        if one.work:
            forbids += ", nor counts"
        name = cut(text(f"{one.part}: {one.name}"))
        rows.append((name, code(one.baseline), code(one.current), forbids))
    if not rows:
        return []
    return [table(("differs", "A", "B", ""), rows), *more(len(found), MOST)]


def _figures(changes: Sequence[Change]) -> str:
    rows = [
        (
            one.metric,
            units.amount(one.baseline, one.unit),
            f"**{units.amount(one.current, one.unit)}**",
            relative(one.change),
            interval(one),
            f"{SIGNS[one.judgement]} {one.judgement}",
            one.how,
        )
        for one in changes
    ]
    return table(("", "A:", "B:", "change:", "95 %:", "", "how"), rows)


def _reasons(changes: Sequence[Change]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for one in changes:
        if one.reason:
            reasons.setdefault(one.reason, []).append(one.metric)
    lines = [f"- {one.metric}: {corrected(one)}" for one in changes if one.corrected is not None]
    lines += [f"- {', '.join(names)}: {cut(text(reason))}" for reason, names in reasons.items()]
    return ["\n".join(lines)] if lines else []


def places(comparison: Comparison) -> list[str]:
    """Return a table for each kind of place that has one worth telling."""
    found = []
    for kind in (comparison.layers, comparison.operators, comparison.kernels):
        told = changed(kind, comparison, len(kind))
        if told:
            tested = comparison.places_tested if told[0].kind == "layer" else "not tested"
            found.append(f"**{TITLES[told[0].kind]}** ({cut(text(tested))})")
            found.append(_places(told[:TOP]))
            found += more(len(told), TOP)
    return found


def _places(told: Sequence[Place]) -> str:
    names = ("class", "baseline", "current", "adds", "change", "95 %", "calls", "FLOPs")
    every = [cells(one) for one in told]
    kept = [name for name in names if any(row[name] for row in every)]
    rows = [
        (
            code(one.name or "(the model itself)") + (" ✔" if one.significant else ""),
            *(code(row[name]) if name == "class" and row[name] else row[name] for name in kept),
        )
        for one, row in zip(told, every, strict=True)
    ]
    return table(("", *(name if name == "class" else f"{name}:" for name in kept)), rows)


def _warnings(comparison: Comparison) -> list[str]:
    found = comparison.all_warnings
    lines = [f"- ⚠ {cut(text(one.message))} {code(one.id)}" for one in found[:MOST]]
    return ["\n".join(lines), *more(len(found), MOST)] if lines else []
