"""Lines of Python as a flat table: those of traced functions, or those sampled in a tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchgauge.records.timeline.line_time import LineTime
from torchgauge.records.timeline.table import Table
from torchgauge.records.timeline.traced_lines import TracedFunction


def traced(functions: Iterable[TracedFunction]) -> Table:
    """Return one row per line: seconds, its share of the function's, bytes."""
    rows = [(function, line) for function in functions for line in function.lines]
    return Table(
        {
            "file": [function.file for function, _ in rows],
            "function": [function.name for function, _ in rows],
            "line": [line.line for _, line in rows],
            "hits": [line.hits for _, line in rows],
            "time": [line.time for _, line in rows],
            "share": [
                line.time / function.time if function.time else None for function, line in rows
            ],
            "allocated": [line.allocated for _, line in rows],
            "source": [line.source for _, line in rows],
        }
    )


def sampled(lines: Sequence[LineTime]) -> Table:
    """Return one row per line and layer: seconds of Python between operators."""
    names = ("file", "line", "layer", "time", "share", "samples", "source")
    return Table({name: [getattr(line, name) for line in lines] for name in names})
