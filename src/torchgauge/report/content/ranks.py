"""The ranks of a job side by side: which rank waits for which."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.records.trace.ranks import Ranks
from torchgauge.report.content.document import (
    Block,
    Column,
    Document,
    Note,
    Options,
    Row,
    Table,
    Warnings,
    cells,
)
from torchgauge.report.content.findings import verdict_items

COLUMNS = (
    Column("step", get=lambda rank: units.time(rank.step)),
    Column("work", get=lambda rank: units.time(rank.work)),
    Column("waiting", get=lambda rank: units.time(rank.waiting)),
    Column("communication", get=lambda rank: units.time(rank.communication)),
)
MFU = Column("MFU", get=lambda rank: units.percent(rank.mfu))


def document(ranks: Ranks, _options: Options) -> Document:
    """Return the times of each rank, and sentences about the straggler and missing ranks."""
    with_mfu = any(rank.mfu is not None for rank in ranks.ranks)
    columns = (*COLUMNS, MFU) if with_mfu else COLUMNS
    rows = [
        Row(
            f"{rank.number}",
            cells(columns, rank),
            tone="strong" if rank.number == ranks.straggler else "",
        )
        for rank in ranks.ranks
    ]
    blocks: list[Block] = [
        *verdict_items(ranks),
        Table(first="rank", columns=columns, rows=rows, tight=True),
    ]
    blocks += [Note(sentence, tight=True, level=1) for sentence in _sentences(ranks)]
    blocks += [Warnings(ranks.warnings, "Failed")] if ranks.warnings else []
    return Document(f"{ranks.world} ranks", "measured", blocks=blocks)


def _sentences(ranks: Ranks) -> Iterator[str]:
    if ranks.share == 0:
        yield "The ranks did not communicate while they were recorded: none waited for another."
    elif ranks.straggler is not None:
        lost = units.time(ranks.lost, 3)
        yield f"Rank {ranks.straggler} is the straggler: the others wait for it, {lost} of a step."
    elif len(ranks.ranks) > 1:
        yield "No rank is slower than the others."
    if ranks.share:
        yield (
            f"Communication is under way in {units.percent(ranks.share)} of the time; "
            f"ranks only wait for it in {units.percent(ranks.exposed)}."
        )
    if ranks.missing:
        yield f"No recorded steps of rank {', '.join(map(str, ranks.missing))}."
