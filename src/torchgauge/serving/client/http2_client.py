"""Requests by HTTP/2, which httpcore sends: many at once on one connection."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import socket
import ssl
from collections import deque
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any

from torchgauge.errors import text_of
from torchgauge.imports import required
from torchgauge.records.serving.requests import Fate
from torchgauge.serving.client.address import Address
from torchgauge.serving.client.columns import PENDING
from torchgauge.serving.client.connection import Connection, Sender, note_content
from torchgauge.serving.client.dialect import LONGEST_TEXT, Dialect
from torchgauge.serving.client.dialects.every import read_timing
from torchgauge.serving.client.request_head import RequestHead

IDLE_SECONDS = 1.0
"""A connection that was idle for longer is not used again: its server may be closing it."""
_LOCAL_ERRORS = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EACCES)
)


class ConnectionPool:
    """Opens connections to an address, and keeps those that are idle.

    Attributes:
        opened: How many were opened.
    """

    def __init__(self, address: Address, dialect: Dialect, sender: Sender) -> None:
        self.opened = 0
        self._address = address
        self._dialect = dialect
        self._sender = sender
        self._hosts = list(address.hosts)
        self._tls = ssl.create_default_context() if address.secure else None
        self._idle: deque[Connection] = deque()

    def take(self) -> Connection | None:
        """Return the connection that was used last of those that are idle, if there is any."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    def keep(self, connection: Connection, moment: float) -> None:
        """Keep a connection that is idle since `moment`."""
        connection.idle_since = moment
        self._idle.append(connection)

    def close_idle(self, since: float) -> None:
        """Close those that were idle before a moment, the longest first."""
        while self._idle and self._idle[0].idle_since < since:
            self._idle.popleft().abort()

    async def open(self) -> Connection:
        """Open a connection to the first of the host's addresses that takes one.

        Raises OSError; `fate_of` says what that means for a request.
        """
        loop = asyncio.get_running_loop()
        problem = OSError("the host has no address")
        for host in tuple(self._hosts):
            try:
                stream = await self._connected(host)
            except OSError as error:
                problem = error
                if self.fate_of(error) != "refused":
                    break
            else:
                if host != self._hosts[0]:  # the next connection tries it first
                    self._hosts.remove(host)
                    self._hosts.insert(0, host)
                self.opened += 1
                return Connection(stream, loop, self._sender, self._dialect.reader())
        raise problem

    def fate_of(self, error: OSError) -> Fate:
        """Return the fate of a request that got no connection."""
        return fate_of(error, secure=self._tls is not None)

    async def _connected(self, host: str) -> socket.socket:
        stream = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            stream.setblocking(False)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(stream, (host, self._address.port))
            if self._tls is not None:
                stream = self._tls.wrap_socket(
                    stream, server_hostname=self._address.host, do_handshake_on_connect=False
                )
                await _shake_hands(stream)
        except BaseException:  # also where its request timed out: the socket is closed
            stream.close()
            raise
        return stream


async def _shake_hands(stream: ssl.SSLSocket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        possible: asyncio.Future[None] = loop.create_future()
        try:
            stream.do_handshake()
        except ssl.SSLWantReadError:
            loop.add_reader(stream, _set, possible)
        except ssl.SSLWantWriteError:
            loop.add_writer(stream, _set, possible)
        else:
            return
        try:
            await possible
        finally:
            loop.remove_reader(stream)
            loop.remove_writer(stream)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def fate_of(error: OSError, *, secure: bool) -> Fate:
    """Return the fate of a request that got no connection."""
    if isinstance(error, ssl.SSLError):
        return "tls"
    if error.errno in _LOCAL_ERRORS:
        return "local"
    # A server that takes a connection and ends it before it is secure speaks no TLS.
    lost = isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError)
    return "tls" if secure and lost else "refused"


_FRAME_HEAD, _SETTINGS = 9, 4
_LONGEST_FRAME = 1 << 14  # bytes; no longer ones are asked for


class _Stream:
    """A stream of httpcore's that reads frames of HTTP/2 alone.

    h2 waits for the whole of a frame before it looks at its length, so of an answer of another
    protocol it would wait for megabytes.
    """

    def __init__(self, stream: Any, violation: type[Exception]) -> None:
        self._stream, self._violation = stream, violation
        self._head, self._payload_left, self._begun = b"", 0, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def start_tls(self, **options: Any) -> _Stream:
        """Return the stream, secured."""
        return _Stream(await self._stream.start_tls(**options), self._violation)

    async def read(self, size: int, timeout: float | None = None) -> bytes:
        """Return what comes next. Raises the violation."""
        data: bytes = await self._stream.read(size, timeout)
        self._head += data[self._payload_left :]
        self._payload_left = max(self._payload_left - len(data), 0)
        while len(self._head) >= _FRAME_HEAD:
            length, kind = int.from_bytes(self._head[:3]), self._head[3]
            if length > _LONGEST_FRAME or not (self._begun or kind == _SETTINGS):
                raise self._violation("the server does not speak HTTP/2")
            self._begun = True
            self._payload_left = max(_FRAME_HEAD + length - len(self._head), 0)
            self._head = self._head[_FRAME_HEAD + length :]
        return data


class Http2Client:
    """Sends by httpcore. Without TLS the server is expected to speak HTTP/2 from the first byte."""

    def __init__(
        self,
        address: Address,
        items: Sequence[bytes],
        dialect: Dialect,
        head: RequestHead,
        sender: Sender,
    ) -> None:
        # The first are else imported while the first request is due.
        modules = ("h2.connection", "h2.exceptions", "anyio", "httpcore")
        _, errors, _, httpcore = (
            required(module, "http2", "Sending by HTTP/2", "httpcore with h2") for module in modules
        )
        self.opened = 0
        self._httpcore, self._violation = httpcore, errors.ProtocolError
        self._address, self._dialect, self._sender = address, dialect, sender
        self._url = f"{address.scheme}://{address.authority}{address.target}"
        self._requests = [(head.method(body), head.headers(body), body or None) for body in items]
        self._pending: set[int] = set()
        # Only addresses that were checked are connected to: the name is in the head and in TLS.
        self._host, self._backend = address.listening_host(), httpcore.AnyIOBackend()
        # An answer without a status is else taken for one of 200.
        httpcore.AsyncHTTP2Connection.CONFIG.validate_inbound_headers = True
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl.create_default_context() if address.secure else None,
            http1=False, http2=True, max_connections=None, network_backend=self,
        )  # fmt: skip

    async def connect_tcp(self, host: str, port: int, **options: Any) -> _Stream:  # noqa: ARG002 - it may have another address by now
        """Connect to the address that was checked, as httpcore asks its backend to."""
        stream = await self._backend.connect_tcp(self._host, port, **options)
        self.opened += 1
        return _Stream(stream, self._violation)

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.aclose()

    async def exchange(self, row: int, ready: float) -> None:
        """Send a request that could be sent since `ready`, read its answer, report its fate."""
        columns = self._sender.columns
        method, headers, body = self._requests[columns.item[row]]
        now = monotonic()
        columns.lateness.append(now - ready)
        columns.sent[row] = now  # when it was handed to the library
        self._pending.add(row)
        try:
            response = await self._send(
                self._httpcore.Request(method, self._url, headers=headers, content=body)
            )
            try:
                fate, text = await self._read(row, response)
            finally:
                await response.aclose()
        except Exception as error:  # noqa: BLE001 - httpcore may fail in a request that is cancelled
            if columns.fate[row] == PENDING:
                await self._failed(row, error)
        else:
            self._sender.ended(row, fate, columns.last[row], text.decode(errors="replace"))
        finally:
            self._pending.discard(row)

    async def _failed(self, row: int, error: Exception) -> None:
        """Report a request without an answer; a violation of the protocol fails all on the way."""
        violations = (cause for cause in _causes(error) if isinstance(cause, self._violation))
        violation = next(violations, None)
        now, fate, text = monotonic(), self._fate_of(error), text_of(violation or error)
        if fate != "protocol" or violation is None:
            self._sender.ended(row, fate, now, text)
            return
        rows, self._pending = self._pending, set()
        for other in rows:
            if self._sender.columns.fate[other] == PENDING:
                self._sender.ended(other, fate, now, text)
        with contextlib.suppress(self._violation):
            await self._pool.aclose()

    def _fate_of(self, error: Exception) -> Fate:
        library = self._httpcore
        if isinstance(error, library.ConnectError):
            causes = (cause for cause in _causes(error) if isinstance(cause, OSError))
            cause = next(causes, None)
            return "refused" if cause is None else fate_of(cause, secure=self._address.secure)
        # A stream or a connection that the server ended is no violation.
        ended = (library.RemoteProtocolError, library.NetworkError, OSError)
        return "reset" if isinstance(error, ended) else "protocol"

    async def _send(self, request: Any) -> Any:
        """Send a request, and return its answer's head.

        A cancellation waits until the connection is set up: cancelled within that, httpcore leaves
        a connection that fails whoever uses it next.
        """
        set_up = asyncio.Event()
        set_up.set()

        async def traced(event: str, _: object) -> None:
            if event == "connection.connect_tcp.complete":
                set_up.clear()
            elif event == "http2.send_request_headers.started":
                set_up.set()

        request.extensions["trace"] = traced
        sending = asyncio.ensure_future(self._pool.handle_async_request(request))
        sending.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            waiting = asyncio.ensure_future(set_up.wait())
            await asyncio.wait((sending, waiting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            raise
        finally:
            sending.cancel()

    async def _read(self, row: int, response: Any) -> tuple[Fate, bytes]:
        """Read the answer into the columns, and return what it was, of a failure with its text."""
        columns = self._sender.columns
        columns.status[row] = response.status
        for name, value in response.headers:
            if name == b"server-timing":
                read_timing(columns, row, value)
        fields = dict(response.headers)
        if b"server" in fields:
            self._sender.served_by(fields[b"server"])
        is_error = response.status >= 300
        reader = None if is_error else self._dialect.reader()
        if reader is not None:
            kind = fields.get(b"content-type", b"").lower()
            reader.start(streamed=b"text/event-stream" in kind)
        first, text = math.nan, b""
        now = monotonic()
        async for data in response.aiter_stream():
            now = monotonic()
            first = now if first != first else first
            if reader is not None:
                reader.feed(data, now)
            elif is_error:
                text = (text + data)[:LONGEST_TEXT]
        columns.last[row] = now
        outcome: Fate = "done" if reader is None else reader.finish(now)
        note_content(columns, row, reader, first)
        if not is_error:
            return outcome, b"" if reader is None else reader.text
        location = fields.get(b"location", b"").decode("latin-1")
        is_elsewhere = location and self._sender.leads_elsewhere(location)
        return "redirect" if is_elsewhere else "status", text


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and what it was raised for."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
