"""A comparison as Markdown for a pull request: below 60 KB whatever the record holds."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge import units
from torchgauge.records.comparison import Change, Comparison, Difference, Place, Side
from torchgauge.report.content.changes import (
    PLACES,
    corrected_change,
    interval,
    place_cells,
    relative,
    side_details,
)
from torchgauge.report.content.comparison import TITLES, notable_places
from torchgauge.report.markdown.markdown_text import (
    Markdown,
    code,
    cut,
    items,
    join,
    markdown,
    omitted,
    table,
    truncated_document,
)

TOP = 15  # of each kind of place
MAX_ENTRIES = 25  # of differences and warnings
SIGNS = {"better": "🟢", "worse": "🔴", "same": "⚪", "inconclusive": "🟡", "unknown": "⚪"}


def render(comparison: Comparison) -> str:
    """Return the Markdown, with tables as GitHub and others know them."""
    return truncated_document(blocks(comparison))


def blocks(comparison: Comparison) -> list[Markdown]:
    """Return the parts of the Markdown, a heading first."""
    old, new = comparison.baseline, comparison.current
    names = dict.fromkeys((old.target.name, new.target.name))
    return [
        markdown("### {}, compared", join(" → ", map(code, names))),
        markdown("**A** {}<br>**B** {}", _side(old), _side(new)),
        *differences(comparison.differences),
        _figures(comparison.changes),
        *_reasons(comparison.changes),
        *places(comparison),
        *_warnings(comparison),
    ]


def _side(side: Side) -> Markdown:
    return markdown("{} {}", code(side.label), cut(side_details(side)))


def differences(side_differences: Sequence[Difference]) -> list[Markdown]:
    """Return what differs around the sides, and what that forbids."""
    rows = []
    for difference in side_differences[:MAX_ENTRIES]:
        forbids = "times cannot be compared" if difference.timing else ""
        if difference.work:
            forbids += ", nor counts"
        name = cut(f"{difference.part}: {difference.name}")
        rows.append((name, code(difference.baseline), code(difference.current), forbids))
    if not rows:
        return []
    return [table(("differs", "A", "B", ""), rows), *omitted(len(side_differences), MAX_ENTRIES)]


def _figures(changes: Sequence[Change]) -> Markdown:
    rows = [
        (
            cut(change.metric),
            units.amount(change.baseline, change.unit),
            markdown("**{}**", units.amount(change.current, change.unit)),
            relative(change.change),
            interval(change),
            f"{SIGNS[change.judgement]} {change.judgement}",
            change.how,
        )
        for change in changes
    ]
    return table(("", "A:", "B:", "change:", "95 %:", "", "how"), rows)


def _reasons(changes: Sequence[Change]) -> list[Markdown]:
    reasons: dict[str, list[str]] = {}
    for change in changes:
        if change.reason:
            reasons.setdefault(change.reason, []).append(change.metric)
    lines = [
        cut(f"{change.metric}: {corrected_change(change)}")
        for change in changes
        if change.corrected is not None
    ]
    lines += [
        markdown("{}: {}", ", ".join(names), cut(reason)) for reason, names in reasons.items()
    ]
    return [items(lines)] if lines else []


def places(comparison: Comparison) -> list[Markdown]:
    """Return a table for each kind of place with any worth listing."""
    place_blocks = []
    for kind in (comparison.layers, comparison.operators, comparison.kernels):
        notable = notable_places(kind, comparison, len(kind))
        if notable:
            tested = comparison.places_tested if notable[0].kind == "layer" else "not tested"
            place_blocks.append(markdown("**{}** ({})", TITLES[notable[0].kind], cut(tested)))
            place_blocks.append(_places(notable[:TOP]))
            place_blocks += omitted(len(notable), TOP)
    return place_blocks


def _places(notable: Sequence[Place]) -> Markdown:
    place_rows = [(place, place_cells(place, PLACES)) for place in notable]
    names = [column.key for column in PLACES if any(column.key in row for _, row in place_rows)]
    rows = []
    for place, row in place_rows:
        proven = markdown(" ✔") if place.significant else ""
        texts = (str(row.get(name, "")) for name in names)
        cells = [
            code(cell) if key == "class" and cell else cell
            for key, cell in zip(names, texts, strict=True)
        ]
        rows.append((markdown("{}{}", code(place.name or "(the model itself)"), proven), *cells))
    return table(("", *(name if name == "class" else f"{name}:" for name in names)), rows)


def _warnings(comparison: Comparison) -> list[Markdown]:
    all_warnings = comparison.all_warnings
    lines = [
        markdown("⚠ {} {}", cut(warning.message), code(warning.id))
        for warning in all_warnings[:MAX_ENTRIES]
    ]
    return [items(lines), *omitted(len(all_warnings), MAX_ENTRIES)] if lines else []
