"""What interrupts a loop's own work: Python's garbage collection, and compilation by Dynamo."""

from __future__ import annotations

import contextlib
import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from torchgauge.measure.timeline.compilation import break_sentence
from torchgauge.measure.work import internals
from torchgauge.records.timeline.compilation import CompilationCost
from torchgauge.records.trace.host_delay import Cause, HostDelay

_NAMES: dict[Cause, str] = {"garbage collection": "gc", "compilation": "torch.compile"}
_RESUMED = "torch_dynamo_resume_in_"


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
        # Calls, ns, and ns of the longest (of compilation, a step's).
        self._totals: dict[Cause, tuple[int, int, int]] = dict.fromkeys(_NAMES, (0, 0, 0))
        self._collections: list[int] = []

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Have the collector tell when it runs, until the block ends."""
        gc.callbacks.append(self._collected)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collected)

    def begin(self) -> None:
        """Take note that a step begins."""
        self._collections.clear()
        self._compiled = _compiled()
        self._began = self._now()

    def end(self) -> None:
        """Take note that a step that counts has ended."""
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
                calls=calls,
                time=time * 1e-9,
                longest=longest * 1e-9,
                steps=self._steps,
                duration=self._duration * 1e-9,
            )
            for cause, (calls, time, longest) in self._totals.items()
            if time
        )

    def _collected(self, phase: str, _details: dict[str, Any]) -> None:
        if phase == "start":
            self._collecting = self._now()
        elif self._collecting is not None:
            self._collections.append(self._now() - self._collecting)
            self._collecting = None

    def _add(self, cause: Cause, calls: int, times: list[int]) -> None:
        count, time, longest = self._totals[cause]
        self._totals[cause] = count + calls, time + sum(times), max(longest, *times, 0)


def _compiled() -> tuple[int, int]:
    """Return how many graphs this process has compiled, and for how many ns."""
    dynamo = internals.dynamo()
    if dynamo is None:
        return 0, 0
    graphs = dynamo.counters.get("stats", {}).get("unique_graphs", 0)
    return graphs, round(dynamo.calculate_time_spent()["total_wall_time"] * 1e9)


class CompilationCosts:
    """Adds up Dynamo's own metrics of the steps that count.

    Read after every step, since Dynamo forgets all but the last 64 compilations.
    """

    def __init__(self) -> None:
        # Calls and seconds by cause, reason and place.
        self._costs: dict[tuple[Any, str, str], list[Any]] = defaultdict(lambda: [0, 0.0])
        self.counts = True  # not a step in which wrappers changed
        metrics = _metrics()
        self._last = max((entry.start_time or 0.0 for entry in metrics), default=0.0)

    def end(self) -> None:
        """Take note of what was compiled since the last step."""
        new = [entry for entry in _metrics() if (entry.start_time or 0.0) > self._last]
        if not new:
            return
        self._last = max(entry.start_time for entry in new)
        if self.counts:
            for entry in new:
                self._add(entry)

    def costs(self) -> tuple[CompilationCost, ...]:
        """Return the costs, the largest first."""
        costs = [
            CompilationCost(cause=cause, reason=reason, place=place, count=calls, time=time)
            for (cause, reason, place), (calls, time) in self._costs.items()
        ]
        return tuple(sorted(costs, key=lambda cost: -cost.time))

    def _add(self, entry: Any) -> None:
        time = entry.entire_frame_compile_time_s or 0.0
        place = f"{entry.co_filename}:{entry.co_firstlineno}"
        # What was traced until a break is traced again up to it; that is the break's.
        before = entry.dynamo_time_before_restart_s or 0.0
        breaks = list(entry.restart_reasons or ())
        if len(breaks) == 1 and 0 < before <= time:
            break_place = _break_place(breaks[0])
            if break_place:
                time -= before
                self._costs["graph break", break_sentence(breaks[0]), break_place][1] += before
        if entry.recompile_reason:
            reason = " ".join(entry.recompile_reason.partition(": ")[2].split())
            key = "recompilation", reason, place
        elif (entry.co_name or "").startswith(_RESUMED):
            key = "graph break", _break_reason(entry), place
        else:
            key = "first", "", place
        self._costs[key][0] += 1
        self._costs[key][1] += time


def _metrics() -> list[Any]:
    dynamo = internals.dynamo()
    return [] if dynamo is None else list(dynamo.get_compilation_metrics())


def _breaks() -> list[Any]:
    """Return Dynamo's graph breaks with their user's stacks, the last first."""
    dynamo = internals.dynamo()
    breaks = [] if dynamo is None else getattr(dynamo, "graph_break_reasons", [])
    return [entry for entry in reversed(breaks) if entry.user_stack]


def _break_place(reason: str) -> str:
    for entry in _breaks():
        if entry.reason == reason:
            return f"{entry.user_stack[-1].filename}:{entry.user_stack[-1].lineno}"
    return ""


def _break_reason(resumed: Any) -> str:
    """Return why the graph broke before a function that resumes at the line of the break."""
    for entry in _breaks():
        frame = entry.user_stack[-1]
        if (frame.filename, frame.lineno) == (resumed.co_filename, resumed.co_firstlineno):
            return break_sentence(entry.reason)
    return ""
