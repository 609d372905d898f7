"""What a client process does: its share of a plan, from the orders that it is sent."""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from torchgauge.errors import TorchgaugeError
from torchgauge.records.serving.requests import Fate
from torchgauge.serving.client.client import LoadClient
from torchgauge.serving.client.columns import Columns
from torchgauge.serving.client.send_plan import SendPlan
from torchgauge.serving.client.sending_loop import SendingLoop

_REPORT_SECONDS = 1.0
_SPARE_DESCRIPTORS = 64
_SCHEDULER_STATISTICS = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True)
class ShareResult:
    """What one process sent.

    Attributes:
        columns: Its requests.
        connections: Connections that it opened.
        cpu: Seconds of CPU while it sent.
        waited: Requests that waited for a free slot in flight.
        waiting: Share of the time in which it was ready to run and had no core; None if unknown.
        software: What the server calls itself.
        problems: The first error text of each fate.
        interrupted: Whether it was stopped.
        end_moment: The moment of its end.
    """

    columns: Columns
    connections: int
    cpu: float
    waited: int
    waiting: float | None
    software: str
    problems: dict[Fate, str]
    interrupted: bool
    end_moment: float


def answered(orders: Pipe, answers: Pipe) -> None:
    """Take a plan and a moment to begin, send, and answer with a `ShareResult` or an error.

    Raises EOFError or OSError where whoever gives the orders is gone.
    """
    plan: SendPlan = orders.recv()
    with asyncio.Runner(loop_factory=SendingLoop) as runner:
        try:
            result = runner.run(_sent(plan, orders, answers))
        except TorchgaugeError as error:
            answers.send(error)
        else:
            answers.send(result)


async def _sent(plan: SendPlan, orders: Pipe, answers: Pipe) -> ShareResult:
    loop = asyncio.get_running_loop()
    client = LoadClient(plan, descriptors=_descriptors())
    answers.send("ready")
    begin: float = orders.recv()
    loop.add_reader(orders.fileno(), _stop, loop, orders, client)
    reports = loop.create_task(_report(client, answers))
    # What there is by now is searched for garbage no more; what comes is little.
    gc.collect()
    gc.freeze()
    cpu, waiting, started = time.process_time(), _waited(), time.monotonic()
    try:
        await client.run(begin)
    finally:
        reports.cancel()
        loop.remove_reader(orders.fileno())
    waited = _waited()
    elapsed = time.monotonic() - started
    return ShareResult(
        columns=client.columns,
        connections=client.connections,
        cpu=time.process_time() - cpu,
        waited=client.waited,
        waiting=None if waiting is None or waited is None else (waited - waiting) / elapsed,
        software=client.software,
        problems=client.problems,
        interrupted=client.interrupted,
        end_moment=client.end_moment,
    )


def _stop(loop: asyncio.AbstractEventLoop, orders: Pipe, client: LoadClient) -> None:
    loop.remove_reader(orders.fileno())
    client.interrupt()


async def _report(client: LoadClient, answers: Pipe) -> None:
    while True:
        await asyncio.sleep(_REPORT_SECONDS)
        answers.send(client.progress)


def _descriptors() -> int:
    """Return how many sockets may be open, after raising the limit as far as it may be."""
    try:
        import resource
    except ImportError:  # Windows
        return 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted_number = 65_536 if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted_number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted_number, hard))
        soft = wanted_number
    return max((65_536 if soft == resource.RLIM_INFINITY else soft) - _SPARE_DESCRIPTORS, 1)


def _waited() -> float | None:
    """Return the seconds in which this thread was ready to run and had no core."""
    try:
        return int(_SCHEDULER_STATISTICS.read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return None
