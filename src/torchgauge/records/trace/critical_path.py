"""The chain of work that decided how long a recording took."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import Record

Link = Literal["compute", "communication", "copy", "host", "launch", "pause"]


class PathItem(Record, frozen=True, kw_only=True):
    """All links of one name: `name` is a kernel's, or the operator's that the host was in."""

    link: Link
    name: str
    count: int
    time: float


class CriticalPath(Record, frozen=True, kw_only=True):
    """The chain of work from the end of the last to the begin of the first: seconds by kind.

    It is estimated: a trace does not record dependencies; they are inferred from launches, streams,
    events and synchronisations.

    Attributes:
        length: The sum of all links.
        host: The host's time until the launch of the next work.
        launch: The time from a launch to the begin of its work.
        pause: The device's pauses before work that was already launched.
        items: The names with most of the time.
    """

    length: float
    compute: float
    communication: float
    copy: float
    host: float
    launch: float
    pause: float
    items: tuple[PathItem, ...] = ()
