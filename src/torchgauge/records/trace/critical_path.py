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
    """From the end of the last piece of work back to the first: seconds by kind of link.

    `host` is the host's way to the launch of what ran next, `launch` from there to the begin of the
    work, `pause` the device's from one piece of work to the next that waited already. Their sum is
    `length`. `items` are the names with most of the time. It is an estimate: a trace does not say
    what waited for what, and this reads it from launches, streams, events and synchronisations.
    """

    length: float
    compute: float
    communication: float
    copy: float
    host: float
    launch: float
    pause: float
    items: tuple[PathItem, ...] = ()
