"""The reference server as the measuring process sees it: started, its address, and its end."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from torchgauge.errors import InputError
from torchgauge.measure.processes.processes import died, tail, timed_out, write_request
from torchgauge.records.target import TargetDescription
from torchgauge.serving.server.front import CHILD, ROUTE
from torchgauge.serving.server.messages import FrontReady
from torchgauge.signals import restoring
from torchgauge.targets.builds.source import Source
from torchgauge.temporary import temporary_folder
from torchgauge.workers import worker

# Starting Python, importing torch, building the model and warming it up, in every worker.
START_LIMIT = 900.0
LOOK = 1.0


@dataclass(frozen=True)
class ReferenceServer:
    """A server that is ready.

    Attributes:
        address: Its URL.
        target: What it serves.
        processes: Its processes' numbers, that of the front first.
    """

    address: str
    target: TargetDescription
    processes: tuple[int, ...]
    _front: subprocess.Popen[bytes] = field(repr=False)

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._front.poll() is None


@restoring
def reference_server(
    source: Source, *, max_batch: int = 1, max_delay: float = 0.0, workers: int = 1
) -> Iterator[ReferenceServer]:
    """Yield a server of the target on a free port of this machine, which is gone after the block.

    Its processes end with this one, however that ends.

    Args:
        source: The target; each worker loads it.
        max_batch: Requests computed at once at most.
        max_delay: Seconds that a batch waits to fill at most.
        workers: Processes that compute.

    Raises InputError `not-picklable`, `not-batchable`, `output-unwritable`; what loading raises;
    MeasurementError `child-killed`, `child-failed`, `child-timeout`.
    """
    with temporary_folder() as folder:
        try:
            write_request(folder / "request", (source, None, None))
            stderr = (folder / "stderr").open("wb")
        except OSError as error:
            raise InputError(
                "The reference server could not be started.",
                id="output-unwritable",
                cause=": ".join(filter(None, (error.strerror or str(error), error.filename))),
                remedy="Free space, or set TMPDIR to a folder that has some.",
            ) from error
        arguments = (str(folder), str(os.getpid()), "front")
        numbers = (str(max_batch), str(max_delay), str(workers))
        with stderr, worker(CHILD, *arguments, *numbers, stderr=stderr) as front:
            ready = _ready(front, folder)
            if ready.failure is not None:
                raise ready.failure.error()
            assert ready.target is not None  # noqa: S101 - it comes with the port
            address = f"http://127.0.0.1:{ready.port}{ROUTE}"
            yield ReferenceServer(address, ready.target, ready.processes, front)


def _ready(front: subprocess.Popen[bytes], folder: Path) -> FrontReady:
    assert front.stdout is not None  # noqa: S101 - it was started with a pipe
    end, data = time.monotonic() + START_LIMIT, b""
    with selectors.DefaultSelector() as selector:
        selector.register(front.stdout, selectors.EVENT_READ)
        while not data.endswith(b"\n"):
            if time.monotonic() > end:
                raise timed_out(START_LIMIT)
            if selector.select(LOOK):
                part = os.read(front.stdout.fileno(), 65536)
                if not part:
                    raise died(front.wait(), tail(folder / "stderr"))
                data += part
    return msgspec.json.decode(data, type=FrontReady)
