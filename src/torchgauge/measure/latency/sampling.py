"""The loop that times one call again and again, and knows when to stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple, Protocol

from torchgauge.analyze.latency.latency import run_figures
from torchgauge.analyze.latency.stopping import find_warmup, look, look_counts
from torchgauge.clock import Clock
from torchgauge.measure.latency.latency_options import SamplingPlan
from torchgauge.records.latency.latency import LatencyRun, Stop

FIRST_LOOK_TIME = 0.5
MOST_SAMPLES = 250_000
"""Raw samples are kept in the record: a call of a microsecond must not fill it in 30 s."""
MOST_SHORT_SAMPLES = 20_000
SHORT_TIME = 0.3
SHORT_CALLS = 10
PROGRESS_PERIOD = 300_000_000


class Timing(NamedTuple):
    """One timed call: integer nanoseconds in all and per stage, and the device's own seconds.

    `device` is given in every call or in none; `stages` names the same stages in every call.
    """

    total: int
    device: float | None = None
    stages: Mapping[str, int] = MappingProxyType({})


class OnProgress(Protocol):
    """Told between two calls, every 0.3 s at most, how far the measurement is."""

    def __call__(self, samples: int, relative_error: float | None, elapsed: float) -> None:
        """Take the samples so far, the last look's relative error, and the seconds of sampling."""


class BetweenCalls(Protocol):
    """Work that is done between two calls, outside the timed region, once `due` has come."""

    due: int
    """The clock's nanoseconds; `run` resets it."""

    def run(self) -> None:
        """Do the work once."""


def sample(
    call: Callable[[], Timing],
    clock: Clock,
    plan: SamplingPlan,
    *,
    on_progress: OnProgress | None = None,
    busy_warmup: float = 0.0,
    clock_resolution: float | None = None,
    between: BetweenCalls | None = None,
) -> LatencyRun:
    """Call `call` until the plan is fulfilled, and return the record of this process.

    The first call stands apart. At least one more is made, whatever the budget says. Where
    the data decide on the warm-up, it also holds the calls of the first `busy_warmup` seconds.
    `clock_resolution`, in seconds, is needed for the warning of a coarse clock. Between two calls
    nothing is computed except at the looks and where `between` is due.

    On KeyboardInterrupt the samples there are make the record, and its `stop` is "interrupted";
    before the first sample it passes through. So does whatever else `call` raises.
    """
    samples = _Samples(call(), busy_warmup)
    goal = _goal(plan)
    pace = _Pace(clock, plan.time_limit, on_progress)
    try:
        stop = _collect(call, clock, samples, goal, pace, between)
    except KeyboardInterrupt:
        if samples.complete_count() == 0:
            raise
        stop = "interrupted"
    count = samples.complete_count()
    return run_figures(
        [total / 1e9 for total in samples.totals[:count]],
        first_call=samples.first.total / 1e9,
        stop=stop,
        warmup=plan.warmup,
        least_warmup=samples.busy_samples(),
        keep=plan.iterations if stop == "iterations done" else None,
        device_samples=samples.devices[:count],
        stage_samples={name: [p / 1e9 for p in s[:count]] for name, s in samples.stages.items()},
        target_rel_error=plan.target_rel_error,
        clock_resolution=clock_resolution,
    )


def _goal(plan: SamplingPlan) -> _Goal:
    if plan.iterations is not None:
        return _Iterations(plan, plan.iterations)
    return _Short(plan) if plan.short else _Precision(plan)


def _collect(
    call: Callable[[], Timing],
    clock: Clock,
    samples: _Samples,
    goal: _Goal,
    pace: _Pace,
    between: BetweenCalls | None,
) -> Stop:
    began = clock.now()
    totals = samples.totals
    while True:
        samples.add(call())
        now = clock.now()
        if len(totals) >= goal.next_look:
            if goal.reached(samples, (now - began) / 1e9):
                return goal.stop
            now = clock.now()
        if now >= pace.deadline:
            return "time budget spent"
        if len(totals) >= goal.max_samples:
            return "sample limit reached"
        if now >= pace.next_report:
            pace.report(len(totals), goal.relative_error, now)
        if between is not None and now >= between.due:
            between.run()


class _Samples:
    """The samples so far, in plain lists: little may cost time between two calls."""

    def __init__(self, first: Timing, busy_warmup: float) -> None:
        self.first = first
        self.totals: list[int] = []
        self.devices: list[float] = []
        self.stages: dict[str, list[int]] = {name: [] for name in first.stages}
        # A first call is busy for as long as the device was; its host time may be compilation.
        self._busy_left = round((busy_warmup - (first.device or 0.0)) * 1e9)

    def add(self, timing: Timing) -> None:
        self.totals.append(timing.total)
        if timing.device is not None:
            self.devices.append(timing.device)
        if timing.stages:
            for name, part in timing.stages.items():
                self.stages[name].append(part)

    def complete_count(self) -> int:
        """The samples with all their parts: an interrupt may come between two appends."""
        parts = [self.totals, *self.stages.values()]
        if self.first.device is not None:
            return min(len(self.devices), *(len(part) for part in parts))
        return min(len(part) for part in parts)

    def busy_samples(self) -> int:
        """The samples that began within the warm-up's busy time."""
        if self._busy_left <= 0:
            return 0
        ends = accumulate(self.totals)
        before = next((i for i, end in enumerate(ends) if end >= self._busy_left), None)
        return len(self.totals) if before is None else before + 1


class _Goal(Protocol):
    """When a run has samples enough: looked at from `next_look` on, up to `max_samples`."""

    stop: Stop
    next_look: int
    max_samples: float
    relative_error: float | None

    def reached(self, samples: _Samples, elapsed: float, /) -> bool:
        """Return whether the run may end, and set the next look."""


class _Precision:
    """Stop when the median's interval is within the target: looks at n = 100·1.5^k."""

    stop: Stop = "precision reached"
    max_samples: float

    def __init__(self, plan: SamplingPlan) -> None:
        self._plan = plan
        self._warmup = plan.warmup or 0
        self._look_sizes = look_counts()
        self.next_look = next(self._look_sizes) + self._warmup
        self.max_samples = MOST_SAMPLES + self._warmup
        self.relative_error: float | None = None

    def reached(self, samples: _Samples, elapsed: float, /) -> bool:
        self.next_look = next(self._look_sizes) + self._warmup
        # A warm-up that outlasts the samples so far cannot be seen: some time must have passed.
        if elapsed < FIRST_LOOK_TIME:
            return False
        precision = look(
            samples.totals,
            self._plan.target_rel_error,
            warmup=self._plan.warmup,
            least_warmup=samples.busy_samples(),
        )
        self.relative_error = precision.relative_error
        return precision.enough and precision.independent >= self._plan.independent


class _Iterations:
    """Stop at exactly as many steady samples as requested.

    Without a given warm-up its samples are made up for: d ≤ n/2 warm-up samples end the run
    at n = iterations + d, at twice the iterations at the latest.
    """

    stop: Stop = "iterations done"
    max_samples: float = math.inf
    relative_error: float | None = None

    def __init__(self, plan: SamplingPlan, iterations: int) -> None:
        self._warmup = plan.warmup
        self._iterations = iterations
        self.next_look = iterations + (plan.warmup or 0)

    def reached(self, samples: _Samples, _elapsed: float, /) -> bool:
        if self._warmup is not None:
            return True
        busy = samples.busy_samples()
        skip = busy + find_warmup(samples.totals[busy:]).samples
        self.next_look = self._iterations + skip
        return len(samples.totals) >= self.next_look


class _Short:
    """Stop when there are calls and seconds enough for one of several processes."""

    stop: Stop = "short run done"
    max_samples: float = MOST_SHORT_SAMPLES
    relative_error: float | None = None

    def __init__(self, plan: SamplingPlan) -> None:
        self._independent = plan.independent
        self.next_look = (plan.warmup or 0) + max(SHORT_CALLS, plan.independent)

    def reached(self, samples: _Samples, elapsed: float, /) -> bool:
        calls = len(samples.totals)
        if elapsed < SHORT_TIME:
            # The pace so far tells when the time will have passed: little may happen before.
            remaining_calls = calls * (SHORT_TIME - elapsed) / max(elapsed, 1e-9)
            self.next_look = calls + max(1, math.ceil(min(remaining_calls, calls)))
            return False
        if self._independent and look(samples.totals, 1.0).independent < self._independent:
            self.next_look = math.ceil(calls * 1.5)
            return False
        return True


class _Pace:
    """When the budget ends, and when to report progress next."""

    def __init__(self, clock: Clock, limit: float, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        # A first call may compile for minutes; it stands apart, and its time is not the samples'.
        self._started = started = clock.now()
        self.deadline = started + limit * 1e9
        self.next_report = math.inf if on_progress is None else clock.now() + PROGRESS_PERIOD

    def report(self, samples: int, relative_error: float | None, now: int) -> None:
        if self._on_progress is not None:
            self._on_progress(samples, relative_error, (now - self._started) / 1e9)
        self.next_report = now + PROGRESS_PERIOD
