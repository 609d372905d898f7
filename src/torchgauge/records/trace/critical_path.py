"""The chain of work that decided how long a recording took."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import Record

Link = Literal["compute", "communication", "wait", "copy", "host", "launch", "pause"]


class PathItem(Record, frozen=True, kw_only=True):
    """All links of one name: `name` is a kernel's, or the operator's that the host was in."""

    link: Link
    name: str
    count: int
    time: float


class CriticalPath(Record, frozen=True, kw_only=True):
    """The chain of work from the end of the last to the begin of the first: seconds by kind.

    It is estimated: dependencies are inferred from launches, streams and synchronisations, and from
    the waits of streams and of the host (`cuda_sync`) where those were recorded.

    Attributes:
        length: The sum of all links.
        wait: What communication kernels took longer than the shortest of their kind: they waited
            for other ranks. None where no two are of one kind; `communication` has it then.
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
    wait: float | None = None
    items: tuple[PathItem, ...] = ()
