"""A verdict as Markdown for a pull request's comment: below 60 KB whatever the record holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchgauge.records.verdict import Ruling, Verdict
from torchgauge.report.content import rulings
from torchgauge.report.content.changes import side_details
from torchgauge.report.content.sections import warning_text
from torchgauge.report.markdown.markdown_text import (
    Markdown,
    code,
    cut,
    document,
    items,
    join,
    markdown,
    table,
)

# GitHub refuses a comment of 65,536 characters; what each list may take, in bytes.
RULINGS = 20_000
DIFFERENCES = 8_000
REGRESSIONS = 8_000
ADVICE = 2_000
WARNINGS = 12_000
LONGEST = 600  # characters of a sentence
NAMES = ("", "metric", "figure:", "change:", "95 %:", "allowed", "how")


def render(verdict: Verdict) -> str:
    """Return the Markdown; a list that is too long says how many of it are left out."""
    sign = rulings.SIGNS[verdict.outcome]
    headline = _cut_sentence(rulings.headline(verdict))
    blocks = [markdown("### {} {}: {}", sign, verdict.outcome.upper(), headline)]
    blocks += _sides(verdict)
    if verdict.rulings:
        blocks += _rulings(verdict)
    blocks += _list("Where it got worse", map(code, verdict.regressed_layers), REGRESSIONS)
    blocks += _list("What to do", map(_cut_sentence, rulings.advice(verdict)), ADVICE)
    warnings = (
        markdown("{} {}", _cut_sentence(warning_text(warning)), code(warning.id))
        for warning in verdict.all_warnings
    )
    blocks += _list("Warnings", warnings, WARNINGS)
    return document(blocks)


def _cut_sentence(sentence: str) -> Markdown:
    return cut(sentence, LONGEST)


def _sides(verdict: Verdict) -> list[Markdown]:
    comparison = verdict.comparison
    if comparison is None:
        return []
    lines = [
        markdown("{} {}, {}", name, code(side.label), _cut_sentence(side_details(side)))
        for name, side in rulings.sides(verdict.comparison)
    ]
    differences = (
        markdown(
            "{}: {} → {}",
            _cut_sentence(difference.name),
            code(difference.baseline),
            code(difference.current),
        )
        for difference in comparison.differences
    )
    return [join("<br>", lines), *_list("What differs around the runs", differences, DIFFERENCES)]


def _rulings(verdict: Verdict) -> list[Markdown]:
    """Return the rulings as a table, those that did not pass first, and why."""
    ordered = sorted(verdict.rulings, key=lambda ruling: ruling.outcome == "pass")
    rows = [_row(ruling) for ruling in ordered]
    fitting_count = _fitting(["|".join(row) for row in rows], RULINGS)
    blocks = [table(NAMES, rows[:fitting_count]), *_omitted_note(len(rows) - fitting_count)]
    reasons = (
        markdown("{}: {}", _cut_sentence(ruling.metric), _cut_sentence(reason))
        for ruling in ordered
        if (reason := rulings.explanation(ruling))
    )
    blocks += _list("", reasons, WARNINGS)
    method = "; ".join(rulings.method(verdict))
    return [*blocks, *([markdown("<sub>{}</sub>", _cut_sentence(method))] if method else [])]


def _row(ruling: Ruling) -> tuple[str, ...]:
    outcome = f"{rulings.SIGNS[ruling.outcome]} {ruling.outcome}"
    cells = (
        rulings.figure(ruling),
        rulings.change(ruling),
        rulings.interval(ruling),
        rulings.allowed(ruling),
    )
    return (outcome, code(ruling.metric), *cells, ruling.how)


def _list(title: str, entries: Iterable[Markdown], room: int) -> list[Markdown]:
    lines = list(entries)
    if not lines:
        return []
    fitting_count = _fitting(lines, room)
    return [
        *([markdown("**{}**", title)] if title else []),
        items(lines[:fitting_count]),
        *_omitted_note(len(lines) - fitting_count),
    ]


def _fitting(lines: Sequence[str], room: int) -> int:
    """Return how many of the lines fit into `room` bytes."""
    for count, line in enumerate(lines):
        room -= len(line.encode()) + 20
        if room < 0:
            return count
    return len(lines)


def _omitted_note(count: int) -> list[Markdown]:
    return [markdown("… {} more", f"{count:,}")] if count else []
