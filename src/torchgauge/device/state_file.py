"""What torchgauge keeps of a user's machines, read back: nothing, where that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from torchgauge.errors import TorchgaugeError
from torchgauge.reading import RECORD, whole


class Kept(Protocol):
    """A record with a schema and a default for all that it holds."""

    @property
    def schema(self) -> str:
        """Its kind and version."""


K = TypeVar("K", bound=Kept)


def read(file: Path, kind: type[K]) -> K:
    """Return what is kept; nothing where the file is absent, damaged or of another version."""
    try:
        kept = msgspec.json.decode(whole(file, RECORD), type=kind)
    except (TorchgaugeError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return kind()
    return kept if kept.schema == kind().schema else kind()
