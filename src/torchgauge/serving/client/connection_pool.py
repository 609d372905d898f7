"""The connections of one client process: those that are idle, and new ones."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections import deque

from torchgauge.records.serving.requests import Fate
from torchgauge.serving.client.address import Address
from torchgauge.serving.client.connection import Connection, Sender
from torchgauge.serving.client.dialect import Dialect

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
        except BaseException:
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
