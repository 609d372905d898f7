"""A history as text: whole runs as lines of JSON, their facts and figures as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from torchgauge.records.run import Entry

_FACTS = (
    "uuid", "created", "commit", "branch", "dirty", "message", "labels", "machine", "cpu", "gpu",
    "torch",
)  # fmt: skip


def json_lines(entries: Iterable[Entry]) -> Iterator[bytes]:
    """Yield one line for each run, all of it: what `torchgauge history add` reads again."""
    for entry in entries:
        yield msgspec.json.encode(entry) + b"\n"


def rows(entries: Iterable[Entry]) -> Iterator[dict[str, Any]]:
    """Yield a row of facts and figures (units in the keys) for each run."""
    for entry in entries:
        facts = {name: getattr(entry.run, name) for name in _FACTS}
        facts["labels"] = " ".join(f"{key}={value}" for key, value in entry.run.labels.items())
        yield facts | entry.profile.summary()
