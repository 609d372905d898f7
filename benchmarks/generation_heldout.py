"""How near cells that were measured come to what the other cells say of them.

    torchgauge generate MODEL --prompt 64,128,256,512,1024 --batch 1,2,4,8 --json > one.json
    python benchmarks/generation_heldout.py one.json [more.json]

Each cell of each record is left out in turn, and predicted by the fits of the others.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from torchgauge.analyze.generation.fits import fits
from torchgauge.analyze.generation.predictions import predict
from torchgauge.records import codec
from torchgauge.records.generation.generation import Generation


class Outcome(NamedTuple):
    """A figure of a cell that was left out; `is_held` is None without an interval."""

    figure: str
    extrapolated: bool
    is_held: bool | None
    error: float


def held_out(generation: Generation) -> list[Outcome]:
    """Return the outcomes of a record's cells."""
    outcomes = []
    for left_out in generation.done:
        cells = tuple(cell for cell in generation.done if cell is not left_out)
        others = replace(generation, cells=cells, fits=fits(cells))
        predicted = predict(
            others,
            batch=left_out.batch,
            prompt=left_out.prompt,
            new_tokens=left_out.new_tokens,
            cache_kind=left_out.cache_kind,
        )
        for figure in ("ttft", "tpot"):
            measured = getattr(left_out, figure)
            if predicted is None or measured is None:
                continue
            interval = getattr(predicted, f"{figure}_interval")
            is_held = None if interval is None else interval.low <= measured.value <= interval.high
            error = abs(getattr(predicted, figure) / measured.value - 1)
            outcomes.append(Outcome(figure, predicted.extrapolated, is_held, error))
    return outcomes


def main() -> None:
    """Print a row for each record and figure."""
    print("| record | figure | cells | inside | error among cells | in all |")
    print("|---|---|---|---|---|---|")
    for path in sys.argv[1:]:
        record = codec.decode(Path(path).read_bytes())
        outcomes = held_out(record)
        for figure in ("ttft", "tpot"):
            of_figure = [outcome for outcome in outcomes if outcome.figure == figure]
            held = [outcome.is_held for outcome in of_figure if outcome.is_held is not None]
            among = [outcome.error for outcome in of_figure if not outcome.extrapolated]
            share = f"{statistics.fmean(held):.0%}" if held else "–"
            errors = [
                f"{statistics.median(values):.1%}" if values else "–"
                for values in (among, [outcome.error for outcome in of_figure])
            ]
            print(f"| {path} | {figure} | {len(of_figure)} | {share} | {' | '.join(errors)} |")


if __name__ == "__main__":
    main()
