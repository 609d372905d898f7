"""The columns of requests while they are sent, and the record that they become."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchgauge.records.serving.requests import FATES, Fate, Requests

if TYPE_CHECKING:
    import numpy as np

CODES: dict[Fate, int] = {fate: code for code, fate in enumerate(FATES)}
PENDING = -1
_ROWS = 256
_MANY_PENDING = array("q", [PENDING] * _ROWS)
_MANY_UNKNOWN = array("d", [math.nan] * _ROWS)
_MANY_UNCOUNTED = array("q", [-1] * _ROWS)


def _floats() -> array[float]:
    return array("d")


def _integers() -> array[int]:
    return array("q")


@dataclass
class Columns:
    """A row for each request that was due, in the order in which this process began them.

    Arrays hold no objects: a garbage collection costs the same after a million requests. Times are
    moments of `time.monotonic`, NaN where unknown; counts are −1 where unknown.

    Attributes:
        scheduled: When each was due.
        sent: When its last byte was given to the socket.
        first: When its first content came.
        last: When its answer was whole.
        fate: The position in `FATES`, `PENDING` before it has one.
        status: The HTTP status.
        item: The position of its body.
        tokens_in: Tokens of its prompt.
        tokens_out: Tokens of its answer.
        reasoning: When its first reasoning token came.
        batch: Requests that the server computed together.
        service: Seconds of that in the server.
        stamps: Moments of events with content, of all requests as they came.
        stamp_rows: The row of each stamp.
        lateness: Seconds by which requests were handed to the socket late, as they were.
    """

    scheduled: array[float] = field(default_factory=_floats)
    sent: array[float] = field(default_factory=_floats)
    first: array[float] = field(default_factory=_floats)
    last: array[float] = field(default_factory=_floats)
    fate: array[int] = field(default_factory=_integers)
    status: array[int] = field(default_factory=_integers)
    item: array[int] = field(default_factory=_integers)
    tokens_in: array[int] = field(default_factory=_integers)
    tokens_out: array[int] = field(default_factory=_integers)
    reasoning: array[float] = field(default_factory=_floats)
    batch: array[int] = field(default_factory=_integers)
    service: array[float] = field(default_factory=_floats)
    stamps: array[float] = field(default_factory=_floats)
    stamp_rows: array[int] = field(default_factory=_integers)
    lateness: array[float] = field(default_factory=_floats)

    def __len__(self) -> int:
        return len(self.scheduled)

    def add(self, scheduled: float, item: int) -> int:
        """Add a request that is due, and return its row."""
        row = len(self.scheduled)
        if row == len(self.fate):
            self._grow()
        self.scheduled.append(scheduled)
        self.item.append(item)
        return row

    def trim(self) -> None:
        """Drop what `add` has prepared and no request has."""
        for times in self._times:
            del times[len(self) :]
        for counts in (self.fate, *self._counts):
            del counts[len(self) :]

    @property
    def _times(self) -> tuple[array[float], ...]:
        return self.sent, self.first, self.last, self.reasoning, self.service

    @property
    def _counts(self) -> tuple[array[int], ...]:
        return self.status, self.tokens_in, self.tokens_out, self.batch

    def _grow(self) -> None:
        """Prepare many rows at once, which is cheaper than one by one."""
        self.fate.extend(_MANY_PENDING)
        for times in self._times:
            times.extend(_MANY_UNKNOWN)
        for counts in self._counts:
            counts.extend(_MANY_UNCOUNTED)


def merged(parts: Sequence[Columns], begin: float) -> Requests:
    """Return the requests of all client processes by their schedule, in seconds from `begin`."""
    import numpy as np

    def joined(name: str) -> np.ndarray:
        return np.concatenate([np.asarray(getattr(part, name)) for part in parts])

    order = np.argsort(joined("scheduled"), kind="stable")
    chunks, gaps = _gaps(parts, order)
    return Requests(
        scheduled=tuple((joined("scheduled")[order] - begin).tolist()),
        sent=_known_times(joined("sent")[order] - begin),
        first=_known_times(joined("first")[order] - begin),
        last=_known_times(joined("last")[order] - begin),
        fate=tuple(FATES[code] for code in joined("fate")[order].tolist()),
        status=_known_counts(joined("status")[order]),
        item=tuple(joined("item")[order].tolist()),
        tokens_in=_filled(_known_counts(joined("tokens_in")[order])),
        tokens_out=_filled(_known_counts(joined("tokens_out")[order])),
        chunks=chunks,
        gaps=gaps,
        first_reasoning=_filled(_known_times(joined("reasoning")[order] - begin)),
        batch=_filled(_known_counts(joined("batch")[order])),
        service=_filled(_known_times(joined("service")[order])),
    )


def _gaps(parts: Sequence[Columns], order: np.ndarray) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the events with content of each request, and the gaps between them."""
    import numpy as np

    stamps = np.concatenate([np.asarray(part.stamps) for part in parts])
    if not len(stamps):
        return (), ()
    starts = np.cumsum([0, *(len(part) for part in parts)])
    rows = np.concatenate(
        [np.asarray(part.stamp_rows) + start for part, start in zip(parts, starts, strict=False)]
    )
    position = np.empty(len(order), int)
    position[order] = np.arange(len(order))
    by_request = np.argsort(position[rows], kind="stable")
    stamps, owners = stamps[by_request], position[rows][by_request]
    same_request = owners[1:] == owners[:-1]
    chunks = np.bincount(owners, minlength=len(order))
    return tuple(chunks.tolist()), tuple(np.diff(stamps)[same_request].tolist())


def _known_times(values: np.ndarray) -> tuple[float | None, ...]:
    return tuple(None if value != value else value for value in values.tolist())


def _known_counts(values: np.ndarray) -> tuple[int | None, ...]:
    return tuple(None if value < 0 else value for value in values.tolist())


def _filled(column: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a column, empty where nothing fills it."""
    return column if any(value is not None for value in column) else ()
