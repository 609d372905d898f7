"""Two recorded traces side by side: of the same rank, as far as both have it."""

from __future__ import annotations

from pathlib import Path

from torchgauge.analyze.trace.trace_compare import compare_traces
from torchgauge.errors import InputError
from torchgauge.progress import showing
from torchgauge.readers.contents import content
from torchgauge.records import codec
from torchgauge.records.trace.trace import RankTrace, Trace
from torchgauge.records.trace.trace_diff import TraceDiff
from torchgauge.traces.job_trace import read
from torchgauge.traces.read_options import ReadOptions
from torchgauge.traces.trace_files import rank_unknown


def compared(
    baseline: Trace | str | Path,
    current: Trace | str | Path,
    rank: int | None,
    timeline_bytes: int = 0,
) -> TraceDiff:
    """Compare `rank` of both, else the first that both have, else the first of each.

    Of files the events for the page's timelines are kept, in `timeline_bytes` for each.

    Raises InputError `rank-unknown`, `not-a-trace`, and as `read_trace`.
    """
    sides = [
        side if not isinstance(side, str | Path) else _trace_at(Path(side), timeline_bytes)
        for side in (baseline, current)
    ]
    current_numbers = {trace.rank for trace in sides[1].ranks}
    common = [trace.rank for trace in sides[0].ranks if trace.rank in current_numbers]
    number = rank if rank is not None or not common else common[0]
    ranks = [_rank(side, number if rank is not None or common else None) for side in sides]
    return compare_traces(ranks[0], ranks[1], (sides[0].name, sides[1].name))


def _trace_at(path: Path, timeline_bytes: int) -> Trace:
    if content(path) != "record":
        with showing(None) as display:
            return read(path, ReadOptions(timeline_bytes=timeline_bytes), display)
    record = codec.load(path)
    if isinstance(record, Trace):
        return record
    raise InputError(
        f"'{path}' holds a {type(record).__name__.lower()}, not a trace.",
        id="not-a-trace",
        remedy="Compare traces with traces, and runs with runs.",
    )


def _rank(trace: Trace, number: int | None) -> RankTrace:
    if number is None:
        return trace.ranks[0]
    for rank_trace in trace.ranks:
        if rank_trace.rank == number:
            return rank_trace
    raise rank_unknown(trace.name, [rank_trace.rank for rank_trace in trace.ranks], number)
