"""What interrupts a loop's own work: Python's garbage collection, and compilation by Dynamo."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

from torchgauge.measure.work import internals
from torchgauge.records.trace.trace_diff import Cause, HostDelay

_NAMES: dict[Cause, str] = {"garbage collection": "gc", "compilation": "torch.compile"}


@dataclasses.dataclass
class _Total:
    """Of all steps until now: calls and ns, and ns of the longest (of compilation, a step's)."""

    calls: int = 0
    time: int = 0
    longest: int = 0


class Interruptions:
    """Counts what interrupts the steps between `begin` and `end`.

    The collector holds the interpreter's lock, so that every thread's collection counts.
    """

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now = now
        self._collecting: int | None = None
        self.forget()

    def forget(self) -> None:
        """Count from now on."""
        self._steps = self._duration = 0
        self._counts = False
        self._totals: dict[Cause, _Total] = {cause: _Total() for cause in _NAMES}
        self._collections: list[int] = []
        self._compiled = (0, 0)
        self._began = 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Have the collector tell when it runs, until the block ends."""
        gc.callbacks.append(self._collected)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collected)

    def begin(self, *, counts: bool) -> None:
        """Take note that a step begins, which counts or does not."""
        self._counts = counts
        if not counts:
            return
        self._collections.clear()
        self._compiled = _compiled()
        self._began = self._now()

    def end(self) -> None:
        """Take note that the step has ended."""
        if not self._counts:
            return
        self._steps += 1
        self._duration += self._now() - self._began
        collections = list(self._collections)
        self._add("garbage collection", len(collections), collections)
        graphs, compiling = _compiled()
        if compiling > self._compiled[1]:
            self._add("compilation", graphs - self._compiled[0], [compiling - self._compiled[1]])

    def delays(self) -> tuple[HostDelay, ...]:
        """Return what interrupted the steps."""
        return tuple(
            HostDelay(
                cause=cause,
                name=_NAMES[cause],
                calls=total.calls,
                time=total.time * 1e-9,
                longest=total.longest * 1e-9,
                steps=self._steps,
                duration=self._duration * 1e-9,
            )
            for cause, total in self._totals.items()
            if total.time
        )

    def _collected(self, phase: str, _details: dict[str, Any]) -> None:
        if phase == "start":
            self._collecting = self._now()
        elif self._collecting is not None:
            self._collections.append(self._now() - self._collecting)
            self._collecting = None

    def _add(self, cause: Cause, calls: int, times: list[int]) -> None:
        total = self._totals[cause]
        total.calls += calls
        total.time += sum(times)
        total.longest = max(total.longest, *times, 0)


def _compiled() -> tuple[int, int]:
    """Return how many graphs this process has compiled, and for how many ns."""
    dynamo = internals.dynamo()
    if dynamo is None:
        return 0, 0
    graphs = dynamo.counters.get("stats", {}).get("unique_graphs", 0)
    return graphs, round(dynamo.calculate_time_spent()["total_wall_time"] * 1e9)
