"""A sparse table in the making: arguments of one kind become columns beside their rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from torchgauge.files import check_readable
from torchgauge.readers.columns import (
    Column,
    Documents,
    Fractions,
    Labels,
    Narrow,
    Numbers,
    Triples,
)
from torchgauge.readers.kineto.arguments import DEFAULTS, Arguments
from torchgauge.readers.snapshot.snapshot import is_pickle
from torchgauge.readers.tar_archive import MAGIC_AT, TAR
from torchgauge.records.trace.events import Codes, Integers, Rows


class Table:
    """One column per field of the arguments that is named; JSON texts are columns together."""

    def __init__(self, *names: str) -> None:
        self._row = Narrow(np.int64)
        texts = tuple(name for name in names if isinstance(DEFAULTS[name], msgspec.Raw))
        self._documents = Documents(texts)
        self._texts = attrgetter(*texts) if texts else None
        self._columns = {name: _column(DEFAULTS[name]) for name in names if name not in texts}

    def append(self, arguments: Sequence[Arguments], row: Rows) -> None:
        """Append the arguments of these rows."""
        self._row.append(row)
        for name, column in self._columns.items():
            column.add(map(attrgetter(name), arguments), len(arguments))
        if self._texts:
            self._documents.add(map(self._texts, arguments), len(arguments))

    def finish(self) -> dict[str, Any]:
        """Return the columns by name, `row` among them."""
        columns = {name: column.finish() for name, column in self._columns.items()}
        return {"row": self._row.finish(), **columns, **self._documents.finish()}


def _column(default: object) -> Column:
    """Return the column for a field with this default."""
    if isinstance(default, tuple):
        return Triples()
    if default is None:
        return Labels()
    return Fractions() if isinstance(default, float) else Numbers(np.int64)


def outer_first(start: Integers, duration: Integers, thread: Codes) -> Rows:
    """Return the spans in the order of threads and starts, the longer first, then as given."""
    return np.lexsort((-duration, start, thread))


def cut_ends(start: Integers, duration: Integers, thread: Codes) -> Integers:
    """Return the spans' ends in ns, so that of two on a thread one holds the other or they part.

    Of two that overlap, the one that loses less is cut: the later where it outlasts the one around
    it by rounding, the earlier where the later follows it.
    """
    order = outer_first(start, duration, thread)
    ends = (start + duration)[order].tolist()
    running: list[int] = []
    previous_code = None
    columns = zip(start[order].tolist(), thread[order].tolist(), strict=True)
    for index, (begin, thread_code) in enumerate(columns):
        if thread_code != previous_code:
            running, previous_code = [], thread_code
        while running:
            latest = running[-1]
            if begin < ends[latest]:
                overhang = ends[index] - ends[latest]
                if overhang <= 0:
                    break
                if overhang <= ends[latest] - begin:
                    ends[index] = ends[latest]
                    break
                ends[latest] = begin
            running.pop()
        running.append(index)
    cut = np.empty(len(start), np.int64)
    cut[order] = ends
    return cut


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
