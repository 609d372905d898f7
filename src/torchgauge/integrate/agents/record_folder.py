"""The records, traces and snapshots below one folder, named by paths that cannot leave it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.files import is_folder
from torchgauge.readers.contents import content

MAX_EXAMINED = 5000  # files that a list looks into
_FIRST = 4096
_SCHEMA = re.compile(rb'\s*\{\s*"schema"\s*:\s*"torchgauge\.([a-z_]+)/\d+"')


class Entry(NamedTuple):
    """A file that can be read.

    Attributes:
        path: Its name, relative to the folder.
        kind: "trace", "snapshot", or the kind of record, such as "profile".
        bytes: Its size.
        modified: Seconds since 1970.
    """

    path: str
    kind: str
    bytes: int
    modified: float


class RecordFolder:
    """A folder whose files may be read, and nothing outside of it; nothing is written.

    Raises InputError `file-missing` where there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        if not is_folder(folder):
            raise InputError(
                f"'{folder}' is not a folder.",
                id="file-missing",
                remedy="Name the folder that has the records.",
            )
        self._root = folder.resolve()

    def path(self, name: str) -> Path:
        """Return the path of a name relative to the folder.

        Raises InputError `path-outside` for one that leads out of it, by "..", from the root or by
        a link, of its own or of a file in the folder that it names.
        """
        try:
            path = (self._root / name).resolve()
            inside = path.is_relative_to(self._root) and all(
                link.resolve().is_relative_to(self._root) for link in _links(path)
            )
        except (OSError, ValueError, RuntimeError):  # a name too long, a NUL, links in a circle
            inside = False
        if not inside:
            raise InputError(
                "The path leads out of the folder that is served.",
                id="path-outside",
                remedy="Give a path of list_records.",
            )
        return path

    def entries(self) -> tuple[list[Entry], bool]:
        """Return what can be read, newest first, and whether there are more files than examined."""
        entries: list[Entry] = []
        for examined_count, path in enumerate(self._files()):
            if examined_count == MAX_EXAMINED:
                return sorted(entries, key=_newest_first), True
            if entry := self._entry(path):
                entries.append(entry)
        return sorted(entries, key=_newest_first), False

    def _files(self) -> Iterator[Path]:
        for folder, folders, names in os.walk(self._root):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            yield from (Path(folder, name) for name in sorted(names) if not name.startswith("."))

    def _entry(self, path: Path) -> Entry | None:
        """Return the entry of a file; None of what is neither record, trace nor snapshot."""
        try:
            resolved = self.path(str(path))
            kind: str | None = content(resolved)
            if kind == "record":
                kind = _record_kind(resolved)
            if kind is None:
                return None
            status = resolved.stat()
        except (OSError, TorchgaugeError):
            return None
        name = path.relative_to(self._root).as_posix()
        return Entry(name, kind, status.st_size, status.st_mtime)


def _links(path: Path) -> list[Path]:
    """Return the links that a folder's reader would follow."""
    return [entry for entry in path.iterdir() if entry.is_symlink()] if path.is_dir() else []


def _record_kind(path: Path) -> str | None:
    with path.open("rb") as file:
        schema = _SCHEMA.match(file.read(_FIRST))
    return None if schema is None else schema[1].decode()


def _newest_first(entry: Entry) -> tuple[float, str]:
    return -entry.modified, entry.path
