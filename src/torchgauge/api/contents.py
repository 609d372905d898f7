"""What a file or a folder holds, by its first bytes: traces end in .json too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from torchgauge.trace.snapshot import is_pickle

Content = Literal["record", "ranks", "trace", "snapshot"]
_FIRST = 4096
_PACKED = (b"\x1f\x8b", b"PK\x03\x04")
_RECORD = re.compile(rb'\s*\{\s*"schema"\s*:\s*"torchgauge\.')


def content(path: Path) -> Content | None:
    """Return what is there; None where there is nothing, or a file that cannot be opened.

    A file that is none of them counts as a record, whose reader says what is wrong with it.
    """
    if path.is_dir():
        return "ranks" if any(path.glob("*.rank*.json")) else "trace"
    try:
        with path.open("rb") as file:
            first = file.read(_FIRST)
    except OSError:
        return None
    if is_pickle(path):
        return "snapshot"
    if first.startswith(_PACKED):
        return "trace"
    if _RECORD.match(first):
        return "record"
    return "trace" if b'"traceEvents"' in first or b'"schemaVersion"' in first else "record"
