"""The file of a sweep that is under way: each finished cell at once, so that nothing is lost.

A line of JSON for the sweep that it belongs to, then one for each finished process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from torchgauge.errors import InputError, RecordError
from torchgauge.files import check_readable
from torchgauge.reading import RECORD, too_large
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.sweep import CellSettings
from torchgauge.sweeps.job import Entry

SCHEMA = "torchgauge.sweep-journal/1"
_BEGINNING = b'{"schema":"torchgauge.sweep-journal/'


class _Head(msgspec.Struct, frozen=True):
    schema: str
    sweep: dict[str, str]


class Journal:
    """Finished processes by settings and number; entering reads what is there and locks the file.

    `sweep` says what the sweep is of, by name: a file of another one is refused.
    """

    def __init__(self, path: Path | None, sweep: Mapping[str, str]) -> None:
        self.path = path
        self.entries: dict[tuple[CellSettings, int], Entry] = {}
        self.warning: MeasurementWarning | None = None
        self._head = _Head(SCHEMA, dict(sweep))
        self._file: BinaryIO | None = None

    def __enter__(self) -> Journal:
        """Raises InputError.

        `sweep-other`, `sweep-running`, `file-not-regular`, `file-too-large` and `file-missing` (a
        name that no file can have), `output-unwritable`.
        """
        if self.path is None:
            return self
        try:
            check_readable(self.path)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab+")
            self._lock(self._file)
            self._read(self._file)
        except BaseException as error:  # whatever it is, the file is closed first
            self._close()
            if not isinstance(error, OSError):
                raise
            raise InputError(
                f"'{self.path}' could not be written.",
                id="output-unwritable",
                cause=error.strerror or str(error),
                remedy="Choose another place for the sweep's file.",
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file, which lets others have it."""
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # closing writes what is left, and may fail again
                file.close()

    def add(self, entry: Entry) -> None:
        """Keep what came of a process, on the disk before the next one starts.

        Where the disk is full, `warning` says so, and the sweep goes on without its file.
        """
        self.entries[entry.cell.settings, entry.number] = entry
        try:
            self._append(entry)
        except OSError as error:
            self._close()
            self.warning = MeasurementWarning(
                id="output-unwritable",
                message=f"'{self.path}' could not be written ({error.strerror or error}): "
                "later measurements are in the result only.",
                probe="sweep",
            )

    def _append(self, line: object) -> None:
        if self._file is not None:
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def _lock(self, file: BinaryIO) -> None:
        try:
            import fcntl
        except ImportError:  # not on Windows
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                f"'{self.path}' belongs to a sweep that is running.",
                id="sweep-running",
                remedy="Wait for it, or give this one another file.",
            ) from error

    def _read(self, file: BinaryIO) -> None:
        file.seek(0)
        limit = RECORD.limit_for(os.fstat(file.fileno()).st_size)
        text = file.read(limit + 1)
        if len(text) > limit:
            raise too_large(f"'{self.path}'", "It", limit)
        head, *lines = text.split(b"\n")
        if not lines and _BEGINNING.startswith(head[: len(_BEGINNING)]):
            # New, or killed within its first line.
            file.truncate(0)
            self._append(self._head)
            return
        self._check(head)
        for line in lines[:-1]:
            entry = self._decoded(line)
            self.entries[entry.cell.settings, entry.number] = entry
        # What follows the last end of line was being written when the sweep was killed.
        file.truncate(file.tell() - len(lines[-1]))

    def _decoded(self, line: bytes) -> Entry:
        try:
            return msgspec.json.decode(line, type=Entry)
        except (RecordError, ValueError, RecursionError) as error:
            raise self._foreign(f"A line cannot be read: {error}") from error

    def _check(self, line: bytes) -> None:
        try:
            head = msgspec.json.decode(line, type=_Head)
        except (ValueError, RecursionError) as error:
            raise self._foreign("It does not begin as one.") from error
        if head.schema != SCHEMA:
            raise self._foreign(f"It has schema {head.schema}; this torchgauge reads {SCHEMA}.")
        names = dict.fromkeys((*head.sweep, *self._head.sweep))
        was, now = head.sweep, self._head.sweep
        other = [
            f"{name} was {was.get(name, 'not given')}, is {now.get(name, 'not given')}"
            for name in names
            if was.get(name) != now.get(name)
        ]
        if other:
            raise self._foreign("; ".join(other) + ".")

    def _foreign(self, cause: str) -> InputError:
        return InputError(
            f"'{self.path}' is not the file of this sweep.",
            id="sweep-other",
            cause=cause,
            remedy="Give another file, or delete it to start again.",
        )
