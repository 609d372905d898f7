"""One closed interval of one series of a monitor."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Annotated

import msgspec

from torchgauge.records.headline.figure import Unit
from torchgauge.records.monitoring.histogram import Count, Histogram
from torchgauge.records.record import How, Record

# The series that monitors of inference write; any other name is as good.
LATENCY = "latency"  # s, of a call of the model or function
REQUEST = "request"  # s, of an HTTP request at the server
QUEUE = "queue"  # s, before the server took a request, where that is reported
FIRST_BYTE = "first_byte"  # s, until a response or a stream began
LAYER = "layer"  # s, with the label `layer`: of calls whose layers were timed
BATCH = "batch"  # samples of a call
TOKENS = "tokens"  # tokens of a call or a request
MEMORY = "memory"  # B, with the label `kind`: readings
UNREADABLE = "unreadable_files"  # of the folder: their counts are missing from totals

Key = tuple[str, tuple[tuple[str, str], ...]]


class Window(Record, frozen=True, kw_only=True):
    """What one series recorded from `begin` to `end`, in one process or merged over several.

    Attributes:
        series: What the values are: "latency", "queue", "tokens", "batch", "memory", "layer", …
        unit: The unit of the values: "s", "B", or "" for numbers of things.
        labels: What tells this series from others of its name; `monitor` is the monitor's name,
            `process` the process in windows that are not merged.
        begin: Seconds since 1970.
        end: Seconds since 1970.
        count: Events, exact: calls, requests or steps, with the failed and the untimed ones.
        histogram: The values of the events that were measured and did not fail.
        errors: Events that failed, by kind (the exception's class, or "http 500"), exact.
        last: The last value of readings, such as memory; None of events.
        how: Whether the values are measured or counted.
        buckets: Upper bounds that a page of metrics shows, ascending; empty: the usual ones.
    """

    series: str
    unit: Unit = "s"
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    begin: float
    end: float
    count: Count = 0
    histogram: Histogram = msgspec.field(default_factory=Histogram)
    errors: dict[str, Annotated[int, msgspec.Meta(ge=0)]] = msgspec.field(default_factory=dict)
    last: float | None = None
    how: How = "measured"
    buckets: tuple[Annotated[float, msgspec.Meta(gt=0)], ...] = ()

    @property
    def key(self) -> Key:
        """What windows of the same series have in common: its name and labels."""
        return self.series, tuple(sorted(self.labels.items()))

    @property
    def rate(self) -> float | None:
        """Events per second; None of an empty interval."""
        return self.count / (self.end - self.begin) if self.end > self.begin else None

    @property
    def failed(self) -> int:
        """Events that failed."""
        return sum(self.errors.values())

    @property
    def error_share(self) -> float | None:
        """Share of the events that failed; None without events."""
        return self.failed / self.count if self.count else None

    @property
    def total(self) -> float | None:
        """Sum of the values over all events that did not fail: exact if all were measured.

        Else their mean times the number of events (estimated); None if none was measured.
        """
        measured, succeeded = self.histogram.count, self.count - self.failed
        if not measured:
            return None
        return self.histogram.sum * max(succeeded / measured, 1.0)

    def without(self, *names: str) -> Window:
        """Return the window without some labels, to merge it with others that differ in these."""
        labels = {name: value for name, value in self.labels.items() if name not in names}
        return msgspec.structs.replace(self, labels=labels)

    def includes(self, earlier: Window) -> bool:
        """Whether all events of another window of the series are among this one's."""
        counters = [
            Counter(dict(window.histogram.buckets()) | window.errors) for window in (earlier, self)
        ]
        return (
            counters[0] <= counters[1]
            and earlier.count <= self.count
            and earlier.histogram.zero_count <= self.histogram.zero_count
        )

    def since(self, earlier: Window) -> Window:
        """Return what was added to `earlier`, a state of the same growing window."""
        errors = Counter(self.errors)
        errors.subtract(earlier.errors)
        return msgspec.structs.replace(
            self,
            begin=min(earlier.end, self.end),  # of a clock that was set back
            count=self.count - earlier.count,
            histogram=self.histogram.since(earlier.histogram),
            errors={kind: number for kind, number in errors.items() if number},
        )


def merged(windows: Iterable[Window]) -> list[Window]:
    """Return one window for each series, from the first begin to the last end, in order of keys."""
    by_key: dict[Key, list[Window]] = {}
    for window in windows:
        by_key.setdefault(window.key, []).append(window)
    return [_sum(by_key[key]) for key in sorted(by_key)]


def _sum(windows: list[Window]) -> Window:
    histogram, errors = Histogram(), Counter[str]()
    for window in windows:
        histogram += window.histogram
        errors.update(window.errors)
    return msgspec.structs.replace(
        max(windows, key=lambda window: window.end),
        begin=min(window.begin for window in windows),
        end=max(window.end for window in windows),
        count=sum(window.count for window in windows),
        # Rounded once, so that it does not depend on the order: counters never decrease.
        histogram=msgspec.structs.replace(
            histogram, sum=math.fsum(window.histogram.sum for window in windows)
        ),
        errors=dict(errors),
    )


SCHEMA = "torchgauge.monitor/1"


class Problem(Record, frozen=True, kw_only=True):
    """One thing that fails in a monitor, while the rest goes on.

    Attributes:
        part: What failed, such as "folder", "history", "otlp" or "layers".
        message: The last error.
        times: How often it failed.
        last: When it last failed, in seconds since 1970.
        solved: Whether it has worked since.
    """

    part: str
    message: str
    times: int
    last: float
    solved: bool = False


class ProcessState(Record, frozen=True, kw_only=True):
    """What a monitor recorded in one process.

    Attributes:
        monitor: Its name.
        host: The machine's name.
        process: The number of the process.
        begin: When it began, in seconds since 1970.
        end: When this was written.
        interval: Seconds between two writes.
        windows: Everything since `begin`, one window a series.
        problems: What failed.
        alive: Whether the process is running, where it can be determined; set by the reader.
        replaces: Names of files that this one stands for, of ended processes.
    """

    schema: str = SCHEMA
    monitor: str
    host: str
    process: int
    begin: float
    end: float
    interval: float = 1.0
    windows: tuple[Window, ...] = ()
    problems: tuple[Problem, ...] = ()
    alive: bool | None = None
    replaces: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """What tells the process from others, those with its number before or after it too."""
        return f"{self.host}:{self.process}:{self.begin:.3f}"
