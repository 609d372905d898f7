"""A kept-alive HTTP/1.1 connection that has one request at a time."""

from __future__ import annotations

import asyncio
import math
import re
import ssl
from time import monotonic
from typing import Protocol, cast

import httptools

from torchgauge.records.serving.requests import Fate
from torchgauge.serving.client.columns import Columns
from torchgauge.serving.client.dialect import AnswerReader

LONGEST_HEAD = 1 << 17
"""Bytes of the longest head of an answer; a longer one is a violation of the protocol."""
_DELIMITERS = (b"content-length", b"transfer-encoding")
_SERVER_TIMING = re.compile(rb'\s*(batch|service)\s*;[^,]*?\b(?:desc|dur)="?([0-9.eE+-]{1,24})"?')


class Sender(Protocol):
    """What a connection reports to."""

    columns: Columns
    buffer: memoryview

    def ended(self, row: int, fate: Fate, moment: float, problem: str = "") -> None:
        """Take note of the fate of a request."""
        ...

    def idle(self, connection: Connection, moment: float) -> None:
        """Use a connection for another request."""
        ...

    def leads_elsewhere(self, location: str) -> bool:
        """Whether a redirect leads to another host."""
        ...

    def served_by(self, software: bytes) -> None:
        """Take note of what the server calls itself."""
        ...


class LibraryClient(Protocol):
    """Sends each request in a task of its own, by a library: slower than our own connections.

    Attributes:
        opened: How many connections were opened, as far as the library tells.
    """

    opened: int

    async def exchange(self, row: int, ready: float) -> None:
        """Send a request that could be sent since `ready`, read its answer, report its fate."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class Connection(asyncio.BufferedProtocol):
    """Sends a request, reads its answer, and is idle again.

    Its methods `on_…` are called by the parser while it is fed. What arrives goes into one buffer
    of all connections: a new one for each reading costs a third of a request.
    """

    def __init__(self, sender: Sender, reader: AnswerReader | None) -> None:
        self._sender = sender
        self._columns = sender.columns
        self._reader = reader
        self._row: int | None = None
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, which reports at once what the socket does not take."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)
        self._parser = httptools.HttpResponseParser(self)
        self._writing_paused = False

    @property
    def usable(self) -> bool:
        """Whether a request can be sent."""
        return not self._transport.is_closing()

    def send(self, row: int, request: bytes, ready: float) -> None:
        """Send a request that could be sent since `ready`."""
        self._row = row
        self._now = self._first = math.nan
        self._head_size = 0
        self._in_body = self._reading = self._surplus = self._delimited = False
        self._reusable = False  # known at the end of the answer
        self._content_type = self._location = b""
        self._outcome: Fate | None = None
        self._transport.write(request)
        now = monotonic()
        self._columns.lateness.append(now - ready)
        if not (self._writing_paused or self._transport.is_closing()):
            self._columns.sent[row] = now

    def abort(self) -> None:
        """Close at once, and report nothing of the request."""
        self._row = None
        self._transport.abort()

    def pause_writing(self) -> None:
        """The socket did not take all of the request."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """The socket has taken all of it."""
        self._writing_paused = False
        if self._row is not None:
            self._columns.sent[self._row] = monotonic()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return where to put what arrives."""
        return self._sender.buffer

    def buffer_updated(self, size: int) -> None:
        """Read a piece of the answer."""
        if self._row is None:  # bytes that nothing asked for
            self._transport.abort()
            return
        self._now = monotonic()
        if not self._in_body:
            self._head_size += size
        try:
            self._parser.feed_data(self._sender.buffer[:size])
        except httptools.HttpParserCallbackError:
            raise  # an error of this program, not of the server
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._surplus = True
            self._fail("protocol", str(error) or "the server changed the protocol")
        if not self._in_body and self._head_size > LONGEST_HEAD:
            self._surplus = True
            self._fail("protocol", "the head of the answer has no end")
        if self._outcome is not None:
            self._finish(self._outcome)

    def connection_lost(self, error: Exception | None) -> None:
        """Report a request that the connection took with it."""
        if self._row is None:
            return
        now = monotonic()
        if error is None and self._in_body and not self._delimited:
            self._now = now
            self._finish(self._judged())  # such a body ends with the connection
            return
        tls = isinstance(error, ssl.SSLError)
        self._fail("tls" if tls else "reset", str(error or "the connection was closed"))

    def on_message_begin(self) -> None:
        """An answer begins; a second one belongs to no request."""
        self._surplus = self._outcome is not None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep what counts."""
        if self._surplus:
            return
        name = name.lower()
        if name in _DELIMITERS:
            self._delimited = True
        elif name == b"content-type":
            self._content_type = value
        elif name == b"location":
            self._location = value
        elif name == b"server-timing" and self._row is not None:
            read_timing(self._columns, self._row, value)
        elif name == b"server":
            self._sender.served_by(value)

    def on_headers_complete(self) -> None:
        """Note the status, and prepare for the body."""
        if self._surplus or self._row is None:
            return
        status = self._parser.get_status_code()
        if status < 200:  # a provisional answer: the answer is still to come
            return
        self._in_body = True
        self._columns.status[self._row] = status
        if self._reader is not None and status < 300:
            self._reading = True
            self._reader.start(streamed=b"text/event-stream" in self._content_type.lower())

    def on_body(self, data: bytes) -> None:
        """Note the first byte, and read."""
        if self._surplus:
            return
        if self._first != self._first:
            self._first = self._now
        if self._reading and self._reader is not None:
            self._reader.feed(data, self._now)

    def on_message_complete(self) -> None:
        """Judge the answer, unless it was a provisional one."""
        if not self._in_body:
            self._head_size = 0
        elif self._outcome is None:
            self._reusable = self._parser.should_keep_alive()
            self._outcome = self._judged()

    def _judged(self) -> Fate:
        """Return the fate of a whole answer."""
        row = self._row
        if row is None:
            return "protocol"
        status = self._columns.status[row]
        if status >= 300:
            if self._location and self._sender.leads_elsewhere(self._location.decode("latin-1")):
                return "redirect"
            return "status"
        if self._reading and self._reader is not None:
            return self._reader.finish(self._now)
        return "done"

    def _finish(self, fate: Fate) -> None:
        """Report a whole answer, and be idle if the connection can be used again."""
        row = self._row
        if row is None:
            return
        self._row = None
        self._columns.last[row] = self._now
        self._note_content(row)
        unusable = self._surplus or self._writing_paused or self._transport.is_closing()
        if self._reusable and not unusable:
            self._sender.idle(self, self._now)
        else:
            self._transport.abort()
        self._sender.ended(row, fate, self._now)

    def _fail(self, fate: Fate, problem: str) -> None:
        """Report a request without a whole answer, and close; one that had its answer keeps it."""
        row = self._row
        if row is None or self._outcome is not None:
            return
        self._row = None
        self._note_content(row)
        self._transport.abort()
        self._sender.ended(row, fate, monotonic(), problem)

    def _note_content(self, row: int) -> None:
        reader = self._reader if self._reading else None
        note_content(self._columns, row, reader, self._first)


def note_content(columns: Columns, row: int, reader: AnswerReader | None, first: float) -> None:
    """Note what an answer contained; without a reader `first` is when its first byte came."""
    if reader is None:
        columns.first[row] = first
        return
    columns.first[row] = reader.first
    columns.reasoning[row] = reader.reasoning
    columns.tokens_in[row] = reader.tokens_in
    columns.tokens_out[row] = reader.tokens_out
    columns.stamps.extend(reader.stamps)
    columns.stamp_rows.extend([row] * len(reader.stamps))


def read_timing(columns: Columns, row: int, value: bytes) -> None:
    """Note the batch and the seconds of service that a `Server-Timing` header names."""
    for name, number in _SERVER_TIMING.findall(value):
        try:
            amount = float(number)
        except ValueError:
            continue
        if name == b"batch" and 1 <= amount < 1e9:
            columns.batch[row] = int(amount)
        elif name == b"service" and 0 <= amount < 1e9:
            columns.service[row] = amount / 1000
