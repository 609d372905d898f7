"""Runs from files: a saved profile, lines of an export, another history."""

from __future__ import annotations

import contextlib
import itertools
import shlex
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from torchgauge.errors import InputError, RecordError, StoreError
from torchgauge.files import check_readable, write_atomically
from torchgauge.folders import working_folder
from torchgauge.history.connection import parse_place
from torchgauge.history.content import entry, not_a_profile
from torchgauge.history.store import Store
from torchgauge.reading import RECORD, too_large, unreadable
from torchgauge.records import codec
from torchgauge.records.generation.generation import Generation
from torchgauge.records.profile import Profile
from torchgauge.records.run import SCHEMA, Entry, Facts
from torchgauge.records.serving.serving import Serving

_FACTS = (
    "uuid", "created", "commit", "branch", "dirty", "message", "labels", "machine", "cpu", "gpu",
    "torch",
)  # fmt: skip


def json_lines(entries: Iterable[Entry]) -> Iterator[bytes]:
    """Yield one line for each run, all of it: what `torchgauge history add` reads again."""
    for stored in entries:
        yield msgspec.json.encode(stored) + b"\n"


def rows(entries: Iterable[Entry]) -> Iterator[dict[str, Any]]:
    """Yield a row of facts and figures (units in the keys) for each run."""
    for stored in entries:
        facts = {name: getattr(stored.run, name) for name in _FACTS}
        facts["labels"] = " ".join(f"{key}={value}" for key, value in stored.run.labels.items())
        yield facts | stored.profile.summary()


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


_SQLITE = b"SQLite format 3\0"


class _Line(msgspec.Struct):
    """A line of an export before its record is looked at: that may be of an older schema."""

    schema: str
    run: msgspec.Raw
    profile: msgspec.Raw


def entries(path: Path, facts: Facts) -> Iterator[Entry]:
    """Yield the runs of a file; `facts` apply to a saved profile, others have their own.

    Raises InputError `file-missing`, `file-not-regular`, `file-too-large`; RecordError
    `history-kind`, `history-line` and what the codec raises; StoreError of another history.
    """
    check_readable(path)
    try:
        with path.open("rb") as file:
            start = file.read(len(_SQLITE))
            if start == _SQLITE:
                yield from _other_history(path)
                return
            file.seek(0)
            lines = _lines(path, file)
            first = next(lines, (1, b""))
            if _is_line(first[1]):
                for number, line in itertools.chain([first], lines):
                    yield _entry(line, f"line {number} of '{path}'")
                return
    except OSError as error:
        raise unreadable(f"'{path}'", error) from None
    record = codec.load(path)
    profiles = record.profiles if isinstance(record, Generation | Serving) else (record,)
    for profile in profiles or (record,):
        if not isinstance(profile, Profile):
            raise not_a_profile(f"'{path}'", record)
        yield entry(profile, facts)


def _lines(path: Path, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers, each a record of its own."""
    limit = RECORD.limit_for(path.stat().st_size)
    for number in itertools.count(1):
        line = file.readline(limit + 1)
        if not line:
            return
        if len(line) > limit:
            raise too_large(f"'{path}'", f"Line {number}", limit)
        if number == 1 or line.strip():
            yield number, line


def _is_line(line: bytes) -> bool:
    try:
        return msgspec.json.decode(line, type=_Line).schema == SCHEMA
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _entry(line: bytes, origin: str) -> Entry:
    """Return the run of a line: its identity as it was, its content checked again."""
    try:
        parsed = msgspec.json.decode(line, type=_Line)
        facts = msgspec.json.decode(parsed.run, type=Facts)
        named = msgspec.json.decode(parsed.run, type=_Identity)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(
            f"{origin} is not a run of a history.",
            id="history-line",
            cause=str(error),
            remedy="Export again; a line holds one whole run.",
        ) from error
    profile = codec.decode(bytes(parsed.profile), origin)
    if not isinstance(profile, Profile):
        raise not_a_profile(origin, profile)
    new_entry = entry(profile, facts)
    run = msgspec.structs.replace(new_entry.run, uuid=named.uuid, recorded=named.recorded)
    return msgspec.structs.replace(new_entry, run=run)


class _Identity(msgspec.Struct):
    uuid: str
    recorded: str


def _other_history(path: Path) -> Iterator[Entry]:
    """Yield another store's runs, which stays as it is."""
    with Store.open(str(path.absolute()), create=False) as store:
        yield from store.entries()
