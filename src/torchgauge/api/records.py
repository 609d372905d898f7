"""Saved records, read back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.api.snapshots import read_snapshot
from torchgauge.model import codec

if TYPE_CHECKING:
    from torchgauge.model.ranks import Ranks


def load(path: str | Path) -> codec.Saved:
    """Return the record saved at `path`; torch is not needed.

    A pickle is a memory snapshot. A folder is that of a distributed loop: its ranks' records
    (`*.rank*.json`) come side by side.

    Raises InputError `file-missing`, of pickles as `read_snapshot`; RecordError
    `record-unreadable`, `record-foreign`, `record-newer`, `record-invalid`; of ranks what
    `analyze.ranks.merged` raises.
    """
    from torchgauge.trace.snapshot import is_pickle

    path = Path(path)
    if path.is_dir():
        return load_ranks(path)
    return read_snapshot(path) if is_pickle(path) else codec.load(path)


def load_ranks(folder: Path) -> Ranks:
    """Return the ranks whose records are in a folder, side by side."""
    from torchgauge.analyze.ranks import merged
    from torchgauge.model.loop import Loop

    found = [codec.load(path) for path in sorted(folder.glob("*.rank*.json"))]
    return merged([one for one in found if isinstance(one, Loop)])
