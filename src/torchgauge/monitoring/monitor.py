"""A monitor: its series in this process, its file, its windows, and where these go."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar, cast, get_args

import msgspec

from torchgauge.errors import MeasurementError
from torchgauge.monitoring.background import background
from torchgauge.monitoring.call_times import SIZES_EVERY, CallTimes, CountTokens
from torchgauge.monitoring.caps import LONGEST_TEXT, MOST_SERIES, key_of, place, short_text
from torchgauge.monitoring.delivery import LAST_WAIT, Batch, Delivery, Receiver
from torchgauge.monitoring.folder import MonitorFolder, compact, new_file
from torchgauge.monitoring.meter import Meter, Timing, gaps, takes_time, timed_stream
from torchgauge.monitoring.monitor_options import MonitorOptions, memory_readings
from torchgauge.monitoring.problems import Problems
from torchgauge.monitoring.process_file import ProcessFile
from torchgauge.monitoring.series import Series
from torchgauge.records.headline.figure import Unit
from torchgauge.records.monitoring.window import (
    BATCH,
    FIRST_BYTE,
    LATENCY,
    LAYER,
    MEMORY,
    TOKENS,
    Key,
    Problem,
    ProcessState,
    Window,
)
from torchgauge.records.record import How

F = TypeVar("F", bound=Callable[..., Any])


class Monitor:
    """Records what calls take, in this process and those forked from it, until `close`.

    A context manager that closes it, and a decorator of functions. Nothing of a monitor's raises
    into what it monitors: `status` has what failed.
    """

    def __init__(
        self,
        options: MonitorOptions,
        *,
        count_tokens: CountTokens | None = None,
        receivers: Sequence[Receiver] = (),
    ) -> None:
        self.options, self.name = options, options.name
        self._count_tokens = count_tokens
        self._problems = Problems(options.name)
        self._deliveries = [Delivery(receiver, self._problems) for receiver in receivers]
        self._labels = {"monitor": options.name} | _texts(options.labels)
        self._series: dict[Key, Series] = {}
        self._meters: list[Meter] = []
        self._modules: list[Any] = []
        self._closed = False
        self._reader: MonitorFolder | None = None
        self._begin_process()
        background.add(self)

    def _begin_process(self) -> None:
        self._lock = threading.RLock()
        self._process, self._begin = os.getpid(), time.time()
        self._file: ProcessFile | None = None
        self._window_end = self._next_window(self._begin)

    def _next_window(self, now: float) -> float:
        """Return when the window ends: at multiples of its length, for all processes alike."""
        return (now // self.options.window + 1) * self.options.window

    @property
    def interval(self) -> float:
        """Seconds until what was recorded is in the process's file."""
        return self.options.interval

    @property
    def status(self) -> tuple[Problem, ...]:
        """What failed, one problem a part; empty if nothing did."""
        return self._problems.all()

    def guarded(self, part: str) -> contextlib.AbstractContextManager[None]:
        """Return a context manager that notes in `status` what its block raises."""
        return self._problems.noting(part)

    def attach(self, module: Any) -> Self:
        """Time the calls of an `nn.Module` until `close`, or until it ends; return the monitor."""
        from torchgauge.monitoring import module_calls

        layers = None
        if self.options.layers:
            layers = module_calls.LayerTimes(module, self._layer_append)
        calls, times, draw = self.call_meter({}, None if layers is None else layers.begin)
        module_calls.leave_uncompiled(times.begin, times.after, draw, calls_too=True)
        times.compiling = module_calls.compiling()
        self._modules.append((module_calls.ModuleCalls(module, calls), layers))
        return self

    def __call__(self, function: F) -> F:
        """Return the function with a timer around it; generators are timed to their end."""
        labels = {"function": getattr(function, "__qualname__", type(function).__name__)}
        timed: Any
        if takes_time(function):
            timed = timed_stream(function, lambda: self._sampled_timing(labels))
        else:
            calls, _, _ = self.call_meter(labels)
            timed = calls.wrap(function)
        return cast(F, functools.wraps(function)(timed))

    def time(self, series: str = LATENCY, **labels: str) -> Timing:
        """Return a context manager that times its block as an event of a series."""
        self.wake()
        return Timing(self.series(series, labels=labels), self.series(FIRST_BYTE, labels=labels))

    def _sampled_timing(self, labels: dict[str, str]) -> Timing:
        timing = self.time(**labels)
        timing.timed = self.options.every == 1 or random.random() * self.options.every < 1  # noqa: S311
        return timing

    def add(self, series: str, value: float, unit: Unit = "s", **labels: str) -> None:
        """Add a value to a series, in its unit."""
        self.wake()
        self.series(series, unit, labels=labels).add(value)

    def fail(self, series: str, kind: str, **labels: str) -> None:
        """Count a failed event of a series."""
        self.wake()
        self.series(series, labels=labels).fail(kind)

    def wake(self) -> None:
        """Start the process's thread if it does not run, as in a forked process."""
        if not background.running:
            background.start()

    def series(
        self,
        name: str,
        unit: Unit = "s",
        *,
        labels: Mapping[str, str] | None = None,
        how: How = "measured",
        capped: bool = True,
    ) -> Series:
        """Return the series of a name and labels, for those who add often."""
        labels = labels or {}
        series = self._series.get(key_of(name, labels))
        if series is not None:
            return series
        texts = str(name), {str(label): str(text) for label, text in labels.items()}
        name, labels = short_text(name), _texts(labels)
        if unit not in get_args(Unit):
            error = MeasurementError(f"'{unit}' is not a unit.", id="monitor-unit")
            self._problems.add("units", error)
            unit = ""
        if capped:
            name, labels = place(name, unit, labels, self._series)
        if (name, labels) != texts:
            limits = f"There are {MOST_SERIES}, of names and labels of {LONGEST_TEXT} characters."
            self._problems.once("further series", limits)
        key = key_of(name, labels)
        if key not in self._series:
            labels, begin = {**self._labels, **labels}, self._begin
            window = Window(series=name, unit=unit, labels=labels, begin=begin, end=begin, how=how)
            window = self.options.with_buckets(window)
            # Without a lock: a signal's handler would wait for the thread that it interrupted.
            self._series.setdefault(key, Series(window, self._problems))
        return self._series[key]

    def call_meter(
        self,
        labels: dict[str, str],
        begin_layers: Callable[[], Callable[[], None] | None] | None = None,
    ) -> tuple[Meter, CallTimes, Callable[[], int]]:
        """Return the meter of a module or function, what times its special calls, and the draw."""
        times_all = self.options.every == 1
        latency = self.series(LATENCY, labels=labels)
        counts_all = self._count_tokens is not None and times_all
        period = 1 if counts_all else SIZES_EVERY if times_all else self.options.every
        times = CallTimes(
            latency,
            self.series(BATCH, "", labels=labels, how="counted"),
            self.series(TOKENS, "", labels=labels, how="counted"),
            self._problems,
            count_tokens=self._count_tokens,
            begin_layers=begin_layers,
            layers_share=min(period / self.options.layers, 1.0) if begin_layers else 0.0,
            sizes_share=min(period / SIZES_EVERY, 1.0),
            wake=self.wake,
        )
        draw = gaps(period)
        calls = Meter(latency.append, latency.fail, times.call, draw=draw, times_all=times_all)
        self._meters.append(calls)
        if not times_all:
            latency.events = calls.total
        times.batch.events = latency.succeeded
        if not counts_all:
            times.tokens.events = latency.succeeded
        return calls, times, draw

    def _layer_append(self, path: str) -> Callable[[float], object]:
        return self.series(LAYER, labels={"layer": path}).append

    def totals(self) -> tuple[Window, ...]:
        """Return what this process has recorded since it began, one window a series."""
        now, all_series = time.time(), list(self._series.values())
        return tuple(filter(_says_something, (series.state(now) for series in all_series)))

    def totals_of_processes(self) -> list[Window]:
        """Return what all its processes have recorded, ended ones too.

        Of other processes that is what they wrote last, `interval` seconds ago at most.
        """
        with self._problems.noting("folder"):
            if self._reader is None:
                self._reader = MonitorFolder(self.options.folder)
            # The file of a closed monitor may have become part of another one.
            own = None if self._closed and self._file else self.process_state(time.time())
            return self._reader.scraped(self.name, own)
        return list(self.totals())

    def tick(self, now: float) -> None:
        """Write the process's file, and close the window if it has ended; raises nothing."""
        with self._lock:
            if self._closed:
                return
            with self._problems.noting("memory readings"):
                for kind, value in memory_readings().items():
                    memory = self.series(MEMORY, "B", labels={"kind": kind}, capped=False)
                    memory.add(value)
                    memory.last = value
            for module, _ in self._modules:
                with self._problems.noting("timer of the module"):
                    module.attach_again()
            self._write(now)
            if not 0 < self._window_end - now <= self.options.window:  # or a clock was set back
                with self._problems.noting("windows"):
                    self.close_windows(now)

    def _write(self, now: float) -> None:
        is_first = self._file is None
        with self._problems.noting("folder"):
            if self._file is None:
                self._file = new_file(self.options.folder, self.name, self._process)
            self._file.write(msgspec.msgpack.encode(self.process_state(now)))
        if is_first and self._file is not None:
            with self._problems.noting("compaction"):
                compact(self._file.path, self.name, socket.gethostname())

    def process_state(self, now: float) -> ProcessState:
        """Return all that this process has recorded, as it is written."""
        return ProcessState(
            monitor=self.name,
            host=socket.gethostname(),
            process=self._process,
            begin=self._begin,
            end=now,
            interval=self.interval,
            windows=self.totals(),
            problems=self.status,
        )

    def close_windows(self, now: float) -> tuple[Window, ...]:
        """Close the current window of each series, hand them on, and return them."""
        with self._lock:
            closed = [series.close_window(now) for series in list(self._series.values())]
            windows = tuple(filter(_says_something, closed))
            self._window_end = self._next_window(now)
            if windows and self._deliveries:
                state = self.process_state(now)
                batch = Batch(self.name, state.identity, windows, state.windows)
                for delivery in self._deliveries:
                    delivery.send(batch)
        return windows

    def after_fork(self) -> None:
        """Forget what the parent recorded: the forked process has a file of its own."""
        inherited = self._file
        self._begin_process()
        if inherited is not None:
            inherited.close()
        for calls in self._meters:
            calls.restart()
        for _, layers in self._modules:
            if layers is not None:
                layers.after_fork()
        for series in self._series.values():
            series.restart(self._begin)
        for delivery in self._deliveries:
            delivery.after_fork()

    def flush(self) -> None:
        """Write the file and hand on the windows, in 5 s at most, before the process is ended."""
        self._flush(closes=False)

    def close(self) -> None:
        """Give the modules their own calls back, write the file and hand on the last windows.

        The file stays: what was recorded counts on.
        """
        self._flush(closes=True)

    def _flush(self, *, closes: bool) -> None:
        with self._lock:
            if self._closed:
                return
            for module, _ in self._modules if closes else ():
                with self._problems.noting("timer of the module"):
                    module.detach()
            now = time.time()
            with self._problems.noting("windows"):
                self.close_windows(now)
            self._write(now)
            self._closed = closes
        if closes:
            background.remove(self)
        for delivery in self._deliveries:
            delivery.end()
        deadline = time.monotonic() + LAST_WAIT
        for delivery in self._deliveries:
            delivery.join(max(deadline - time.monotonic(), 0.0))
        if closes and self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        """Return the monitor."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _texts(labels: Mapping[str, object]) -> dict[str, str]:
    return {short_text(label): short_text(text) for label, text in labels.items()}


def _says_something(window: Window) -> bool:
    """Return whether anything happened, and of numbers of things, whether any was counted."""
    return bool(window.count and (window.how != "counted" or window.histogram.count))
