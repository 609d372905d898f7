"""Read records stored in the user's state folder; an unreadable file reads as an empty record."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from torchgauge.errors import TorchgaugeError
from torchgauge.reading import RECORD, read_bytes


class Versioned(Protocol):
    """A record with a schema and a default for each other field."""

    @property
    def schema(self) -> str:
        """Its kind and version."""


K = TypeVar("K", bound=Versioned)


def read(file: Path, kind: type[K]) -> K:
    """Return the stored record; an empty one where the file is absent, damaged or outdated."""
    try:
        record = msgspec.json.decode(read_bytes(file, RECORD), type=kind)
    except (TorchgaugeError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return kind()
    return record if record.schema == kind().schema else kind()
