"""A torch model behind HTTP that takes requests in another order than one queue would.

`python benchmarks/order_server.py ORDER` prints its port and serves until its input ends: "fifo",
"lifo" (the newest first), "queues" (two workers, each with a queue of its own), or "shed" (more
than three that wait are turned away). Each answer says how long it was computed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import torch

from capacity_real import model

ROOM = 3
Waiting = deque[asyncio.Future[bytes]]


class Server:
    """Requests wait in queues, from which workers take one at a time."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.queues: list[Waiting] = [deque() for _ in range(2 if order == "queues" else 1)]
        self.model, self.example = model()
        self.pool = ThreadPoolExecutor(len(self.queues))
        self.wakes = [asyncio.Event() for _ in self.queues]
        self.count = 0

    def computed(self) -> float:
        """Call the model, and return the seconds that it took."""
        began = time.perf_counter()
        with torch.inference_mode():
            self.model(self.example)
        return time.perf_counter() - began

    async def work(self, queue: Waiting, wake: asyncio.Event) -> None:
        """Answer what waits in a queue."""
        loop = asyncio.get_running_loop()
        while True:
            while not queue:
                wake.clear()
                await wake.wait()
            future = queue.pop() if self.order == "lifo" else queue.popleft()
            seconds = await loop.run_in_executor(self.pool, self.computed)
            timing = f'batch;desc="1", service;dur={seconds * 1e3:.6f}'
            head = f"HTTP/1.1 200 OK\r\nServer-Timing: {timing}\r\nContent-Length: 2\r\n\r\n"
            if not future.done():
                future.set_result(head.encode() + b"{}")

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the requests of a connection."""
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()
                return
            lengths = [
                int(line.partition(b":")[2])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            ]
            await reader.readexactly(sum(lengths))
            number = self.count % len(self.queues)
            self.count += 1
            if self.order == "shed" and len(self.queues[number]) >= ROOM:
                writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
                continue
            future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            self.queues[number].append(future)
            self.wakes[number].set()
            writer.write(await future)


async def main(order: str) -> None:
    """Serve until the input ends."""
    torch.set_num_threads(1)
    own = Server(order)
    server = await asyncio.start_server(own.connected, "127.0.0.1", 0)
    tasks = [
        asyncio.create_task(own.work(queue, wake))
        for queue, wake in zip(own.queues, own.wakes, strict=True)
    ]
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
