"""A part of a recorded trace as a trace: the recorded events that are in it, to the byte.

The file is read once more, chunk by chunk. Names of processes and threads stay, and so does what
stands around the events; they are in the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchgauge.analyze.selection import Selection
from torchgauge.model.events import ABSENT, Events
from torchgauge.trace.categories import ARROWS, MODULE_CALL, PYTHON, current_name
from torchgauge.trace.raw_events import Head, RawEvents
from torchgauge.trace.times import nanoseconds

_KEPT, _MOMENT, _ROW, _ARROW = range(4)


def parts(raw: RawEvents, events: Events, kept: Selection) -> Iterator[bytes]:
    """Yield the file's text; `events` are those of the same file, with Python's module calls."""
    chosen = _Chosen(events, kept)
    between = b"\n"
    for number, batch in enumerate(raw):
        if not number:
            yield raw.before
        mask = chosen.of(batch.heads)
        if texts := [text for text, wanted in zip(batch.texts, mask, strict=True) if wanted]:
            yield between + b",\n".join(texts)
            between = b",\n"
    yield b"\n" + raw.after


class _Chosen:
    """Says of events as they come which are kept."""

    def __init__(self, events: Events, kept: Selection) -> None:
        self._kept = kept
        self._origin = events.metadata.origin
        self._threads = {thread: code for code, thread in enumerate(events.thread.values)}
        flows = events.flows
        self._arrows = {
            (flows.category[place], int(flows.id[place]))
            for place in np.flatnonzero(kept.flows).tolist()
        }
        self._spans = 0  # that were met

    def of(self, heads: list[Head]) -> list[bool]:
        """Return which of the next events are kept."""
        kinds = [_kind(head) for head in heads]
        mask = np.array(kinds, np.int8) == _KEPT
        rows = [place for place, kind in enumerate(kinds) if kind == _ROW]
        mask[rows] = self._kept.spans[self._spans : self._spans + len(rows)]
        self._spans += len(rows)
        moments = [place for place, kind in enumerate(kinds) if kind == _MOMENT]
        if not _timed([heads[place] for place in moments]):
            moments = [place for place in moments if _timed([heads[place]])]
        mask[moments] = self._at([heads[place] for place in moments])
        for place, kind in enumerate(kinds):
            if kind == _ARROW:
                key = (current_name(heads[place].cat), heads[place].id)
                mask[place] = key in self._arrows
        return list(map(bool, mask.tolist()))

    def _at(self, heads: list[Head]) -> np.ndarray:
        time = nanoseconds([head.ts for head in heads]) - self._origin
        codes = (self._threads.get((head.pid, head.tid), ABSENT) for head in heads)
        return self._kept.moments(time, np.fromiter(codes, np.int32, len(heads)))


def _kind(head: Head) -> int:
    """Return what decides on an event."""
    if head.ph == "M":
        return _KEPT
    if not head.ts:
        return -1
    if head.ph == "X":
        inner = head.cat == PYTHON and not head.name.startswith(MODULE_CALL)
        return _MOMENT if inner else _ROW
    return _ARROW if head.ph in "sf" and head.cat in ARROWS else _MOMENT


def _timed(heads: list[Head]) -> bool:
    """Whether these have times: those that the reader of traces leaves out may have none."""
    try:
        nanoseconds([head.ts for head in heads])
    except ValueError:
        return False
    return True
