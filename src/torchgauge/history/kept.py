"""Save a run that the store refused to a file: measuring it again may not be possible.

`with open_or_keep(location, entry) as store: add_or_keep(store, entry)` is how a run is saved.
"""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from torchgauge.errors import InputError, StoreError
from torchgauge.files import write_atomically
from torchgauge.folders import working_folder
from torchgauge.history.connection import parse_place
from torchgauge.history.store import Store
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


def open_or_keep(location: str, entry: Entry) -> Store:
    """Open the history to add a run; raises its error with the file that holds the run instead."""
    try:
        return Store.open(location)
    except StoreError as error:
        raise save_to_file(entry, error, parse_place(location).file) from None


def add_or_keep(store: Store, entry: Entry) -> tuple[str, bool]:
    """Add a run as `Store.add` does; raises its error with the file that holds the run instead."""
    try:
        return store.add(entry)
    except StoreError as error:
        raise save_to_file(entry, error, store.file) from None


def save_to_file(entry: Entry, error: StoreError, store_file: Path | None) -> StoreError:
    """Write the run to a file and return the error, saying where; beside the store if possible.

    Else it goes into the working directory, else to where temporary files are.
    """
    data = b"".join(json_lines([entry]))
    for folder in _folders(store_file):
        try:
            path = write_atomically(folder / f"torchgauge-run-{entry.run.uuid}.jsonl", data)
        except InputError:
            continue
        remedy = f"{error.remedy} The run is kept:\n"
        remedy += f"torchgauge history add {shlex.quote(str(path))}"
        break
    else:
        remedy = f"{error.remedy} The run could not be kept in a file either."
    return StoreError(error.message, id=error.id, cause=error.cause, remedy=remedy)


def _folders(store_file: Path | None) -> Iterator[Path]:
    if store_file is not None:
        yield store_file.parent
    with contextlib.suppress(InputError):  # it was removed
        yield working_folder()
    with contextlib.suppress(OSError):  # none can be written
        yield Path(tempfile.gettempdir())
