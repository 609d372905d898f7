"""Runs from files: a saved profile, lines of an export, another history."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from torchgauge.errors import InputError, RecordError
from torchgauge.history.content import entry, not_a_profile
from torchgauge.history.store import Store
from torchgauge.model import codec
from torchgauge.model.profile import Profile
from torchgauge.model.run import SCHEMA, Entry, Facts
from torchgauge.temporary import temporary_folder

_SQLITE = b"SQLite format 3\0"


class _Line(msgspec.Struct):
    """A line of an export before its record is looked at: that may be of an older schema."""

    schema: str
    run: msgspec.Raw
    profile: msgspec.Raw


def entries(path: Path, facts: Facts) -> Iterator[Entry]:
    """Yield the runs of a file; `facts` are said of a saved profile, others have their own.

    Raises InputError `file-missing`; RecordError `history-kind`, `history-line` and what the codec
    raises; StoreError of another history.
    """
    try:
        with path.open("rb") as file:
            start = file.read(len(_SQLITE))
            if start == _SQLITE:
                yield from _other_history(path)
                return
            file.seek(0)
            first = file.readline()
            if _is_line(first):
                yield from (
                    _entry(line, f"line {n} of '{path}'") for n, line in _lines(first, file)
                )
                return
    except OSError as error:
        raise InputError(
            f"'{path}' cannot be read.",
            id="file-missing",
            cause=error.strerror or str(error),
            remedy="Check the path.",
        ) from None
    profile = codec.load(path)
    if not isinstance(profile, Profile):
        raise not_a_profile(f"'{path}'", profile)
    yield entry(profile, facts)


def _lines(first: bytes, rest: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    yield 1, first
    for number, line in enumerate(rest, start=2):
        if line.strip():
            yield number, line


def _is_line(line: bytes) -> bool:
    try:
        return msgspec.json.decode(line, type=_Line).schema == SCHEMA
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _entry(line: bytes, origin: str) -> Entry:
    """Return the run of a line: its identity as it was, its content checked anew."""
    try:
        found = msgspec.json.decode(line, type=_Line)
        facts = msgspec.json.decode(found.run, type=Facts)
        named = msgspec.json.decode(found.run, type=_Identity)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(
            f"{origin} is no run of a history.",
            id="history-line",
            cause=str(error),
            remedy="Export again; a line holds one whole run.",
        ) from error
    profile = codec.decode(bytes(found.profile), origin)
    if not isinstance(profile, Profile):
        raise not_a_profile(origin, profile)
    made = entry(profile, facts)
    run = msgspec.structs.replace(made.run, uuid=named.uuid, recorded=named.recorded)
    return msgspec.structs.replace(made, run=run)


class _Identity(msgspec.Struct):
    uuid: str
    recorded: str


def _other_history(path: Path) -> Iterator[Entry]:
    """Yield another store's runs from a copy: reading an older one must not change it."""
    with temporary_folder() as folder:
        copy = folder / "history.db"
        for end in ("", "-wal"):
            beside = path.with_name(path.name + end)
            if beside.exists():
                shutil.copyfile(beside, copy.with_name(copy.name + end))
        with Store.open(str(copy), create=False) as store:
            yield from store.entries()
