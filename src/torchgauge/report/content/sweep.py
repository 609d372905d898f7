"""A sweep: the cells with the best marked, and how rows of batches scale."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.records.sweep import Sweep
from torchgauge.report.content import document as doc
from torchgauge.report.content import sweep_words as words
from torchgauge.report.notebook import charts

MOST_REASONS = 12
LABEL = 15


def document(sweep: Sweep, _options: doc.Options) -> doc.Document:
    """Return the cells, the best of them, and how rows of batches scale."""
    blocks: list[doc.Block] = [_cells(sweep)]
    if any(cell.done for cell in sweep.cells):
        heading = f"Best where {sweep.constraints}" if sweep.constraints else "Best"
        pairs = [(best.metric, str(best)) for best in words.best(sweep)]
        blocks.append(doc.Facts(pairs, heading, label=LABEL))
    if reasons := words.reasons(sweep):
        omitted_count = len(reasons) - MOST_REASONS
        note = [("…", f"{omitted_count} more are in the record")] * (omitted_count > 0)
        blocks.append(doc.Facts(reasons[:MOST_REASONS] + note, "Without figures", label=LABEL))
    if cell_warnings := words.cell_warnings(sweep):
        blocks.append(doc.Facts(cell_warnings, "Warnings of cells", label=LABEL))
    blocks += _scaling(sweep)
    blocks += [doc.Warnings(sweep.warnings)] if sweep.warnings else []
    blocks += [doc.Note("Interrupted before its end.", "doubtful")] if sweep.interrupted else []
    facts = doc.Facts(words.facts(sweep), label=LABEL)
    return doc.Document(
        words.title(sweep),
        "swept",
        facts=facts,
        blocks=blocks,
        names=(words.title(sweep),),
        charts=charts.sweep(sweep),
    )


def _cells(sweep: Sweep) -> doc.Table:
    columns = (
        doc.Column("median"),
        doc.Column("±", priority=1, tone="faint"),
        doc.Column("p99", priority=3),
        doc.Column("per second", title=f"{words.rate(sweep)}/s"),
        doc.Column("tokens/s", priority=2),
        doc.Column("memory"),
        doc.Column("first call", priority=4, tone="faint"),
        doc.Column("marks", "", left_aligned=True, tone="mark"),
    )
    batched = len({cell.settings.batch for cell in sweep.cells}) > 1
    rows = []
    for series, cell_indices in words.rows(sweep).items():
        row_name = words.named(sweep, series)
        headed = batched and bool(row_name)
        if headed:
            rows.append(doc.Row(row_name, {}, 1, "strong"))
        for index in cell_indices:
            cell = sweep.cells[index]
            name = f"batch {cell.settings.batch}" if batched else row_name or "as given"
            mark = words.marks(sweep, index) if cell.done else cell.status
            cells = words.figures(cell) | ({"marks": mark} if mark else {})
            rows.append(doc.Row(name, cells, 1 + headed, "" if cell.done else "faint"))
    return doc.Table(
        title="Cells",
        how="measured",
        columns=columns,
        rows=rows,
        notes=words.legend(sweep),
        layout="fitted",
    )


def _scaling(sweep: Sweep) -> Iterator[doc.Block]:
    if sweep.scaling:
        yield doc.Heading("Scaling with the batch", how="estimated", tone="")
    for scaling in sweep.scaling:
        if row := words.named(sweep, scaling.settings):
            yield doc.Heading(row, tone="", level=1, tight=True)
        yield doc.Facts(list(words.scaling(scaling)), label=LABEL, tight=True)
