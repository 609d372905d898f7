"""Detect what a file or a folder contains, by its first bytes: traces end in .json too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from torchgauge.files import check_readable
from torchgauge.readers.snapshot.snapshot import is_pickle
from torchgauge.readers.tar_archive import MAGIC_AT, TAR

Content = Literal["record", "ranks", "trace", "snapshot"]
_KINDS: tuple[Literal["trace", "snapshot"], ...] = ("trace", "snapshot")
_FIRST = 4096
_PACKED = (b"\x1f\x8b", b"PK\x03\x04")
_RECORD = re.compile(rb'\s*\{\s*"schema"\s*:\s*"torchgauge\.')


def content(path: Path) -> Content | None:
    """Return the kind of a file or folder; None if there is nothing, or it cannot be opened.

    A file of another kind counts as a record, whose reader explains what is wrong with it. Raises
    InputError `file-not-regular`.
    """
    check_readable(path)
    if path.is_dir():
        return "ranks" if any(path.glob("*.rank*.json")) else "trace"
    try:
        with path.open("rb") as file:
            first = file.read(_FIRST)
    except OSError:
        return None
    if is_pickle(path):
        return "snapshot"
    if first.startswith(_PACKED) or first[MAGIC_AT:].startswith(TAR):
        return "trace"
    if _RECORD.match(first):
        return "record"
    return "trace" if b'"traceEvents"' in first or b'"schemaVersion"' in first else "record"


def evidence(*sides: object) -> Literal["trace", "snapshot"] | None:
    """Return "trace" or "snapshot" if a side of a comparison is one, given or at a path; else None.

    Saved records of traces and of snapshots count as what they describe.
    """
    kinds = {_kind(side) for side in sides}
    return next((kind for kind in _KINDS if kind in kinds), None)


def _kind(side: object) -> str | None:
    from torchgauge.records.snapshot import Snapshot
    from torchgauge.records.trace.trace import Trace

    if isinstance(side, Trace | Snapshot):
        return "trace" if isinstance(side, Trace) else "snapshot"
    if not isinstance(side, str | Path):
        return None
    path = Path(side)
    kind = content(path)
    if kind != "record" or not path.is_file():
        return kind
    with path.open("rb") as file:
        first = file.read(_FIRST)
    return next(
        (kind_name for kind_name in _KINDS if f'"torchgauge.{kind_name}/'.encode() in first[:200]),
        None,
    )
