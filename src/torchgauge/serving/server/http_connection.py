"""A connection to the reference server: HTTP/1.1, answers in the order of their requests."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable

import httptools


class Slot:
    """A request, and where its answer goes.

    Attributes:
        path: Of its URL, without the query.
        data: The answer, once there is one.
        last: Whether the connection closes after it.
    """

    def __init__(self, connection: HttpConnection, path: str, *, last: bool) -> None:
        self.path = path
        self.last = last
        self.data = b""
        self._connection = connection

    @property
    def is_open(self) -> bool:
        """Whether its client is still there."""
        return self._connection.is_open

    def output(self) -> bytes:
        """Return the body for what the model made of it: the outputs themselves stay there."""
        if not self.path.startswith("/v2/"):
            return b"{}"
        name = self.path.split("/")[3] if self.path.startswith("/v2/models/") else ""
        return json.dumps({"model_name": name, "outputs": []}).encode()

    def answer(self, status: str, body: bytes, timing: str = "") -> None:
        """Answer with JSON; `timing` is a Server-Timing header."""
        named = f"Server-Timing: {timing}\r\n" if timing else ""
        if self.last:
            named += "Connection: close\r\n"
        head = (
            f"HTTP/1.1 {status}\r\nServer: torchgauge\r\nContent-Type: application/json\r\n"
            f"{named}Content-Length: {len(body)}\r\n\r\n"
        )
        self.data = head.encode() + body
        self._connection.flush()


class HttpConnection(asyncio.Protocol):
    """Parse requests, whose bodies are read and not looked at, and hand each to `handle`."""

    def __init__(self, handle: Callable[[Slot], None]) -> None:
        self._handle = handle
        self._slots: deque[Slot] = deque()
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._transport: asyncio.Transport | None = None

    @property
    def is_open(self) -> bool:
        """Whether the client is still there."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for answers."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Answer nothing any longer."""
        del exc
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Parse bytes; anything but HTTP closes the connection."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            slot = Slot(self, "", last=True)
            self._slots.append(slot)
            slot.answer("400 Bad Request", b'{"error": "That is no request."}')

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._url = b""

    def on_url(self, url: bytes) -> None:
        """Take a part of its URL."""
        self._url += url

    def on_message_complete(self) -> None:
        """Hand over a request that is whole."""
        path = self._url.partition(b"?")[0].decode("latin-1")
        slot = Slot(self, path, last=not self._parser.should_keep_alive())
        self._slots.append(slot)
        self._handle(slot)

    def flush(self) -> None:
        """Write the answers that are next in order."""
        while self._slots and self._slots[0].data:
            slot = self._slots.popleft()
            if self._transport is not None:
                self._transport.write(slot.data)
                if slot.last:
                    self._transport.close()
