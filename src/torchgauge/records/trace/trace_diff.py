"""Two recorded traces side by side: what got slower, faster, appeared or vanished."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.comparison import Difference, Place
from torchgauge.records.exported import Exported
from torchgauge.records.record import MeasurementWarning, Record
from torchgauge.records.timeline.tree import Timeline
from torchgauge.records.trace.breakdown import Part
from torchgauge.records.trace.host_delay import Cause

SCHEMA = "torchgauge.trace_diff/1"


class TraceSide(Record, frozen=True, kw_only=True):
    """One of the two traces; `steps` are those that were marked in it, by which times are divided.

    Times of both are of the whole window, and `steps` is 1, where one of them marks none.
    `timeline` has the events for the page's timelines, if they were requested; it is saved only
    where it is small.
    """

    label: str
    device: str
    rank: int | None
    world: int | None
    steps: int
    window: float
    timeline: Timeline | None = None


class PartChange(Record, frozen=True, kw_only=True):
    """A part of the devices' time on both sides, in seconds of a step."""

    part: Part
    baseline: float
    current: float

    @property
    def contribution(self) -> float:
        """Seconds that it adds to the change of the window."""
        return self.current - self.baseline


class DelayChange(Record, frozen=True, kw_only=True):
    """What delays of the host of one cause cost on both sides, in seconds of a step.

    Where both files have device work the time in which a device waited for the host because of
    them, a part of "idle: host"; else the host's time. The names are those of the costliest, ""
    where a side has none.
    """

    cause: Cause
    baseline: float
    current: float
    baseline_name: str = ""
    current_name: str = ""

    @property
    def contribution(self) -> float:
        """Seconds that it adds to a step."""
        return self.current - self.baseline


class Changes(Record, frozen=True, kw_only=True):
    """Places of one kind, by what they contribute to `total`, the change of all of them in seconds.

    `remainder` is what is in no place shown: the contributions and it add up to `total`.
    """

    kind: Literal["layers", "operators", "shapes", "kernels"]
    places: tuple[Place, ...]
    total: float
    remainder: float


class TraceDiff(Exported, frozen=True, kw_only=True):
    """Two traces side by side, in seconds of a step on the devices, or on the host without any.

    `window` is the change of the devices' window, to which the `parts` add up. `delays` are what
    keeps the hosts from launching work, what changed most first. A trace is one
    recording: nothing here is tested, and what differs by chance is not told from what changed.
    """

    schema: str = SCHEMA
    baseline: TraceSide
    current: TraceSide
    differences: tuple[Difference, ...] = ()
    window: float = 0.0
    parts: tuple[PartChange, ...] = ()
    delays: tuple[DelayChange, ...] = ()
    tables: tuple[Changes, ...] = ()
    warnings: tuple[MeasurementWarning, ...] = ()

    @property
    def timing_comparable(self) -> bool:
        """True where nothing differs that decides how long the same work takes."""
        return not any(difference.timing for difference in self.differences)
