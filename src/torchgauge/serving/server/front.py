"""The front of the reference server: HTTP, and the queue from which its workers take batches."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import httptools
import msgspec

from torchgauge.records.finding import Failure
from torchgauge.serving.client.timer import timer
from torchgauge.serving.server.messages import BatchDone, FrontReady, WorkerReady
from torchgauge.workers import open_pipe, start_worker


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


CHILD = Path(__file__).with_name("child.py")
BACKLOG = 4096
ROUTE = "/torchgauge"

T = TypeVar("T")


def serve(folder: Path, max_batch: int, max_delay: float, workers: int) -> None:
    """Start the workers, say on standard output that all are ready, and serve until input ends.

    It ends too when the last worker has ended: what no worker computes is no server.
    """
    processes = [_started(folder, index, max_batch, workers) for index in range(workers)]
    ready = WorkerReady()
    for index, process in enumerate(processes):
        try:
            ready = msgspec.json.decode(open_pipe(process.stdout).readline(), type=WorkerReady)
        except msgspec.DecodeError:
            # It imports torch, which the front otherwise does without.
            from torchgauge.measure.processes.processes import died, tail

            error = died(process.wait(), tail(folder / f"worker-{index}.stderr"))
            ready = WorkerReady(failure=Failure.from_error(error))
        if ready.failure is not None:
            _say(FrontReady(failure=ready.failure))
            return
    asyncio.run(_serve(processes, BatchQueue(max_batch, max_delay), ready))


def _started(folder: Path, index: int, max_batch: int, workers: int) -> subprocess.Popen[bytes]:
    with (folder / f"worker-{index}.stderr").open("wb") as stderr:
        return start_worker(
            CHILD,
            *(str(folder), str(os.getpid()), "worker", str(max_batch), str(workers)),
            stderr=stderr,
        )


async def _serve(
    processes: list[subprocess.Popen[bytes]], queue: BatchQueue[Slot], ready: WorkerReady
) -> None:
    loop = asyncio.get_running_loop()
    front = Front(loop, queue, processes)
    server = await loop.create_server(
        lambda: HttpConnection(front.handle), "127.0.0.1", 0, backlog=BACKLOG
    )
    port = server.sockets[0].getsockname()[1]
    numbers = (os.getpid(), *(process.pid for process in processes))
    _say(FrontReady(port=port, target=ready.target, processes=numbers))
    loop.add_reader(sys.stdin, front.end)
    await front.ended
    server.close()


class BatchQueue(Generic[T]):
    """Requests that wait, in the order in which they came.

    A batch starts when a worker is free and either `max_batch` requests wait or the first of them
    has waited for `max_delay` seconds.
    """

    def __init__(self, max_batch: int, max_delay: float) -> None:
        self.max_batch = max_batch
        self.max_delay = max_delay
        self._waiting: deque[tuple[float, T]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, now: float, request: T) -> None:
        """Add a request that came at `now`."""
        self._waiting.append((now, request))

    def due(self) -> float:
        """Return when the next batch may start: −∞ if it is full, ∞ if nothing waits."""
        if len(self._waiting) >= self.max_batch:
            return -math.inf
        return self._waiting[0][0] + self.max_delay if self._waiting else math.inf

    def take(self) -> list[T]:
        """Return the next batch, and wait for these no longer."""
        size = min(self.max_batch, len(self._waiting))
        return [self._waiting.popleft()[1] for _ in range(size)]


class Front:
    """Requests wait in the queue; every free worker takes the next batch when it is due."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        queue: BatchQueue[Slot],
        processes: list[subprocess.Popen[bytes]],
    ) -> None:
        self.ended: asyncio.Future[None] = loop.create_future()
        self._queue = queue
        self._timer = timer(loop, self._start_batches)
        self._workers = [_Worker(loop, process, self) for process in processes]
        self._free = deque(self._workers)

    def handle(self, slot: Slot) -> None:
        """Queue requests for the model, answer others."""
        if slot.path == "/v2/health/ready":
            slot.answer("200 OK", b"{}")
        elif slot.path == ROUTE or (slot.path.startswith("/v2/") and slot.path.endswith("/infer")):
            self._queue.add(time.monotonic(), slot)
            self._start_batches()
        else:
            slot.answer("404 Not Found", b'{"error": "There is no such route."}')

    def end(self) -> None:
        """Serve no longer."""
        if not self.ended.done():
            self.ended.set_result(None)

    def is_free(self, worker: _Worker) -> None:
        """Give a worker that has answered its next batch."""
        self._free.append(worker)
        self._start_batches()

    def is_lost(self, worker: _Worker) -> None:
        """Go on without a worker that has ended; without any, end."""
        self._workers.remove(worker)
        if worker in self._free:
            self._free.remove(worker)
        if not self._workers:
            self.end()

    def _start_batches(self) -> None:
        while self._free and self._queue.due() <= time.monotonic():
            # A client that has gone waits for nothing.
            if batch := [slot for slot in self._queue.take() if slot.is_open]:
                self._free.popleft().compute(batch)
        if self._free and len(self._queue):
            self._timer.wake_at(self._queue.due())


class _Worker:
    """A process that computes one batch at a time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes], front: Front
    ) -> None:
        self._loop = loop
        self._process = process
        self._front = front
        self._batch: list[Slot] = []
        self._began = 0.0
        self._unread = b""
        self._answers = open_pipe(process.stdout).fileno()
        loop.add_reader(self._answers, self._read)

    def compute(self, batch: list[Slot]) -> None:
        """Have it compute a batch."""
        self._batch, self._began = batch, time.monotonic()
        try:
            os.write(open_pipe(self._process.stdin).fileno(), b"%d\n" % len(batch))
        except OSError:
            self._lost()

    def _read(self) -> None:
        data = os.read(self._answers, 65536)
        if not data:
            self._lost()
            return
        self._unread += data
        if not self._unread.endswith(b"\n"):
            return
        line, self._unread = self._unread, b""
        done = msgspec.json.decode(line, type=BatchDone)
        batch, self._batch = self._batch, []
        # It takes no other batch from when it was asked until now: the way to it and back counts.
        seconds = time.monotonic() - self._began
        self._front.is_free(self)  # it computes the next while these are answered
        timing = f'batch;desc="{len(batch)}", service;dur={seconds * 1e3:.6f}'
        for slot in batch:
            if done.error:
                slot.answer("500 Internal Server Error", json.dumps({"error": done.error}).encode())
            else:
                slot.answer("200 OK", slot.output(), timing)

    def _lost(self) -> None:
        if self._loop.remove_reader(self._answers):
            for slot in self._batch:
                slot.answer("500 Internal Server Error", b'{"error": "The worker has ended."}')
            self._front.is_lost(self)


def _say(answer: FrontReady) -> None:
    os.write(1, msgspec.json.encode(answer) + b"\n")
