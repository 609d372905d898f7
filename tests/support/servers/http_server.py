"""The least HTTP/1.1 server: requests with a Content-Length, answers by whoever handles them.

A server is a script that binds a free port of 127.0.0.1, prints it and ends by itself: when its
time is over, or when its standard input is closed, as it is by the end of the process that started
it. Standard library only, so that it starts at once.
"""

import argparse
import asyncio
import json
import sys
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit


@dataclass
class Request:
    """A request, and the connection that waits for its answer."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    transport: asyncio.Transport

    @property
    def json(self) -> dict:
        """The body; empty where there is none."""
        return json.loads(self.body) if self.body else {}

    def answer(self, body: bytes, status="200 OK", content="application/json", **headers) -> None:
        """Write a whole answer; header names take _ for -."""
        named = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in headers.items())
        head = f"HTTP/1.1 {status}\r\nContent-Type: {content}\r\n{named}"
        self.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def write(self, data: bytes) -> None:
        """Write bytes as they are, if the client is still there."""
        if not self.transport.is_closing():
            self.transport.write(data)


class Connection(asyncio.Protocol):
    """Parse requests and hand each to `handle`."""

    def __init__(self, handle) -> None:
        self.handle = handle
        self.buffer = b""

    def connection_made(self, transport) -> None:
        """Keep the transport for answers."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Handle every request that is whole."""
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            first, *lines = self.buffer[:end].decode("latin-1").split("\r\n")
            headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines)}
            size = end + 4 + int(headers.get("content-length", 0))
            if len(self.buffer) < size:
                return
            body, self.buffer = self.buffer[end + 4 : size], self.buffer[size:]
            method, target, _ = first.split(" ")
            url = urlsplit(target)
            query = {name: values[-1] for name, values in parse_qs(url.query).items()}
            self.handle(Request(method, url.path, query, headers, body, self.transport))


def arguments(description: str) -> argparse.ArgumentParser:
    """Return the options that every server has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--life", type=float, default=120.0, help="seconds until it ends")
    parser.add_argument("--host", default="127.0.0.1", choices=("127.0.0.1", "::1"))
    return parser


def serve(options: argparse.Namespace, make_handler) -> None:
    """Serve until the end of `life` or of the parent; `make_handler()` runs inside of the loop."""
    asyncio.run(_serve(options, make_handler))


async def _serve(options: argparse.Namespace, make_handler) -> None:
    loop = asyncio.get_running_loop()
    handle = make_handler()
    server = await loop.create_server(lambda: Connection(handle), options.host, 0, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    ended = loop.create_future()
    loop.add_reader(sys.stdin, lambda: ended.done() or ended.set_result(None))
    loop.call_later(options.life, lambda: ended.done() or ended.set_result(None))
    await ended
    server.close()
