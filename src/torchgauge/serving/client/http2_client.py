"""Requests by HTTP/2, which httpx sends: many at once on one connection."""

from __future__ import annotations

import asyncio
import errno
import math
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Any

from torchgauge.errors import text_of
from torchgauge.imports import required
from torchgauge.records.serving.requests import Fate
from torchgauge.serving.client.address import Address, Token
from torchgauge.serving.client.columns import PENDING
from torchgauge.serving.client.connection import LONGEST_TEXT, Connection, Sender, note_content
from torchgauge.serving.client.dialect import Dialect
from torchgauge.serving.client.dialects.every import read_timing
from torchgauge.version import version

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
                reader = self._dialect.reader
                return Connection(stream, loop, self._sender, reader() if reader else None)
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


class Http2Client:
    """Sends by httpx. Without TLS the server is expected to speak HTTP/2 from the first byte."""

    def __init__(
        self,
        address: Address,
        items: Sequence[bytes],
        dialect: Dialect,
        token: Token | None,
        sender: Sender,
    ) -> None:
        # The first is else imported while the first request is due.
        for module in ("h2.connection", "httpx"):
            httpx = required(module, "http2", "Sending by HTTP/2", "httpx with h2")
        self.opened = 0
        self._httpx = httpx
        self._address, self._items, self._dialect = address, items, dialect
        self._token, self._sender = token, sender
        tls: Any = ssl.create_default_context() if address.secure else False
        self._client = httpx.AsyncClient(
            http1=False, http2=True, verify=tls, timeout=None, trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        )  # fmt: skip
        # Only addresses that were checked are connected to: the name is in the head and in TLS.
        host = address.listening_host()
        host = f"[{host}]" if ":" in host else host
        self._url = f"{address.scheme}://{host}:{address.port}{address.target}"
        self._head = {
            "Host": address.authority,
            "User-Agent": f"torchgauge/{version()}",
            "Accept": "application/json, text/event-stream",
        }
        if token is not None:
            name, _, value = token.header.strip().partition(": ")
            self._head[name] = value

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def exchange(self, row: int, ready: float) -> None:
        """Send a request that could be sent since `ready`, read its answer, report its fate."""
        columns = self._sender.columns
        body = self._items[columns.item[row]]
        head = self._head | ({"Content-Type": "application/json"} if body else {})
        request = self._client.build_request(
            "POST" if body else "GET", self._url, headers=head, content=body or None,
            extensions={"sni_hostname": self._address.host},
        )  # fmt: skip
        now = monotonic()
        columns.lateness.append(now - ready)
        columns.sent[row] = now  # when it was handed to the library
        try:
            response = await self._send(request)
            try:
                fate, body = await self._read(row, response)
            finally:
                await response.aclose()
        except self._httpx.ConnectError as error:
            self._sender.ended(row, _unconnected(error, self._address), monotonic(), str(error))
        except self._httpx.RemoteProtocolError as error:
            # Of a server that closes the connection, and of one that speaks another protocol.
            fate = "reset" if "disconnect" in str(error).lower() else "protocol"
            self._sender.ended(row, fate, monotonic(), str(error))
        except (self._httpx.TransportError, OSError) as error:
            self._sender.ended(row, "reset", monotonic(), str(error))
        except Exception as error:  # noqa: BLE001 - httpcore may fail in a request that is cancelled
            if columns.fate[row] == PENDING:
                self._sender.ended(row, "protocol", monotonic(), text_of(error))
        else:
            self._sender.ended(row, fate, columns.last[row], body.decode(errors="replace"))

    async def _send(self, request: Any) -> Any:
        """Send a request, and return its answer's head.

        A cancellation waits until the connection is set up: cancelled within that, httpcore leaves
        a connection that fails whoever uses it next.
        """
        set_up = asyncio.Event()
        set_up.set()

        async def traced(event: str, _: object) -> None:
            if event == "connection.connect_tcp.complete":
                self.opened += 1
                set_up.clear()
            elif event == "http2.send_request_headers.started":
                set_up.set()

        request.extensions["trace"] = traced
        sending = asyncio.ensure_future(self._client.send(request, stream=True))
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
        """Read the answer into the columns, and return what it was, of an error with its body."""
        columns = self._sender.columns
        columns.status[row] = response.status_code
        for value in response.headers.get_list("server-timing"):
            read_timing(columns, row, value.encode("latin-1"))
        if software := response.headers.get("server"):
            self._sender.served_by(software.encode("latin-1"))
        make_reader = self._dialect.reader
        reader = make_reader() if make_reader is not None and response.is_success else None
        if reader is not None:
            kind = response.headers.get("content-type", "").lower()
            reader.start(streamed="text/event-stream" in kind)
        first, body = math.nan, b""
        now = monotonic()
        async for data in response.aiter_raw():
            now = monotonic()
            first = now if first != first else first
            if reader is not None:
                reader.feed(data, now)
            elif response.status_code >= 300:
                body = (body + data)[:LONGEST_TEXT]
        columns.last[row] = now
        outcome: Fate = "done" if reader is None else reader.finish(now)
        note_content(columns, row, reader, first)
        if response.status_code < 300:
            return outcome, body
        location = response.headers.get("location", "")
        is_elsewhere = location and self._sender.leads_elsewhere(location)
        return "redirect" if is_elsewhere else "status", body


def _unconnected(error: BaseException, address: Address) -> Fate:
    """Return the fate of a request that got no connection, by the error of the system in it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return fate_of(cause, secure=address.secure)
        cause = cause.__cause__ or cause.__context__
    return "refused"
