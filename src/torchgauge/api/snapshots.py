"""Read memory snapshots from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchgauge.records.snapshot import Growth, Snapshot


def read_snapshot(path: str | Path) -> Snapshot:
    """Read a file of torch.cuda.memory._dump_snapshot; neither torch nor a GPU is needed.

    A pickle is a program: one that contains more than plain values is refused, and none of it is
    run. Gzip and the same content as JSON are read too.

    Raises InputError: `file-missing`, `file-not-regular`, `pickle-unsafe`, `pickle-not-plain`,
    `pickle-damaged`, `snapshot-not-one`, `snapshot-damaged`, `snapshot-malformed`,
    `trace-directory`, `trace-too-large`.

    Examples:
        >>> import torchgauge as tg
        >>> snapshot = tg.read_snapshot("snapshot.pickle")
        >>> [device.reserved for device in snapshot.devices]  # bytes
        [20971520]
    """
    from torchgauge.analyze.snapshot.snapshot import snapshot
    from torchgauge.readers.snapshot.snapshot import read_recording

    return snapshot(read_recording(Path(path)), Path(path).name)


def compare_snapshots(baseline: Snapshot | str | Path, current: Snapshot | str | Path) -> Growth:
    """Return what grew between two snapshots of one program, by stack. Raises as `read_snapshot`.

    A saved record of a snapshot (JSON) does as well.
    """
    from torchgauge.analyze.snapshot.growth import growth

    return growth(_loaded(baseline), _loaded(current))


def _loaded(snapshot_or_path: Snapshot | str | Path) -> Snapshot:
    from torchgauge.errors import RecordError
    from torchgauge.records import codec
    from torchgauge.records.snapshot import Snapshot

    if isinstance(snapshot_or_path, Snapshot):
        return snapshot_or_path
    try:
        record = codec.load(Path(snapshot_or_path))
    except RecordError:
        return read_snapshot(snapshot_or_path)
    return record if isinstance(record, Snapshot) else read_snapshot(snapshot_or_path)
