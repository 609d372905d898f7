"""ASGI middleware: the times of HTTP requests by route, their errors, and the page `/metrics`.

It works with whatever calls an ASGI application: uvicorn, hypercorn, gunicorn's workers, and in
FastAPI, Starlette or LitServe as their middleware.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from torchgauge.monitoring.background import background
from torchgauge.monitoring.metrics_page import metrics_page
from torchgauge.monitoring.monitor import Monitor
from torchgauge.monitoring.series import Series
from torchgauge.records.monitoring.window import FIRST_BYTE, QUEUE, REQUEST

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_REFUSED = 429  # too many requests: the server did not serve it
_QUEUE_TIMING = re.compile(r"(?:^|,)\s*queue\s*(?:;[^,]*?)?;\s*dur=(\d*\.?\d+)(?![.\d])", re.I)
# Proxies write seconds, milliseconds or microseconds since 1970 into X-Request-Start.
_EPOCH_UNITS = ((1e14, 1e-6), (1e11, 1e-3), (1e8, 1.0))
_LONGEST_QUEUE = 86_400.0
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class MonitorMiddleware:
    """Monitors the requests of an ASGI application, with the label `route` as it is declared.

    A request fails if the application raises, does not answer, or answers with 429 or 500 and
    above. Queue time is what a proxy (`X-Request-Start`) or the application (`Server-Timing:
    queue;dur=`) reports. What all monitors of the process recorded is written before the server's
    shutdown is complete; for an application without lifespan, as Django's, the middleware answers.
    """

    def __init__(self, app: Application, *, monitor: Monitor, metrics: str = "/metrics") -> None:
        """Put the monitor around `app`; `metrics` is the path of the page, "" for no page."""
        self._app, self._monitor, self._metrics = app, monitor, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the page, or let the application answer."""
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._metrics and scope["path"] == self._metrics and scope["method"] == "GET":
            await self._send_metrics(scope, send)
        else:
            await self._timed(scope, receive, send)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write what was recorded when the application has shut down.

        Servers raise the signal again that ended them, after which nothing of Python's is run.
        """
        answers = False

        async def noting_receive() -> Message:
            nonlocal answers
            answers = True
            return await receive()

        async def flushing_send(message: Message) -> None:
            if message["type"].startswith("lifespan.shutdown."):
                await _in_thread(background.flush)
            await send(message)

        try:
            await self._app(scope, noting_receive, flushing_send)
        except Exception:  # an application without lifespan raises at once, whatever it likes
            if answers:
                await _in_thread(background.flush)
                raise
        for phase in () if answers else ("startup", "shutdown"):
            await receive()
            await flushing_send({"type": f"lifespan.{phase}.complete"})

    async def _timed(self, scope: Scope, receive: Receive, send: Send) -> None:
        begin, now = time.perf_counter(), time.time()
        status, first, queue = None, 0.0, _queue_before(scope, now)

        async def noting_send(message: Message) -> None:
            nonlocal status, first, queue
            if message["type"] == "http.response.start":
                status, first = message["status"], time.perf_counter() - begin
                reported = _reported_queue(message.get("headers", ()))
                queue = queue if reported is None else reported
            await send(message)

        kind = ""
        try:
            await self._app(scope, receive, noting_send)
        except BaseException as error:  # a cancelled request as well is a failed one
            kind = type(error).__name__
            raise
        finally:
            end = time.perf_counter()
            if not kind and (status is None or status >= 500 or status == _REFUSED):
                kind = "no response" if status is None else f"http {status}"
            with self._monitor.guarded("requests"):
                self._note(scope, kind, end - begin, first, queue)

    def _note(
        self, scope: Scope, kind: str, duration: float, first: float, queue: float | None
    ) -> None:
        route = getattr(scope.get("route"), "path", None) or "other"
        method = scope["method"] if scope["method"] in _METHODS else "other"

        def series_of(name: str) -> Series:
            return self._monitor.series(name, labels={"route": str(route), "method": method})

        self._monitor.wake()
        if kind:
            series_of(REQUEST).fail(kind)
        else:
            series_of(REQUEST).add(duration)
            series_of(FIRST_BYTE).add(first)
        if queue is not None:
            series_of(QUEUE).add(queue)

    async def _send_metrics(self, scope: Scope, send: Send) -> None:
        accept = _header(scope["headers"], b"accept")
        monitor = self._monitor
        content_type, body = await _in_thread(
            lambda: metrics_page(monitor.totals_of_processes(), accept)
        )
        headers = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Call what reads or writes files, in another thread if the server's loop is asyncio's."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return function()
    return await loop.run_in_executor(None, function)


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str:
    return ",".join(value.decode("latin-1") for key, value in headers if key.lower() == name)


def _queue_before(scope: Scope, now: float) -> float | None:
    """Return the seconds since a proxy took the request; None where it does not report that."""
    text = _header(scope["headers"], b"x-request-start").strip().removeprefix("t=")
    try:
        begun = float(text)
    except ValueError:
        return None
    unit = next((unit for minimum, unit in _EPOCH_UNITS if begun >= minimum), None)
    if unit is None:
        return None
    waited = now - begun * unit
    # The clocks of two machines may differ by some milliseconds.
    return max(waited, 0.0) if -0.1 < waited < _LONGEST_QUEUE else None


def _reported_queue(headers: Iterable[tuple[bytes, bytes]]) -> float | None:
    """Return the seconds of `queue` in the application's Server-Timing, which has milliseconds."""
    timing = _QUEUE_TIMING.search(_header(headers, b"server-timing"))
    return None if timing is None else float(timing[1]) * 1e-3
