"""The arguments of `tg.monitor`, validated once."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from torchgauge.device.counters import resident
from torchgauge.errors import InputError
from torchgauge.records.monitoring.window import Window

if TYPE_CHECKING:
    from torchgauge.analyze.history.alerts import Rule
    from torchgauge.analyze.monitoring.window_alerts import WindowRule

LONGEST_NAME = 100
MOST_BUCKETS = 200


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
        buckets: Upper bounds of buckets of times, in seconds; empty: the usual ones.
        rules: What alerts are given by: their limits are bounds as well.
    """

    name: str
    every: int = 1
    layers: int = 1000
    interval: float = 1.0
    window: float = 60.0
    folder: str | Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    buckets: Sequence[float] = ()
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
        pairs = itertools.pairwise((0, *self.buckets, math.inf))
        if len(self.buckets) > MOST_BUCKETS or not all(low < high for low, high in pairs):
            raise _invalid(
                "buckets", f"{MOST_BUCKETS} numbers above 0 at most, each above the last"
            )

    def with_buckets(self, window: Window) -> Window:
        """Return the window with the upper bounds of its buckets; none for the usual ones."""
        if not self.buckets and not self.rules:
            return window
        from torchgauge.analyze.monitoring.buckets import with_limits

        buckets = tuple(map(float, self.buckets)) if window.unit == "s" else ()
        return with_limits(msgspec.structs.replace(window, buckets=buckets), self.rules)


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
