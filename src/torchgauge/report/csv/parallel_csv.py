"""One rank of a job on many devices as rows: its figures, or what layers hold at the peak."""

from __future__ import annotations

from torchgauge.records import rendering
from torchgauge.records.parallel.parallel import Parallel


def table(record: Parallel, name: str) -> tuple[list[str], list[list[object]]]:
    """Return names and rows: the figures as one row, layers by part, or collectives.

    Raises InputError `format-unfit`.
    """
    if name == "figures":
        row = record.summary()
        return list(row), [list(row.values())]
    if name == "layers":
        return ["kind", "layer", "part", "bytes"], [
            [kind.name, alive.layer, alive.part, alive.bytes]
            for kind in record.kinds
            for alive in kind.memory.at_peak
        ]
    if name == "operators":
        fields = ["kind", "group", "ranks", "phase", "dtype", "calls", "bytes", "sent", "exposure"]
        return ["rank", *fields], [
            [kind.name, *(getattr(row, field) for field in fields)]
            for kind in record.kinds
            for row in kind.collectives
        ]
    raise rendering.unfit(type(record).__name__, name)
