"""The connections of one client process: those that are idle, and new ones."""

from __future__ import annotations

import asyncio
import errno
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
        problem = OSError("the host has no address")
        for host in tuple(self._hosts):
            try:
                _, connection = await asyncio.get_running_loop().create_connection(
                    self._connection,
                    host,
                    self._address.port,
                    ssl=self._tls,
                    server_hostname=self._address.host if self._tls else None,
                )
            except OSError as error:
                problem = error
                if self.fate_of(error) != "refused":
                    break
            else:
                if host != self._hosts[0]:  # the next connection tries it first
                    self._hosts.remove(host)
                    self._hosts.insert(0, host)
                self.opened += 1
                return connection
        raise problem

    def fate_of(self, error: OSError) -> Fate:
        """Return the fate of a request that got no connection."""
        return fate_of(error, secure=self._tls is not None)

    def _connection(self) -> Connection:
        reader = self._dialect.reader
        return Connection(self._sender, reader() if reader is not None else None)


def fate_of(error: OSError, *, secure: bool) -> Fate:
    """Return the fate of a request that got no connection."""
    if isinstance(error, ssl.SSLError):
        return "tls"
    if error.errno in _LOCAL_ERRORS:
        return "local"
    # A server that takes a connection and ends it before it is secure speaks no TLS.
    lost = isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError)
    return "tls" if secure and lost else "refused"
