"""The arguments of `tg.monitor`, validated once."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchgauge.device.counters import resident
from torchgauge.errors import InputError
from torchgauge.records.headline.figure import Unit
from torchgauge.records.monitoring.window import Window

if TYPE_CHECKING:
    from torchgauge.analyze.history.alerts import Rule
    from torchgauge.analyze.monitoring.window_alerts import WindowRule

LONGEST_NAME = 100
MOST_BUCKETS = 200
ALL_TIMES = ""  # in place of a series: every series of seconds that is not named itself


@dataclass(frozen=True, kw_only=True)
class MonitorOptions:
    """How to monitor.

    Attributes:
        name: The monitor's name, a label of all that it records.
        every: One call in so many is timed, drawn at random; all are counted.
        layers: One call in so many has its layers timed; 0: none.
        interval: Seconds until what was recorded is in the process's file.
        window: Seconds of a window.
        folder: Where processes leave their files; None: the usual folder.
        labels: Further labels of all that it records.
        buckets: Upper bounds of buckets by series, or of `ALL_TIMES`; else the usual ones.
        rules: What alerts are given by: their limits are bounds as well.
    """

    name: str
    every: int = 1
    layers: int = 1000
    interval: float = 1.0
    window: float = 60.0
    folder: str | Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    buckets: Mapping[str, Sequence[float]] = field(default_factory=dict)
    rules: Sequence[Rule | WindowRule] = ()

    def __post_init__(self) -> None:
        """Raise InputError `monitor-option` for what cannot be."""
        if not 0 < len(self.name) <= LONGEST_NAME or not self.name.isprintable():
            raise _invalid("name", f"1 to {LONGEST_NAME} printable characters")
        if not isinstance(self.every, int) or self.every < 1:
            raise _invalid("every", "a whole number, at least 1")
        if not isinstance(self.layers, int) or self.layers < 0:
            raise _invalid("layers", "a whole number, 0 for none")
        if not 0.01 <= self.interval <= 3600:
            raise _invalid("interval", "0.01 to 3600 seconds")
        if not (math.isfinite(self.window) and self.window >= self.interval):
            raise _invalid("window", "a number of seconds, at least the interval's")
        if not all(map(_are_bounds, self.buckets.values())):
            raise _invalid("buckets", f"1 to {MOST_BUCKETS} numbers above 0, each above the last")

    def bounds(self, series: str, unit: Unit, labels: Mapping[str, str]) -> tuple[float, ...]:
        """Return the upper bounds of a series' buckets; none for the usual ones."""
        bounds = self.buckets.get(series, self.buckets.get(ALL_TIMES, ()) if unit == "s" else ())
        if not bounds and not self.rules:
            return ()
        from torchgauge.analyze.monitoring.buckets import bounds_of

        window = Window(series=series, unit=unit, labels=dict(labels), begin=0, end=0,
                        buckets=tuple(map(float, bounds)))  # fmt: skip
        return bounds_of(window, self.rules)


def _are_bounds(bounds: Sequence[float]) -> bool:
    ascends = all(lower < upper for lower, upper in itertools.pairwise((0, *bounds, math.inf)))
    return ascends and 0 < len(bounds) <= MOST_BUCKETS


def _invalid(name: str, valid: str) -> InputError:
    return InputError(
        f"{name}= of the monitor is not valid.",
        id="monitor-option",
        cause=f"It must be {valid}.",
        remedy="See docs/monitor.md.",
    )


def memory_readings() -> dict[str, float]:
    """Return bytes by kind: the resident set, and what torch's tensors take on each GPU in use.

    A GPU that the program does not use is not started for it.
    """
    own = resident()
    readings = {} if own is None else {"resident": float(own)}
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            if allocated := torch.cuda.memory_allocated(index):
                readings[f"cuda:{index}"] = float(allocated)
    return readings
