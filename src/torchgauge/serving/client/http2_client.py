"""Requests by HTTP/2, which httpx sends: many at once on one connection."""

from __future__ import annotations

import asyncio
import math
import ssl
from time import monotonic
from typing import TYPE_CHECKING, Any

from torchgauge.errors import missing_extra, text_of
from torchgauge.records.serving.requests import Fate
from torchgauge.serving.client.address import Address
from torchgauge.serving.client.columns import PENDING
from torchgauge.serving.client.connection import Sender, note_content
from torchgauge.serving.client.connection_pool import fate_of
from torchgauge.serving.client.dialect import Dialect
from torchgauge.serving.client.dialects.torchgauge import read_timing
from torchgauge.serving.client.request_bytes import Token
from torchgauge.version import version

if TYPE_CHECKING:
    from collections.abc import Sequence


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
        try:
            import h2.connection  # noqa: F401 - else imported while the first request is due
            import httpx
        except ImportError:
            raise missing_extra("httpx with h2", "http2", "Sending by HTTP/2") from None
        self.opened = 0
        self._httpx = httpx
        self._address, self._items, self._dialect = address, items, dialect
        self._token, self._sender = token, sender
        tls: Any = ssl.create_default_context() if address.secure else False
        self._client = httpx.AsyncClient(
            http1=False, http2=True, verify=tls, timeout=None, trust_env=False,  # noqa: S113 - ours
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
                fate = await self._read(row, response)
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
            self._sender.ended(row, fate, columns.last[row])

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

    async def _read(self, row: int, response: Any) -> Fate:
        """Read the answer into the columns, and return what it was."""
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
        first = math.nan
        now = monotonic()
        async for data in response.aiter_raw():
            now = monotonic()
            first = now if first != first else first
            if reader is not None:
                reader.feed(data, now)
        columns.last[row] = now
        outcome: Fate = "done" if reader is None else reader.finish(now)
        note_content(columns, row, reader, first)
        if response.status_code < 300:
            return outcome
        location = response.headers.get("location", "")
        return "redirect" if location and self._sender.leads_elsewhere(location) else "status"


def _unconnected(error: BaseException, address: Address) -> Fate:
    """Return the fate of a request that got no connection, by the error of the system in it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return fate_of(cause, secure=address.secure)
        cause = cause.__cause__ or cause.__context__
    return "refused"
