"""Reference work between the calls: it tells how fast the machine was just then."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import torch

try:
    import resource
except ImportError:  # Windows counts none
    resource = None  # type: ignore[assignment]

from torchgauge.analyze.latency.noise import FAULTING, PAGE_FAULT, WAITING
from torchgauge.clock import Clock
from torchgauge.device.base import Device
from torchgauge.forks import Owner

MATMUL_SIDE = 192
COPIED = 2**17
"""Elements of a copy: with the matmul's operands 1.4 MB pass through the caches, not more."""
REGIONS = 16
"""So many times torch's threads meet, for work that takes each some microseconds."""
GRAIN = 2**15
"""Elements that torch gives to a thread at least; a byte each, so that they stay in its caches."""
ADDITIONS = 2_000
DISPATCHES = 20
ON_DEVICE = 2**20
LAUNCHES = 4
PACE = 25
"""A round begins when this multiple of its own duration has passed since the last one."""
LEAST_PAUSE = 30_000_000
"""Nanoseconds: the call after a round finds colder caches, and must be one of many."""
FEWEST_ROUNDS = 3
"""So many pauses between rounds tell the calls' page faults from those of the first calls."""
SCHEDULED = Path("/proc/thread-self/schedstat")


class Yardstick:
    """Times fixed pieces of work, one round of them whenever `due` has come.

    A round takes at most a twenty-fifth of the time. The first one is run twice, since libraries
    start their threads and allocate then. Pieces are too short to be sent off a core: how long this
    thread waited for one is read from the system at the first round and at the end. The page faults
    of the calls are those between two rounds: whether the C library gives memory back to the system
    after each call differs from process to process, by how blocks happen to lie.

    Attributes:
        due: The clock's nanoseconds from which on the next round may begin; at once at first.
    """

    def __init__(self, clock: Clock, device: Device) -> None:
        self.due = 0
        self._now = clock.now
        self._owner = Owner()
        self._workloads = _on_host()
        if device.asynchronous:
            self._workloads |= _on_device(device)
        self._times: dict[str, list[int]] = {kind: [] for kind in self._workloads}
        self._faulting: list[float] = []
        self._scheduled: tuple[int, int] | None = None
        self._last: tuple[int, int | None] | None = None

    def run(self) -> None:
        """Time one round, and set when the next one is due.

        A process that the call forked ends here: torch's threads are not in it, and a product that
        waits for them would wait for ever.
        """
        self._owner.end_fork()
        if self.due == 0:
            self._scheduled = _scheduled()
            for workload in self._workloads.values():
                workload()
        now = self._now
        began, faults = now(), _page_faults()
        if self._last is not None and faults is not None and self._last[1] is not None:
            seconds = PAGE_FAULT * (faults - self._last[1])
            self._faulting.append(1e9 * seconds / max(began - self._last[0], 1))
        for kind, workload in self._workloads.items():
            start = now()
            workload()
            self._times[kind].append(now() - start)
        ended = now()
        self._last = ended, _page_faults()
        self.due = ended + max(PACE * (ended - began), LEAST_PAUSE)

    def medians(self, call: float = 0.0) -> dict[str, float]:
        """Return the median seconds of each piece by its kind; without any round nothing.

        "waiting" is the seconds that pass while this thread runs for one, 1 where it never waits
        for a core; "faulting" is what the page faults of a `call` of so many seconds would take at
        a microsecond each. Both are absent where the system does not tell.
        """
        times = {kind: statistics.median(t) / 1e9 for kind, t in self._times.items() if t}
        if len(self._faulting) >= FEWEST_ROUNDS:
            times[FAULTING] = statistics.median(self._faulting) * call
        began, ended = self._scheduled, _scheduled()
        if began is not None and ended is not None and ended[0] > began[0]:
            times[WAITING] = 1 + (ended[1] - began[1]) / (ended[0] - began[0])
        return times


def _scheduled() -> tuple[int, int] | None:
    """Return the nanoseconds that this thread ran and that it waited for a core (Linux)."""
    try:
        ran, waited = SCHEDULED.read_text().split()[:2]
        return int(ran), int(waited)
    except (OSError, ValueError):
        return None


def _page_faults() -> int | None:
    """Return how often this process was given a page of memory; None where that is not counted."""
    if resource is None:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _on_host() -> dict[str, Callable[[], object]]:
    # Values are given, not drawn: the user's random numbers stay as they were.
    def full(*shape: int) -> torch.Tensor:
        return torch.full(shape, 0.5, dtype=torch.float32, device="cpu")

    square, product = full(MATMUL_SIDE, MATMUL_SIDE), full(MATMUL_SIDE, MATMUL_SIDE)
    source, copy = full(COPIED), full(COPIED)
    shared = torch.zeros(GRAIN * torch.get_num_threads(), dtype=torch.uint8, device="cpu")

    def regions() -> None:
        for _ in range(REGIONS):
            shared.add_(0)

    def additions() -> int:
        total = 0
        for number in range(ADDITIONS):
            total += number
        return total

    def dispatches() -> None:
        for _ in range(DISPATCHES):
            torch.empty(1, dtype=torch.float32, device="cpu")

    return {
        "matmul": lambda: torch.mm(square, square, out=product),
        "copy": lambda: copy.copy_(source),
        "threads": regions,
        "python": additions,
        "dispatch": dispatches,
    }


def _on_device(device: Device) -> dict[str, Callable[[], object]]:
    """Return work of the device's own; no matmul, whose library would keep a workspace there."""
    values = torch.full((ON_DEVICE,), 0.5, dtype=torch.float32, device=device.name)
    results, scalar = torch.empty_like(values), torch.zeros(1, device=device.name)

    def sines() -> None:
        for _ in range(LAUNCHES):
            torch.sin(values, out=results)
        device.synchronize()

    def launch() -> None:
        scalar.add_(1)
        device.synchronize()

    return {"device": sines, "launch": launch}
