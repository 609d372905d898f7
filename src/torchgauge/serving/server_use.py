"""What the processes of a local server use while they are under load, sampled beside it."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

from msgspec.structs import replace

from torchgauge.device import counters
from torchgauge.device.load import GpuMetrics, NoGpu, gpus_of
from torchgauge.device.process_counters import (
    ProcessReading,
    cores_of,
    listening,
    memory_of,
    read_process,
    with_children,
)
from torchgauge.errors import option_invalid
from torchgauge.records.serving.level import Covers, ServerUse
from torchgauge.serving.client.address import Address

INTERVAL = 0.5
# Above this share of what there is, a resource has reached its limit.
FULL = 0.9
# A process that uses more has threads that run at once; its clock is known to 10 ms.
ONE_CORE = 1.05


@dataclass(frozen=True)
class _Moment:
    """The sum of all processes' readings at a time, and the machine's network and GPU."""

    time: float
    processes: dict[int, ProcessReading]
    network: tuple[int, int] | tuple[None, None]
    gpu: float | None
    gpu_memory: int | None


class ServerWatch:
    """Reads the counters of processes every half second, between `start` and `use`.

    Args:
        numbers: The processes; without any nothing is read, and `use` returns None.
        gpus: The GPUs that they use.
        covers: How they were found.
    """

    def __init__(
        self, numbers: tuple[int, ...], gpus: GpuMetrics | None = None, covers: Covers = ""
    ) -> None:
        self._numbers, self._covers = numbers, covers
        self._gpus = gpus or NoGpu()
        self._moments: list[_Moment] = []
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    @staticmethod
    @contextlib.contextmanager
    def of_endpoint(address: Address, named: tuple[int, ...] = ()) -> Iterator[ServerWatch]:
        """Watch named processes, else what listens here, with children, and the GPUs in use.

        Raises InputError `option-invalid` for a process that is not there.
        """
        if absent := [number for number in named if read_process(number) is None]:
            raise option_invalid(
                f"There is no process {absent[0]} whose counters can be read.",
                "Give the number of one of this machine, of yours: pgrep -f NAME",
            )
        local = all(host.startswith("127.") or host == "::1" for host in address.hosts)
        numbers = with_children(named) or (listening(address.port) if local else ())
        covers: Covers = "named" if named else "listening"
        with gpus_of(numbers) as gpus, ServerWatch(numbers, gpus, covers) as watch:
            yield watch

    def __enter__(self) -> Self:
        """Return the watch."""
        return self

    def __exit__(self, *_: object) -> None:
        """End a reading that goes on."""
        self._stop()

    def start(self) -> None:
        """Begin to read."""
        self._stop()
        self._moments = []
        if self._numbers:
            self._done = threading.Event()
            self._thread = threading.Thread(
                target=self._sample, args=(self._done,), name="torchgauge-server", daemon=True
            )
            self._thread.start()

    def use(self, seconds: float) -> ServerUse | None:
        """End reading, and return what was used in the last `seconds`, which were the level."""
        self._stop()
        use = server_use(self._moments, time.monotonic() - seconds)
        return None if use is None else replace(use, covers=self._covers)

    def _stop(self) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _sample(self, done: threading.Event) -> None:
        while True:
            self._moments.append(self._moment())
            if done.wait(INTERVAL):
                self._moments.append(self._moment())
                return

    def _moment(self) -> _Moment:
        readings = {number: read_process(number) for number in self._numbers}
        gpus = [self._gpus.read(index) for index in self._gpus.names]
        busy = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
        memory = [gpu.memory for gpu in gpus if gpu.memory is not None]
        return _Moment(
            time=time.monotonic(),
            processes={number: reading for number, reading in readings.items() if reading},
            network=counters.network(),
            gpu=max(busy, default=None),
            gpu_memory=sum(memory) if memory else None,
        )


def server_use(moments: list[_Moment], begin: float) -> ServerUse | None:
    """Return the readings as columns, in seconds from `begin`; None without two of them."""
    pairs = [
        (before, after)
        for before, after in itertools.pairwise(moments)
        if after.time > begin and after.time - before.time > INTERVAL / 10 and after.processes
    ]
    if not pairs:
        return None
    numbers = {number for _, after in pairs for number in after.processes}
    cores = max((count for number in numbers if (count := cores_of(number))), default=None)
    traffic = [
        _rates(before, after, lambda m: m.network[0], lambda m: m.network[1])
        for before, after in pairs
    ]
    sent, received = zip(*traffic, strict=True)
    cpu = tuple(_rate(before, after, lambda r: r.cpu) or 0.0 for before, after in pairs)
    room = max((size for number in numbers if (size := memory_of(number))), default=None)
    memory = tuple(
        sum(reading.memory or 0 for reading in after.processes.values()) for _, after in pairs
    )
    busiest = tuple(_busiest(before, after) for before, after in pairs)
    gpu = tuple(after.gpu for _, after in pairs if after.gpu is not None)
    return ServerUse(
        processes=max(len(after.processes) for _, after in pairs),
        cores=cores,
        time=tuple(max(after.time - begin, 0.0) for _, after in pairs),
        cpu=cpu,
        memory=memory if all(memory) else (),
        read=_column(_rate(before, after, lambda r: r.read) for before, after in pairs),
        written=_column(_rate(before, after, lambda r: r.written) for before, after in pairs),
        sent=_column(sent),
        received=_column(received),
        gpu=gpu if len(gpu) == len(pairs) else (),
        gpu_memory=tuple(a.gpu_memory for _, a in pairs if a.gpu_memory is not None),
        waiting=_column(_waiting(before, after) for before, after in pairs),
        busiest=busiest,
        first_saturated=_saturated(cpu, cores, gpu, max(memory) / room if room else 0.0, busiest),
    )


def _rate(
    before: _Moment, after: _Moment, field: Callable[[ProcessReading], float | None]
) -> float | None:
    """Return by how much the sum of a counter grew per second, of processes read twice."""
    growth = 0.0
    for number, reading in after.processes.items():
        if number in before.processes:
            first, last = field(before.processes[number]), field(reading)
            if first is None or last is None:
                return None
            growth += max(last - first, 0.0)
    return growth / (after.time - before.time)


def _rates(
    before: _Moment, after: _Moment, *fields: Callable[[_Moment], int | None]
) -> list[float | None]:
    """Return by how much counters of the machine grew per second."""
    rates: list[float | None] = []
    for field in fields:
        first, last = field(before), field(after)
        complete = first is not None and last is not None
        rates.append(max(last - first, 0) / (after.time - before.time) if complete else None)  # type: ignore[operator]
    return rates


def _waiting(before: _Moment, after: _Moment) -> float | None:
    """Return which share of the time that threads could run they waited for a core."""
    waited = _rate(before, after, lambda r: r.waiting)
    ran = _rate(before, after, lambda r: r.running)
    if waited is None or ran is None:
        return None
    return waited / (waited + ran) if waited + ran else 0.0


def _busiest(before: _Moment, after: _Moment) -> float:
    """Return the cores that the busiest process uses, or its busiest thread, of more than one.

    Threads that take turns, as of Python, use one core together.
    """
    cores = [0.0]
    seconds = after.time - before.time
    for number in after.processes.keys() & before.processes.keys():
        first, last = before.processes[number], after.processes[number]
        total = (last.cpu - first.cpu) / seconds
        ran = (last.threads[name] - first.threads.get(name, 0.0) for name in last.threads)
        cores.append(total if total <= ONE_CORE else max(ran, default=0.0) / seconds)
    return max(cores)


def _column(values: Iterator[float | None] | tuple[float | None, ...]) -> tuple[float, ...]:
    """Return a column; empty where a value is unknown."""
    column = tuple(values)
    return tuple(v for v in column if v is not None) if None not in column else ()


def _saturated(
    cpu: tuple[float, ...],
    cores: float | None,
    gpu: tuple[float, ...],
    memory: float,
    busiest: tuple[float, ...],
) -> str:
    """Return what was nearest to its limit over the level: by the median of the readings."""
    with contextlib.suppress(statistics.StatisticsError):
        shares = {
            "gpu": statistics.median(gpu) if gpu else 0.0,
            "cpu": statistics.median(cpu) / cores if cores else 0.0,
            "memory": memory,
            "one core": min(statistics.median(busiest), 1.0),
        }
        name = max(shares, key=lambda name: shares[name])
        return name if shares[name] >= FULL else ""
    return ""
