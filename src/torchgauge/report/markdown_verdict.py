"""A verdict as Markdown for a pull request's comment: below 60 KB whatever the record holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchgauge.model.verdict import Ruling, Verdict
from torchgauge.report import rulings
from torchgauge.report.comparison import said
from torchgauge.report.markdown_text import (
    Markdown,
    code,
    cut,
    document,
    items,
    markdown,
    table,
    together,
)
from torchgauge.report.sections import warning_text

# GitHub refuses a comment of 65,536 characters; what each list may take, in bytes.
RULINGS = 20_000
DIFFERENCES = 8_000
GUILTY = 8_000
ADVICE = 2_000
WARNINGS = 12_000
LONGEST = 600  # characters of a sentence
NAMES = ("", "metric", "figure:", "change:", "95 %:", "allowed", "how")


def render(verdict: Verdict) -> str:
    """Return the Markdown; a list that is too long says how many of it are left out."""
    sign = rulings.SIGNS[verdict.outcome]
    headline = _said(rulings.headline(verdict))
    blocks = [markdown("### {} {}: {}", sign, verdict.outcome.upper(), headline)]
    blocks += _sides(verdict)
    if verdict.rulings:
        blocks += _rulings(verdict)
    blocks += _list("Where it got worse", map(code, verdict.guilty), GUILTY)
    blocks += _list("What to do", map(_said, rulings.advice(verdict)), ADVICE)
    warnings = (
        markdown("{} {}", _said(warning_text(one)), code(one.id)) for one in verdict.all_warnings
    )
    blocks += _list("Warnings", warnings, WARNINGS)
    return document(blocks)


def _said(sentence: str) -> Markdown:
    return cut(sentence, LONGEST)


def _sides(verdict: Verdict) -> list[Markdown]:
    found = verdict.comparison
    if found is None:
        return []
    lines = [
        markdown("{} {}, {}", name, code(side.label), _said(said(side)))
        for name, side in rulings.sides(verdict.comparison)
    ]
    differs = (
        markdown("{}: {} → {}", _said(one.name), code(one.baseline), code(one.current))
        for one in found.differences
    )
    return [together("<br>", lines), *_list("What differs around the runs", differs, DIFFERENCES)]


def _rulings(verdict: Verdict) -> list[Markdown]:
    """Return the rulings as a table, those that did not pass first, and why."""
    ordered = sorted(verdict.rulings, key=lambda one: one.outcome == "pass")
    rows = [_row(one) for one in ordered]
    kept = _fitting(["|".join(row) for row in rows], RULINGS)
    blocks = [table(NAMES, rows[:kept]), *_more(len(rows) - kept)]
    reasons = (
        markdown("{}: {}", _said(one.metric), _said(why))
        for one in ordered
        if (why := rulings.why(one))
    )
    blocks += _list("", reasons, WARNINGS)
    method = "; ".join(rulings.method(verdict))
    return [*blocks, *([markdown("<sub>{}</sub>", _said(method))] if method else [])]


def _row(one: Ruling) -> tuple[str, ...]:
    outcome = f"{rulings.SIGNS[one.outcome]} {one.outcome}"
    cells = (rulings.figure(one), rulings.change(one), rulings.interval(one), rulings.allowed(one))
    return (outcome, code(one.metric), *cells, one.how)


def _list(title: str, found: Iterable[Markdown], room: int) -> list[Markdown]:
    lines = list(found)
    if not lines:
        return []
    kept = _fitting(lines, room)
    return [
        *([markdown("**{}**", title)] if title else []),
        items(lines[:kept]),
        *_more(len(lines) - kept),
    ]


def _fitting(lines: Sequence[str], room: int) -> int:
    """Return how many of the lines fit into `room` bytes."""
    for count, line in enumerate(lines):
        room -= len(line.encode()) + 20
        if room < 0:
            return count
    return len(lines)


def _more(count: int) -> list[Markdown]:
    return [markdown("… {} more", f"{count:,}")] if count else []
