"""Saved records, read back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.api.snapshots import read_snapshot
from torchgauge.model import codec

if TYPE_CHECKING:
    from torchgauge.model.ranks import Ranks


def load(path: str | Path) -> codec.Saved:
    """Return the record saved at `path`, or what a recorded trace says; torch is not needed.

    A folder is that of a distributed loop, whose ranks' records (`*.rank*.json`) come side by side,
    or holds the traces of a job's ranks; a pickle is a memory snapshot. What a file holds is told
    by its content.

    Raises InputError `file-missing`; RecordError `record-unreadable`, `record-foreign`,
    `record-newer`, `record-invalid`; of ranks what `analyze.ranks.merged` raises, of traces and
    snapshots what `read_trace` and `read_snapshot` do.
    """
    from torchgauge.api.contents import content

    path = Path(path)
    found = content(path)
    if found == "trace":
        from torchgauge.api.traces import read_trace

        return read_trace(path)
    if found == "snapshot":
        return read_snapshot(path)
    return load_ranks(path) if found == "ranks" else codec.load(path)


def load_ranks(folder: Path) -> Ranks:
    """Return the ranks whose records are in a folder, side by side."""
    from torchgauge.analyze.ranks import merged
    from torchgauge.model.loop import Loop

    found = [codec.load(path) for path in sorted(folder.glob("*.rank*.json"))]
    return merged([one for one in found if isinstance(one, Loop)])
