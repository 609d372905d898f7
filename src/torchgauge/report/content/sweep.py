"""A sweep: the cells with the best marked, and how rows of batches scale."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.records.sweep import Sweep
from torchgauge.report.content import sweep_words as words
from torchgauge.report.content.document import (
    Block,
    Column,
    Document,
    Facts,
    Heading,
    Note,
    Options,
    Row,
    Table,
    Warnings,
)
from torchgauge.report.notebook import charts

MOST_REASONS = 12
LABEL = 15


def document(sweep: Sweep, _options: Options) -> Document:
    """Return the cells, the best of them, and how rows of batches scale."""
    blocks: list[Block] = [_cells(sweep)]
    if any(cell.done for cell in sweep.cells):
        heading = f"Best where {sweep.constraints}" if sweep.constraints else "Best"
        pairs = [(best.metric, str(best)) for best in words.best(sweep)]
        blocks.append(Facts(pairs, heading, label=LABEL))
    if reasons := words.reasons(sweep):
        omitted_count = len(reasons) - MOST_REASONS
        note = [("…", f"{omitted_count} more are in the record")] * (omitted_count > 0)
        blocks.append(Facts(reasons[:MOST_REASONS] + note, "Without figures", label=LABEL))
    if cell_warnings := words.cell_warnings(sweep):
        blocks.append(Facts(cell_warnings, "Warnings of cells", label=LABEL))
    blocks += _scaling(sweep)
    blocks += [Warnings(sweep.warnings)] if sweep.warnings else []
    blocks += [Note("Interrupted before its end.", "doubtful")] if sweep.interrupted else []
    facts = Facts(words.facts(sweep), label=LABEL)
    return Document(
        words.title(sweep),
        "swept",
        facts=facts,
        blocks=blocks,
        names=(words.title(sweep),),
        charts=charts.sweep(sweep),
    )


def _cells(sweep: Sweep) -> Table:
    columns = (
        Column("median"),
        Column("±", priority=1, tone="faint"),
        Column("p99", priority=3),
        Column("per second", title=f"{words.rate(sweep)}/s"),
        Column("tokens/s", priority=2),
        Column("memory"),
        Column("first call", priority=4, tone="faint"),
        Column("marks", title="", left_aligned=True, tone="mark"),
    )
    batched = len({cell.settings.batch for cell in sweep.cells}) > 1
    rows = []
    for series, cell_indices in words.rows(sweep).items():
        row_name = words.named(sweep, series)
        headed = batched and bool(row_name)
        if headed:
            rows.append(Row(row_name, {}, 1, "strong"))
        for index in cell_indices:
            cell = sweep.cells[index]
            name = f"batch {cell.settings.batch}" if batched else row_name or "as given"
            mark = words.marks(sweep, index) if cell.done else cell.status
            cells = words.figures(cell) | ({"marks": mark} if mark else {})
            rows.append(Row(name, cells, 1 + headed, "" if cell.done else "faint"))
    return Table(
        title="Cells",
        how="measured",
        columns=columns,
        rows=rows,
        notes=words.legend(sweep),
        layout="fitted",
    )


def _scaling(sweep: Sweep) -> Iterator[Block]:
    if sweep.scaling:
        yield Heading("Scaling with the batch", how="estimated", tone="")
    for scaling in sweep.scaling:
        if row := words.named(sweep, scaling.settings):
            yield Heading(row, tone="", level=1, tight=True)
        yield Facts(list(words.scaling(scaling)), label=LABEL, tight=True)
