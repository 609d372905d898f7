"""asyncio's event loop, with a short way for what the client itself waits for.

asyncio makes a handle with a context of every event and goes once around its loop to run it. Here
`add_reader` and `add_writer` have their functions called as soon as the system reports an event.
What asyncio itself waits for (`sock_connect`, transports of libraries) goes its own way.
"""

from __future__ import annotations

import asyncio
import gc
import math
import selectors
import time
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVarTuple

from torchgauge.errors import TorchgaugeError
from torchgauge.records.serving.requests import Fate
from torchgauge.serving.client.client import LoadClient
from torchgauge.serving.client.columns import Columns
from torchgauge.serving.client.send_plan import SendPlan
from torchgauge.serving.client.timer import TimerDescriptor

Values = TypeVarTuple("Values")

_READING = 20e-6  # seconds that reading one answer takes

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class _Calls(NamedTuple):
    """What is called when a descriptor can be read or written."""

    reader: Callable[[], object] | None = None
    writer: Callable[[], object] | None = None


class _CallingSelector(selectors.DefaultSelector):
    """Calls what waits for its events, and returns those of asyncio.

    Attributes:
        needed: Whether asyncio has something to do.
        timer: What says until when nothing has to be read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.timer: TimerDescriptor | None = None
        self.needed = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events, call, and return as soon as asyncio has something to do."""
        self.needed = timeout is not None and timeout <= 0
        end = math.inf if timeout is None else monotonic() + timeout
        of_asyncio: list[tuple[selectors.SelectorKey, int]] = []
        while True:
            timer = self.timer
            if timer is None or timer.soon == math.inf:
                self._call(super().select(timeout), of_asyncio, math.inf)
            else:
                if not self.needed:
                    timer.sleep()
                if monotonic() < timer.soon:  # the time that is left is used to read
                    self._call(super().select(0), of_asyncio, timer.soon - _READING)
                    if not (of_asyncio or self.needed):
                        timer.call()
                else:
                    timer.call()
                    self._call(super().select(0), of_asyncio, math.inf)
            if of_asyncio or self.needed:
                return of_asyncio
            if timeout is not None:
                timeout = end - monotonic()
                if timeout <= 0:
                    return of_asyncio

    def _call(
        self,
        reported: list[tuple[selectors.SelectorKey, int]],
        of_asyncio: list[tuple[selectors.SelectorKey, int]],
        deadline: float,
    ) -> None:
        """Call what waits for these events, as many as until the deadline; the rest come again."""
        for key, events in reported:
            if monotonic() > deadline:
                return
            calls = key.data
            if type(calls) is not _Calls:
                of_asyncio.append((key, events))
                continue
            reader, writer = calls
            if events & _WRITE and writer is not None:
                writer()
            if events & _READ and reader is not None:
                reader()

    def calls(self, descriptor: Any) -> _Calls | None:
        """Return what is called for a descriptor's events; None if they are asyncio's."""
        key = self.get_map().get(descriptor)
        if key is None:
            return _Calls()
        return key.data if isinstance(key.data, _Calls) else None

    def set_calls(self, descriptor: Any, calls: _Calls) -> None:
        """Call these for a descriptor's events from now on."""
        reader, writer = calls
        events = (_READ if reader is not None else 0) | (_WRITE if writer is not None else 0)
        if descriptor not in self.get_map():
            if events:
                self.register(descriptor, events, calls)
        elif events:
            self.modify(descriptor, events, calls)
        else:
            self.unregister(descriptor)


class SendingLoop(asyncio.SelectorEventLoop):
    """An event loop whose readers and writers are called without a detour.

    An error that one of them raises ends the loop.
    """

    def __init__(self) -> None:
        self._direct = _CallingSelector()
        super().__init__(self._direct)

    def add_reader(self, fd: Any, callback: Callable[[*Values], Any], *args: *Values) -> None:
        """Call `callback` whenever a descriptor can be read."""
        self._add(fd, reader=partial(callback, *args))

    def add_writer(self, fd: Any, callback: Callable[[*Values], Any], *args: *Values) -> None:
        """Call `callback` whenever a descriptor can be written."""
        self._add(fd, writer=partial(callback, *args))

    def remove_reader(self, fd: Any) -> bool:
        """Call nothing when a descriptor can be read; return whether something was."""
        calls = self._direct.calls(fd)
        if calls is None:
            return super().remove_reader(fd)
        self._direct.set_calls(fd, calls._replace(reader=None))
        return calls.reader is not None

    def remove_writer(self, fd: Any) -> bool:
        """Call nothing when a descriptor can be written; return whether something was."""
        calls = self._direct.calls(fd)
        if calls is None:
            return super().remove_writer(fd)
        self._direct.set_calls(fd, calls._replace(writer=None))
        return calls.writer is not None

    def sleep_with(self, timer: TimerDescriptor) -> None:
        """Read nothing while the timer's next moment is soon, and call it then."""
        self._direct.timer = timer

    def call_soon(
        self, callback: Callable[[*Values], object], *args: *Values, context: Context | None = None
    ) -> asyncio.Handle:
        """Call `callback` when asyncio goes on."""
        self._direct.needed = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        moment: float,
        callback: Callable[[*Values], object],
        *args: *Values,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call `callback` at a moment."""
        self._direct.needed = True
        return super().call_at(moment, callback, *args, context=context)

    def _add(self, descriptor: Any, **call: Callable[[], Any]) -> None:
        calls = self._direct.calls(descriptor)
        if calls is None:
            raise RuntimeError(f"asyncio waits for descriptor {descriptor}")
        self._direct.set_calls(descriptor, calls._replace(**call))


_REPORT_SECONDS = 1.0
_MOST_DESCRIPTORS, _SPARE_DESCRIPTORS = 65_536, 64
_SCHEDULER_STATISTICS = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True)
class ShareResult:
    """What one process sent.

    Attributes:
        columns: Its requests.
        connections: Connections that it opened.
        cpu: Seconds of CPU while it sent.
        waited: Requests that waited for a free slot in flight.
        open_files: The limit of open files, if they waited for that.
        waiting: Share of the time in which it was ready to run and had no core; None if unknown.
        software: What the server calls itself.
        problems: The first error text of each fate.
        interrupted: Whether it was interrupted.
        failed_alike: Whether it ended since all requests failed alike.
        end_moment: The moment of its end.
    """

    columns: Columns
    connections: int
    cpu: float
    waited: int
    open_files: int | None
    waiting: float | None
    software: str
    problems: dict[Fate, str]
    interrupted: bool
    failed_alike: bool
    end_moment: float


def answered(orders: Pipe, answers: Pipe) -> None:
    """Take a plan and a moment to begin, send, and answer with a `ShareResult` or an error.

    Raises EOFError or OSError where whoever gives the orders is gone.
    """
    plan: SendPlan = orders.recv()
    with asyncio.Runner(loop_factory=SendingLoop) as runner:
        try:
            result = runner.run(_sent(plan, orders, answers))
        except TorchgaugeError as error:
            answers.send(error)
        else:
            answers.send(result)


_OF_CLIENT = (
    *("columns", "connections", "waited", "software", "problems", "interrupted", "failed_alike"),
    "end_moment",
)


async def _sent(plan: SendPlan, orders: Pipe, answers: Pipe) -> ShareResult:
    loop = asyncio.get_running_loop()
    open_files, in_flight = _open_files(), plan.in_flight or math.inf
    descriptors = connections_of(open_files)
    client = LoadClient(plan, descriptors=descriptors)
    answers.send("ready")
    begin: float = orders.recv()
    loop.add_reader(orders.fileno(), _stop, loop, orders, client)
    reports = loop.create_task(_report(client, answers))
    # What there is by now is searched for garbage no more; what comes is little.
    gc.collect()
    gc.freeze()
    cpu, waiting, started = time.process_time(), _waited(), time.monotonic()
    try:
        await client.run(begin)
    finally:
        reports.cancel()
        loop.remove_reader(orders.fileno())
    waited = _waited()
    elapsed = time.monotonic() - started
    return ShareResult(
        **{name: getattr(client, name) for name in _OF_CLIENT},
        cpu=time.process_time() - cpu,
        open_files=open_files if client.waited and descriptors < in_flight else None,
        waiting=None if waiting is None or waited is None else (waited - waiting) / elapsed,
    )


def _stop(loop: asyncio.AbstractEventLoop, orders: Pipe, client: LoadClient) -> None:
    loop.remove_reader(orders.fileno())
    client.interrupt()


async def _report(client: LoadClient, answers: Pipe) -> None:
    while True:
        await asyncio.sleep(_REPORT_SECONDS)
        answers.send(client.progress)


def connections_of(open_files: int) -> int:
    """Return how many connections a process may have with this limit of open files."""
    return max(open_files - min(_SPARE_DESCRIPTORS, open_files // 3), 1)


def _open_files() -> int:
    """Return how many files may be open, after raising the limit as far as it may be."""
    try:
        import resource
    except ImportError:  # Windows
        return 512
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    now, limit = (_MOST_DESCRIPTORS if n == resource.RLIM_INFINITY else n for n in (soft, hard))
    if now < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return max(now, limit)


def _waited() -> float | None:
    """Return the seconds in which this thread was ready to run and had no core."""
    try:
        return int(_SCHEDULER_STATISTICS.read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return None
