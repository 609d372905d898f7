"""A verdict: the outcome, a row for each ruling, regressions and advice."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.records.verdict import Outcome, Ruling, Verdict
from torchgauge.report.content import document as doc
from torchgauge.report.content import rulings
from torchgauge.report.content.comparison import by_reason, rows_by_shape, side_details
from torchgauge.visible import one_line

MAX_REGRESSIONS = 10
TONES: dict[Outcome, doc.Tone] = {
    "pass": "good",
    "fail": "bad",
    "inconclusive": "doubtful",
    "not comparable": "doubtful",
}
COLUMNS = (
    doc.Column("figure", get=rulings.figure),
    doc.Column("change", get=rulings.change),
    doc.Column("95 %", get=rulings.interval),
    doc.Column("allowed", get=rulings.allowed, left_aligned=True),
    doc.Column("how", priority=1, left_aligned=True),
)


def document(verdict: Verdict, _options: doc.Options) -> doc.Document:
    """Return the rulings and why they are so, where it got worse, and what to do."""
    blocks: list[doc.Block] = [_rulings(verdict)] if verdict.rulings else []
    if regressed := verdict.regressed_layers:
        entries = [("·", one_line(name)) for name in regressed[:MAX_REGRESSIONS]]
        omitted_count = len(regressed) - len(entries)
        blocks.append(
            doc.Items("Where it got worse", entries, recorded=True, omitted_count=omitted_count)
        )
    if advice := rulings.advice(verdict):
        blocks.append(doc.Items("What to do", [("·", one_line(sentence)) for sentence in advice]))
    blocks += [doc.Warnings(verdict.all_warnings)] if verdict.all_warnings else []
    outcome = f"{rulings.SIGNS[verdict.outcome]} {verdict.outcome.upper()}"
    return doc.Document(
        outcome, headline=rulings.headline(verdict), facts=_facts(verdict), blocks=blocks,
        tone=TONES[verdict.outcome],
    )  # fmt: skip


def _facts(verdict: Verdict) -> doc.Facts | None:
    pairs: list[tuple[str, str | doc.Detailed]] = [
        (name, doc.Detailed(one_line(side.label), f"  {one_line(side_details(side))}"))
        for name, side in rulings.sides(verdict.comparison)
    ]
    comparison = verdict.comparison
    for difference in () if comparison is None else comparison.differences:
        values = one_line(f"{difference.baseline} → {difference.current}")
        pairs.append((one_line(difference.name), values))
    return doc.Facts(pairs, label=0, max_label=24, recorded=True) if pairs else None


def _rulings(verdict: Verdict) -> doc.Table:
    """Return a row for each ruling, those that did not pass first."""

    def row(ruling: Ruling, label: str) -> doc.Row:
        name = f"{rulings.SIGNS[ruling.outcome]} {one_line(label)}"
        return doc.Row(name, doc.cells(COLUMNS, ruling), tone=TONES[ruling.outcome])

    rows = rows_by_shape(rulings.failures_first(verdict), row)
    return doc.Table(columns=COLUMNS, rows=rows, notes=tuple(_reasons(verdict)), layout="fitted")


def _reasons(verdict: Verdict) -> Iterator[str]:
    """Yield each reason with the metrics that share it, then the method."""
    yield from by_reason(
        (rulings.explanation(ruling), one_line(ruling.metric)) for ruling in verdict.rulings
    )
    if method := rulings.method(verdict):
        yield "; ".join(method) + "."
