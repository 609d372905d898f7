"""A kept-alive HTTP/1.1 connection that has one request at a time."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from time import monotonic
from typing import Protocol

import httptools

from torchgauge.records.serving.requests import Fate
from torchgauge.serving.client.columns import Columns
from torchgauge.serving.client.dialect import LONGEST_TEXT, AnswerReader
from torchgauge.serving.client.dialects.every import read_timing
from torchgauge.serving.client.framing import EventTooLongError
from torchgauge.serving.client.send_plan import MESSAGE_SIZE, Ancillary, arrived, stamp_arrivals

LONGEST_HEAD = 1 << 17
"""Bytes of the longest head of an answer; a longer one is a violation of the protocol."""
_DELIMITERS = (b"content-length", b"transfer-encoding")
_NOT_YET = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Sender(Protocol):
    """What a connection reports to."""

    columns: Columns
    received: bytearray
    buffer: memoryview

    def ended(self, row: int, fate: Fate, moment: float, problem: str = "") -> None:
        """Take note of the fate of a request."""

    def idle(self, connection: Connection, moment: float) -> None:
        """Use a connection for another request."""

    def leads_elsewhere(self, location: str) -> bool:
        """Whether a redirect leads to another host."""

    def served_by(self, software: bytes) -> None:
        """Take note of what the server calls itself."""


class LibraryClient(Protocol):
    """Sends each request in a task of its own, by a library: slower than our own connections.

    Attributes:
        opened: How many connections were opened, as far as the library tells.
    """

    opened: int

    async def exchange(self, row: int, ready: float) -> None:
        """Send a request that could be sent since `ready`, read its answer, report its fate."""

    async def close(self) -> None:
        """Close the connections."""


class Connection:
    """Sends a request, reads its answer, and is idle again.

    It uses its socket without a transport of asyncio's, which costs more than all else here. What
    arrives goes into one buffer of all connections. Its methods `on_…` are called by the parser
    while it is fed.

    Attributes:
        usable: Whether a request can be sent.
        idle_since: The moment of its last answer.
    """

    def __init__(
        self,
        stream: socket.socket,
        loop: asyncio.AbstractEventLoop,
        sender: Sender,
        reader: AnswerReader | None,
    ) -> None:
        self.usable = True
        self.idle_since = 0.0
        self._socket = stream
        self._buffers = (sender.buffer,)
        self._loop = loop
        self._sender = sender
        self._columns = sender.columns
        self._reader = reader
        self._row: int | None = None
        self._unsent = memoryview(b"")
        self._known_head = b""
        self._known_size = -1
        self._known_status = 0
        self._parser = httptools.HttpResponseParser(self)
        self._stamped = stamp_arrivals(stream)
        loop.add_reader(stream.fileno(), self._receive)

    def send(self, row: int, request: bytes, ready: float) -> None:
        """Send a request that could be sent since `ready`."""
        self._row = row
        self._now = self._first = math.nan
        self._head_size = self._body_size = 0
        self._in_body = self._reading = self._surplus = self._delimited = self._begun = False
        self._varies = self._reader is not None
        self._reusable = False  # known at the end of the answer
        self._content_type = self._location = self._text = b""
        self._outcome: Fate | None = None
        try:
            size = self._socket.send(request)
        except _NOT_YET:
            size = 0
        except OSError as error:  # reported later: whoever sends is not done with this request
            self._loop.call_soon(self._read_last, error)
            size = 0
        now = monotonic()
        self._columns.lateness.append(now - ready)
        if size == len(request):
            self._columns.sent[row] = now
        else:
            self._unsent = memoryview(request)[size:]
            self._loop.add_writer(self._socket.fileno(), self._send_rest)

    def abort(self) -> None:
        """Close at once, and report nothing of the request."""
        self._row = None
        self._close()

    def _close(self) -> None:
        if self.usable:
            self.usable = False
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()

    def _send_rest(self) -> None:
        """Send what the socket did not take at once."""
        if not self.usable:
            return
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except _NOT_YET:
            return
        except OSError as error:
            self._read_last(error)
            return
        if not self._unsent:
            self._loop.remove_writer(self._socket.fileno())
            if self._row is not None:
                self._columns.sent[self._row] = monotonic()

    def _read_last(self, error: OSError) -> None:
        """Read what the server answered before it took no more, and close."""
        while self._receive():
            pass
        self._lose(error)

    def _receive(self) -> bool:
        """Read a piece of the answer: of TLS a whole record, so that nothing of it stays behind.

        Returns whether there was one.
        """
        if not self.usable:
            return False
        messages: Ancillary = []
        try:
            if self._stamped:
                size, messages, _, _ = self._socket.recvmsg_into(self._buffers, MESSAGE_SIZE)
            else:
                size = self._socket.recv_into(self._sender.buffer)
        except _NOT_YET:
            return False
        except OSError as error:
            self._lose(error)
            return False
        if not size:
            self._lose(None)
        elif self._row is None:  # bytes that nothing asked for
            self._close()
        else:
            # Not before it was sent: the two clocks differ by some nanoseconds.
            self._now = max(arrived(messages, monotonic()), self._columns.sent[self._row])
            self._read(self._row, size)
        return size > 0

    def _read(self, row: int, size: int) -> None:
        begins, self._begun = not self._begun, True
        same_size = begins and size == self._known_size
        if same_size and self._sender.received.startswith(self._known_head):
            self._first = self._now
            self._columns.status[row] = self._known_status
            self._reusable = True
            self._finish("done")
            return
        self._head_size += size
        try:
            self._parser.feed_data(self._sender.buffer[:size])
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, EventTooLongError):
                raise  # an error of this program, not of the server
            self._fail("protocol", str(error.__context__))
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._surplus = True
            self._fail("protocol", str(error) or "the server changed the protocol")
        if self._head_size > LONGEST_HEAD:
            self._surplus = True
            self._fail("protocol", "what is before or after the body has no end")
        if self._outcome is not None:
            if begins and self._reusable and not (self._varies or self._surplus):
                self._learn(row, size)
            self._finish(self._outcome)

    def _learn(self, row: int, size: int) -> None:
        """Know the head of an answer that was read at once, and need no parser for its like.

        The same head before as many bytes is the same status, length and use of the connection.
        """
        if self._outcome == "done":
            self._known_head = bytes(self._sender.buffer[: size - self._body_size])
            self._known_size = size
            self._known_status = self._columns.status[row]

    def _lose(self, error: OSError | None) -> None:
        """Close a connection that the server has ended, and report the request it takes with it."""
        if self._row is not None and error is None and self._in_body and not self._delimited:
            self._now = monotonic()
            self._finish(self._judged())  # such a body ends with the connection
        elif self._row is not None:
            tls = isinstance(error, ssl.SSLError)
            self._fail("tls" if tls else "reset", str(error or "the connection was closed"))
        self._close()

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
            self._varies |= name == b"transfer-encoding"  # the head does not say how long it is
        elif name == b"content-type":
            self._content_type = value
        elif name == b"location":
            self._location = value
        elif name == b"server-timing" and self._row is not None:
            self._varies = True
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
        self._head_size = 0
        self._body_size += len(data)
        if self._reading and self._reader is not None:
            self._reader.feed(data, self._now)
        elif self._parser.get_status_code() >= 300:
            self._text = (self._text + data)[:LONGEST_TEXT]

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
        if not self._reading or self._reader is None:
            return "done"
        fate = self._reader.finish(self._now)
        self._text = self._reader.text
        return fate

    def _finish(self, fate: Fate) -> None:
        """Report a whole answer, and be idle if the connection can be used again."""
        row = self._row
        if row is None:
            return
        self._row = None
        self._columns.last[row] = self._now
        self._note_content(row)
        if self._reusable and not (self._surplus or self._unsent):
            self._sender.idle(self, self._now)
        else:
            self._close()
        self._sender.ended(row, fate, self._now, self._text.decode(errors="replace"))

    def _fail(self, fate: Fate, problem: str) -> None:
        """Report a request without a whole answer, and close; one that had its answer keeps it."""
        row = self._row
        if row is None or self._outcome is not None:
            return
        self._row = None
        self._note_content(row)
        self._close()
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
