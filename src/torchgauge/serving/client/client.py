"""One process's client: begins each request when it is due, and knows the fate of every one."""

from __future__ import annotations

import asyncio
import math
from array import array
from collections import deque
from collections.abc import Coroutine
from time import monotonic
from typing import Any

from torchgauge.records.serving.requests import FATES, Fate
from torchgauge.serving.client.address import Address
from torchgauge.serving.client.columns import CODES, PENDING, Columns
from torchgauge.serving.client.connection import Connection, LibraryClient, Sender
from torchgauge.serving.client.dialect import Dialect
from torchgauge.serving.client.dialects.every import dialect_named
from torchgauge.serving.client.http2_client import IDLE_SECONDS, ConnectionPool
from torchgauge.serving.client.request_head import RequestHead
from torchgauge.serving.client.send_plan import Queries, SendPlan, arrivals_are_known
from torchgauge.serving.client.timer import timer

_DONE, _TIMEOUT = CODES["done"], CODES["timeout"]
_SLOWEST_WATCH = 0.1
_BUFFER_SIZE = 1 << 17
_BURST = 32  # requests that begin before answers are read again
_NO_CONNECTION: frozenset[Fate] = frozenset(("refused", "tls", "local"))
_UNCONNECTED = "There was no connection yet: connecting, or the handshake of TLS, took too long."
# Of so many requests that fail alike, and none that is done, further ones would say no more. Those
# without an answer are not among them: a server may be slow at first.
_FAILURES = 20
_ANSWERED = {CODES[fate] for fate in ("refused", "status", "protocol", "answer", "redirect", "tls")}
_PAUSE_SECONDS = 0.1  # of a user of a closed loop who got no connection


class LoadClient:
    """Sends a plan's requests from one event loop.

    Attributes:
        columns: Every request that was due.
        received: Where answers are received.
        buffer: The same, to be sliced without a copy.
        problems: The first error text of each fate.
        software: What the server calls itself.
        interrupted: Whether `interrupt` ended it.
        failed_alike: Whether it ended since all requests failed alike.
        waited: Requests that waited for a free slot.
        end_moment: The moment at which it ended.
    """

    def __init__(self, plan: SendPlan, *, descriptors: int = 1000) -> None:
        self.columns = Columns()
        self.received = bytearray(_BUFFER_SIZE)
        self.buffer = memoryview(self.received)
        self.problems: dict[Fate, str] = {}
        self.software = ""
        self.interrupted = self.failed_alike = False
        self.end_moment = math.nan
        self._plan = plan
        dialect = dialect_named(plan.api, plan.content)
        self._address = plan.address.with_default_path(dialect.path)
        self._head = RequestHead(self._address, plan.head)
        self._library = library_client(plan, self._address, dialect, self._head, self)
        self._requests = (
            [self._head.request(body) for body in plan.items] if self._library is None else []
        )
        self._pool = ConnectionPool(self._address, dialect, self)
        self._slots = min(plan.in_flight or descriptors, descriptors)
        self._waiting: deque[int] = deque()
        self.waited = 0
        self._busy: dict[int, Connection | asyncio.Task[None]] = {}
        self._oldest = 0  # every request before it has its fate
        # Moments from which timeouts count: slots are given in the order of rows.
        self._patient_from = array("d") if plan.timeout_from_sent else self.columns.scheduled
        self._counts = [0] * len(FATES)
        self._settled = 0
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._timer = timer(self._loop, self._wake)
        self._opening = 0
        # The kernel knows when whole answers came; parts of a stream are told apart by reading.
        own = self._library is None and dialect.fields is None
        self._sleeps = own and arrivals_are_known(secure=self._address.secure)
        self._loop.set_exception_handler(self._failed)

    async def run(self, begin: float) -> None:
        """Send everything, from the moment `begin` on, and return when all have their fate."""
        plan = self._plan
        self._end = begin + plan.seconds
        self._queries = Queries(plan) if plan.schedule is None else None
        self._due = [] if plan.schedule is None else [begin + time for time in plan.schedule]
        self._next = 0
        self._timer.wake_at(self._due[0] if self._due else begin)
        watch = self._task(self._watch(min(plan.timeout / 20, _SLOWEST_WATCH)))
        try:
            await self._over
        finally:
            watch.cancel()
            self._timer.close()
            self._pool.close_idle(since=math.inf)
            if self._library is not None:
                await self._library.close()

    def interrupt(self) -> None:
        """End now: what is not answered is unfinished, what was not due yet is left out."""
        if not self._over.done():
            self.interrupted = True
            self._stop()

    @property
    def connections(self) -> int:
        """How many connections were opened."""
        return self._pool.opened if self._library is None else self._library.opened

    @property
    def progress(self) -> tuple[int, int, int]:
        """Requests that were due, that are done, and that failed."""
        done = self._counts[_DONE]
        return len(self.columns), done, self._settled - done

    # When requests begin.

    def _wake(self) -> None:
        """Begin what is due, and wake again for the next."""
        if self._over.done():
            return
        if self._queries is not None:
            for user in range(self._plan.users):
                self._query(user, monotonic())
            self._check_over()
            return
        self._begin_due(monotonic())
        if self._next < len(self._due):
            sleep = self._sleeps and not (self._waiting or self._opening)
            self._timer.wake_at(self._due[self._next], sleep=sleep)

    def _begin_due(self, now: float) -> None:
        due = self._due
        last = min(self._next + _BURST, len(due))
        while self._next < last:
            moment = due[self._next]
            if moment > now and moment > (now := monotonic()):
                return
            self._next += 1
            self._begin(moment, moment)

    def _begin(self, due: float, ready: float) -> int:
        row = self._add(due)
        if len(self._busy) < self._slots:
            self._dispatch(row, ready)
        else:
            self._waiting.append(row)
            self.waited += 1
        return row

    def _add(self, due: float) -> int:
        plan = self._plan
        item = (plan.first_item + len(self.columns) * plan.item_step) % len(plan.items)
        return self.columns.add(due, item)

    def _dispatch(self, row: int, ready: float) -> None:
        """Send a request that could be sent since `ready`, on a connection that is free."""
        if self._plan.timeout_from_sent:
            self._patient_from.append(monotonic())
        if self._library is not None:
            self._busy[row] = self._task(self._library.exchange(row, ready))
            return
        connection = self._pool.take()
        if connection is not None:
            self._send(connection, row, ready)
            return
        self._opening += 1
        self._busy[row] = self._task(self._open(row, ready))

    def _send(self, connection: Connection, row: int, ready: float) -> None:
        self._busy[row] = connection
        connection.send(row, self._requests[self.columns.item[row]], ready)

    def _query(self, user: int, ready: float) -> None:
        """Send a user's next query, if there is to be one."""
        queries, now = self._queries, monotonic()
        if queries is None or self._over.done() or now >= self._end or not queries.remaining:
            return
        queries.begin(user)
        for _ in range(self._plan.samples):
            queries.add(user, self._begin(now, min(ready, now)))

    # Connections.

    async def _open(self, row: int, ready: float) -> None:
        started = monotonic()
        try:
            connection = await self._pool.open()
        except OSError as error:
            self.ended(row, self._pool.fate_of(error), monotonic(), str(error))
        else:
            self._send(connection, row, ready + monotonic() - started)
        finally:
            self._opening -= 1

    # What connections report.

    def idle(self, connection: Connection, moment: float) -> None:
        """Use a connection for another request; the one that was used last comes first."""
        self._pool.keep(connection, moment)

    def served_by(self, software: bytes) -> None:
        """Keep what the server calls itself."""
        if not self.software:
            self.software = self._head.hidden(software.decode("latin-1"))[:100]

    def leads_elsewhere(self, location: str) -> bool:
        """Whether a redirect leads to another host."""
        return self._address.leads_elsewhere(location)

    def ended(self, row: int, fate: Fate, moment: float, problem: str = "") -> None:
        """Note the fate of a request, and give its slot to the next."""
        code = CODES[fate]
        if code == _DONE and moment - self._patient_from[row] > self._plan.timeout:
            code = _TIMEOUT
        self._note(row, code)
        if problem and fate not in self.problems:
            self.problems[fate] = " ".join(self._head.hidden(problem)[:300].split())
        self._busy.pop(row, None)
        while self._waiting and len(self._busy) < self._slots:
            next_row = self._waiting.popleft()
            if self.columns.fate[next_row] == PENDING:
                self._dispatch(next_row, moment)
        if self._queries is not None:
            user = self._queries.answered(row)
            if user is not None and fate in _NO_CONNECTION:
                self._loop.call_later(_PAUSE_SECONDS, self._query, user, math.inf)
            elif user is not None:
                self._query(user, moment)
        if self._settled == self._counts[code] == _FAILURES and code in _ANSWERED:
            self.failed_alike = True
            self._stop()
        self._check_over()

    def _note(self, row: int, code: int) -> None:
        self.columns.fate[row] = code
        self._counts[code] += 1
        self._settled += 1

    # The end.

    def _check_over(self) -> None:
        if self._settled < len(self.columns.scheduled) or self._over.done():
            return
        if self._queries is None:
            over = self._next == len(self._due)
        else:
            over = not self._queries.remaining or monotonic() >= self._end
        if over:
            self._stop()

    async def _watch(self, period: float) -> None:
        """Time requests out, close idle connections, and end the draining."""
        while not self._over.done():
            await asyncio.sleep(period)
            now = monotonic()
            self._pool.close_idle(since=now - IDLE_SECONDS)
            self._time_out(now - self._plan.timeout)
            self._check_over()
            if now > self._end + self._plan.drain:
                self._stop()

    def _time_out(self, latest: float) -> None:
        columns = self.columns
        while self._oldest < len(self._patient_from):
            row = self._oldest
            if columns.fate[row] == PENDING:
                if self._patient_from[row] > latest:
                    return
                connects = isinstance(self._busy.get(row), asyncio.Task)
                connects = connects and self._library is None and not self.waited
                self._give_up(row)
                self.ended(row, "timeout", monotonic(), _UNCONNECTED if connects else "")
            self._oldest += 1

    def _give_up(self, row: int) -> None:
        holder = self._busy.pop(row, None)
        if isinstance(holder, Connection):
            holder.abort()
        elif holder is not None:
            holder.cancel()

    def _stop(self) -> None:
        """Give each request that has none its fate."""
        if self._over.done():
            return
        self.end_moment = monotonic()
        waiting = set(self._waiting)
        self._waiting.clear()
        for row in range(self._oldest, len(self.columns)):
            if self.columns.fate[row] == PENDING:
                self._give_up(row)
                self._note(row, CODES["unsent" if row in waiting else "unfinished"])
        for moment in self._due[self._next :]:
            if moment > self.end_moment:  # was not due when it was interrupted
                break
            self._note(self._add(moment), CODES["unsent"])
        self.columns.trim()
        self._over.set_result(None)

    def _task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        task.add_done_callback(self._end_of_task)
        return task

    def _end_of_task(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._over.done():
            self._over.set_exception(error)

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End with an error of this program, which asyncio would only log."""
        error = context.get("exception") or RuntimeError(context["message"])
        # A socket that fails is reported as a lost connection, too.
        if not isinstance(error, OSError) and not self._over.done():
            self._over.set_exception(error)


def library_client(
    plan: SendPlan, address: Address, dialect: Dialect, head: RequestHead, sender: Sender
) -> LibraryClient | None:
    """Return the client of a plan's protocol; None for HTTP/1.1, which is our own. Raises as it."""
    if plan.protocol == "HTTP/2":
        from torchgauge.serving.client.http2_client import Http2Client

        return Http2Client(address, plan.items, dialect, head, sender)
    if plan.protocol == "gRPC":
        from torchgauge.serving.client.grpc_client import GrpcClient

        return GrpcClient(address, plan.items, head, sender)
    return None
