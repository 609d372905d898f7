"""The ranks of a job side by side: which rank waits for which."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table

from torchgauge import units
from torchgauge.records.trace.ranks import Ranks
from torchgauge.report.console.console import warnings_view
from torchgauge.report.console.plain import plain
from torchgauge.report.console.text import Text


def render(ranks: Ranks) -> str:
    """Return the summary as plain text (see `plain`)."""
    return plain(lambda _width: view(ranks))


def view(ranks: Ranks) -> RenderableType:
    """Return the summary as something rich prints in any width."""
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    grid.add_column("  rank")
    for name in ("step", "work", "waiting", "communication"):
        grid.add_column(name, justify="right", no_wrap=True)
    for rank in ranks.ranks:
        times = (rank.step, rank.work, rank.waiting, rank.communication)
        style = "bold" if rank.number == ranks.straggler else ""
        grid.add_row(f"  {rank.number}", *map(units.time, times), style=style)
    blocks: list[RenderableType] = [
        Text.assemble((f"{ranks.world} ranks", "bold cyan"), ("  measured", "dim italic")),
        grid,
        *(Text(f"  {line}") for line in lines(ranks)),
    ]
    if ranks.warnings:
        blocks += [Text(""), warnings_view("Failed", list(ranks.warnings))]
    return Group(*blocks)


def lines(ranks: Ranks) -> list[str]:
    """Return sentences about the straggler, communication and missing ranks."""
    sentences = []
    if ranks.straggler is not None:
        sentences.append(
            f"Rank {ranks.straggler} is the straggler: the others wait for it, "
            f"{units.time(ranks.lost, 3)} of a step."
        )
    elif len(ranks.ranks) > 1:
        sentences.append("No rank is slower than the others.")
    if ranks.share is not None:
        sentences.append(
            f"Communication is under way in {units.percent(ranks.share)} of the time; "
            f"ranks only wait for it in {units.percent(ranks.exposed)}."
        )
    if ranks.missing:
        sentences.append(f"No recorded steps of rank {', '.join(map(str, ranks.missing))}.")
    return sentences
