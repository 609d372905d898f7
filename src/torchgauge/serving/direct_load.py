"""The scenarios in which requests wait for each other, on a target that is called directly."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from torchgauge.analyze.findings.catalogue import findings
from torchgauge.analyze.serving.levels import level as level_of
from torchgauge.device.environment import environment
from torchgauge.device.select import open_device
from torchgauge.errors import TorchgaugeError
from torchgauge.measure.description import describe
from torchgauge.measure.forward import opened
from torchgauge.measure.interrupts import Interrupts
from torchgauge.measure.processes.separate_process import ServingSource, serve_in_separate_process
from torchgauge.measure.step import Step, prepared
from torchgauge.progress import Progress, Silent
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.serving.level import Arrivals
from torchgauge.records.serving.requests import Fate, Requests
from torchgauge.records.serving.serving import ServedBy, Serving
from torchgauge.serving.load_options import OFFLINE_REQUESTS, QUERY_SAMPLES, LoadOptions
from torchgauge.serving.server.worker import batch_steps, warm_up
from torchgauge.targets.builds.source import Source
from torchgauge.targets.target import TargetRequest

SHOW = 0.5


@dataclass
class _Calls:
    """The requests so far, in seconds from the begin."""

    scheduled: list[float] = field(default_factory=list)
    sent: list[float | None] = field(default_factory=list)
    last: list[float | None] = field(default_factory=list)
    fate: list[Fate] = field(default_factory=list)
    batch: list[int | None] = field(default_factory=list)

    def add(
        self, count: int, scheduled: float, sent: float | None, last: float | None, fate: Fate
    ) -> None:
        """Add the requests of one call: when they were due, began and ended."""
        self.scheduled += [scheduled] * count
        self.sent += [sent] * count
        self.last += [last] * count
        self.fate += [fate] * count
        self.batch += [None if last is None else count] * count

    def requests(self) -> Requests:
        """Return them as a record."""
        services = (
            None if sent is None or last is None else last - sent
            for sent, last in zip(self.sent, self.last, strict=True)
        )
        return Requests(
            scheduled=tuple(self.scheduled), sent=tuple(self.sent), first=tuple(self.last),
            last=tuple(self.last), fate=tuple(self.fate), status=(None,) * len(self.fate),
            item=(0,) * len(self.fate), batch=tuple(self.batch), service=tuple(services),
        )  # fmt: skip


@dataclass(frozen=True)
class _CalledSource(ServingSource):
    """A target that is called in a process of its own."""

    options: LoadOptions = field(default_factory=LoadOptions)

    def serving(self) -> Serving:
        """Load it and call it."""
        with Interrupts() as interrupts:
            return _called(self, self.options, Silent(), interrupts)


def measure(
    source: Source, options: LoadOptions, progress: Progress, interrupts: Interrupts
) -> Serving:
    """Call a target as a scenario says, and return what its requests waited.

    What a process of its own profiles is called in one, too.

    Raises what loading raises; InputError `not-batchable`; MeasurementError `child-…`.
    """
    if not (isinstance(source.target, TargetRequest) and source.target.in_own_process):
        return _called(source, options, progress, interrupts)
    with interrupts.allowed():
        own = _CalledSource(source.target, source.device, source.precision, options=options)
        return serve_in_separate_process(own, options.seconds_at(None), progress)


def _called(
    source: Source, options: LoadOptions, progress: Progress, interrupts: Interrupts
) -> Serving:
    """Call a target in this process.

    Single-stream: one after the other. Multi-stream: queries of 8, computed at once. Offline: all
    are due at the begin, and are computed in batches of `max_batch`.
    """
    size = {"multi-stream": QUERY_SAMPLES, "offline": options.max_batch}.get(options.scenario, 1)
    offline = options.scenario == "offline"
    seconds = options.seconds_at(None)
    limit = options.requests or (OFFLINE_REQUESTS if offline else None)
    with interrupts.allowed():
        progress.start("loading")
        placement = opened(source)
    device = open_device(placement.device)
    with device.current(), prepared(placement) as step:
        steps = batch_steps(placement, step, size)
        with interrupts.allowed():
            warm_up(steps)
        progress.start(options.scenario)
        loop = _Loop(steps, device.synchronize, seconds, limit, progress)
        try:
            with interrupts.allowed():
                loop.run(offline=offline)
        except KeyboardInterrupt:
            loop.interrupted = True
    if offline and limit is not None:  # all were due, and the time is over
        loop.calls.add(limit - len(loop.calls.fate), 0.0, None, None, "unsent")
    # A level of calls ends when they do: nothing is due after it.
    duration = max((last for last in loop.calls.last if last is not None), default=0.0)
    arrivals = Arrivals(kind="at once") if offline else Arrivals(kind="closed", users=1)
    level = level_of(
        loop.calls.requests(), scenario=options.scenario, arrivals=arrivals,
        duration=max(duration, 1e-9), goals=options.goals, client=None, mlperf=options.mlperf,
        interrupted=loop.interrupted,
    )  # fmt: skip
    serving = Serving(
        target=describe(placement, training=False),
        environment=environment(),
        served_by=ServedBy(kind="call", api="call", version="", max_batch=size),
        goals=options.goals,
        levels=(level,),
        interrupted=loop.interrupted or interrupts.noted,
        warnings=tuple(loop.warnings),
    )
    return replace(serving, findings=findings(serving))


class _Loop:
    """Calls one after the other, until the time or the requests are used up."""

    def __init__(
        self,
        steps: list[Step],
        synchronize: Callable[[], None],
        seconds: float,
        limit: int | None,
        progress: Progress,
    ) -> None:
        self._steps, self._synchronize = steps, synchronize
        self._seconds, self._limit = seconds, limit
        self._progress = progress
        self.calls = _Calls()
        self.interrupted = False
        self.warnings: list[MeasurementWarning] = []

    def run(self, *, offline: bool) -> None:
        """Call; offline counts each request from the begin."""
        begin = updated = time.perf_counter()
        size, number = len(self._steps), 0
        while (now := time.perf_counter()) - begin < self._seconds or not number:
            # A limit counts queries in a closed loop, requests where all are due at once.
            if self._limit is not None and number >= self._limit:
                break
            count = min(size, (self._limit or size) - number) if offline else size
            number += count if offline else 1
            self._call(count, begin, offline=offline)
            if now - updated > SHOW:
                updated = now
                share = max((now - begin) / self._seconds, number / (self._limit or math.inf))
                self._progress.update(f"{number:,} calls", share)

    def _call(self, count: int, begin: float, *, offline: bool) -> None:
        step = self._steps[count - 1]
        fate: Fate = "unfinished"  # where Ctrl-C ends it
        step.ready()
        sent = time.perf_counter() - begin
        try:
            step()
            self._synchronize()
            fate = "done"
        except TorchgaugeError as error:
            fate = "failed"
            if not self.warnings:
                self.warnings.append(MeasurementWarning.from_error(error, "serving"))
        finally:
            last = None if fate == "unfinished" else time.perf_counter() - begin
            self.calls.add(count, 0.0 if offline else sent, sent, last, fate)
