"""What is to be sent, and how it is shared among client processes."""

from __future__ import annotations

import math
import socket
import ssl
import struct
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from torchgauge.serving.client.address import Address
from torchgauge.serving.client.request_head import HeadOptions

_SO_TIMESTAMPNS = 35  # of most architectures; others refuse it or give no such message
_STAMP = struct.Struct("@qq")  # seconds and nanoseconds of CLOCK_REALTIME
MESSAGE_SIZE = socket.CMSG_SPACE(_STAMP.size) if hasattr(socket, "CMSG_SPACE") else 0

Ancillary = list[tuple[int, int, bytes]]


def arrivals_are_known(*, secure: bool) -> bool:
    """Return whether the kernel stamps what arrives at a connection."""
    if secure:
        return False
    with socket.socket() as stream:
        return stamp_arrivals(stream)


def stamp_arrivals(stream: socket.socket) -> bool:
    """Have the kernel stamp what arrives; return whether it does. Over TLS it cannot."""
    if not sys.platform.startswith("linux") or isinstance(stream, ssl.SSLSocket):
        return False
    try:
        stream.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def arrived(messages: Ancillary, now: float) -> float:
    """Return the moment of `time.monotonic` at which the bytes came that were read at `now`."""
    for level, kind, value in messages:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(value) == _STAMP.size:
            seconds, nanoseconds = _STAMP.unpack(value)
            waited = time.time() - seconds - nanoseconds * 1e-9
            return now - waited if 0 < waited < _LONGEST else now
    return now


_LONGEST = 1.0  # seconds: a longer wait is a clock that was set meanwhile


Protocol = Literal["HTTP/1.1", "HTTP/2", "gRPC"]


@dataclass(frozen=True, kw_only=True)
class SendPlan:
    """Requests by a schedule (open loop), or by users who wait for their answers (closed loop).

    Attributes:
        address: Where they go.
        protocol: How they are sent; all but HTTP/1.1 by libraries, which take more CPU time.
        api: The name of its dialect.
        content: The path of the contents of a stream, for an API without one of its own.
        head: Method and headers.
        items: Bodies, which requests take in turn.
        schedule: Seconds from the begin at which requests are due, ascending: equal ones are sent
            at once. None for a closed loop.
        users: In a closed loop, how many send their next query when the last one is answered.
        samples: Requests of a query in a closed loop: sent together, answered when all are.
        duration: Seconds in which users of a closed loop send.
        count: The most queries of a closed loop; None: as many as they send.
        in_flight: The most requests that are sent and not answered; None: as many as the system
            has descriptors for. The others wait, and their latency counts from when they were due.
        timeout: Seconds from when a request was due after which its answer is not waited for.
        timeout_from_sent: Whether these count from when a request got its slot instead.
        drain: Seconds after the last was due after which no answer is waited for.
        processes: Client processes among which they are shared.
        first_item: Position of the first request among all processes' requests.
        item_step: Processes that take requests in turn.
    """

    address: Address
    protocol: Protocol = "HTTP/1.1"
    api: str = "json"
    content: str = ""
    head: HeadOptions = field(default_factory=HeadOptions)
    items: tuple[bytes, ...] = (b"",)
    schedule: Sequence[float] | None = field(default=None, repr=False)
    users: int = 1
    samples: int = 1
    duration: float = math.inf
    count: int | None = None
    in_flight: int | None = None
    timeout: float = 60.0
    timeout_from_sent: bool = False
    drain: float = 60.0
    processes: int = 1
    first_item: int = 0
    item_step: int = 1

    @property
    def seconds(self) -> float:
        """Seconds until the last request is due, or the users stop."""
        return self.duration if self.schedule is None else float(self.schedule[-1])

    def shares(self) -> list[SendPlan]:
        """Return what each process sends: every n-th request, and its share of users and limits."""
        number = self.processes
        if self.schedule is None:
            number = min(number, self.users, self.count or self.users)
        else:
            number = min(number, len(self.schedule))
        number = min(number, self.in_flight or number)
        return [
            replace(
                self,
                schedule=None if self.schedule is None else self.schedule[index::number],
                users=_share(self.users, index, number) if self.schedule is None else 1,
                count=None if self.count is None else _share(self.count, index, number),
                in_flight=(
                    None if self.in_flight is None else _share(self.in_flight, index, number)
                ),
                processes=1,
                first_item=index,
                item_step=number,
            )
            for index in range(number)
        ]


class Queries:
    """The queries of a closed loop: which requests each has, and how many may follow."""

    def __init__(self, plan: SendPlan) -> None:
        self.remaining = plan.count if plan.count is not None else 1 << 62
        self._user_of: dict[int, int] = {}
        self._open: Counter[int] = Counter()
        self._samples = plan.samples

    def begin(self, user: int) -> None:
        """Count a user's query; all its requests are still to be sent."""
        self.remaining -= 1
        self._open[user] = self._samples

    def add(self, user: int, row: int) -> None:
        """Note a request of it."""
        self._user_of[row] = user

    def answered(self, row: int) -> int | None:
        """Return the user whose query is answered with this request; None while others wait."""
        user = self._user_of.pop(row)
        self._open[user] -= 1
        return user if not self._open[user] else None


def _share(total: int, index: int, number: int) -> int:
    return total // number + (index < total % number)
