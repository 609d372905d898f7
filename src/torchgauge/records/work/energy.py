"""What a call takes of energy, by counter: the hardware's own, or unknown."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import How, Interval, MeasurementWarning, Record

EnergyPart = Literal["gpu", "package", "dram"]


class EnergyCounter(Record, frozen=True, kw_only=True):
    """One hardware counter: a GPU, a processor's package, or its memory.

    Attributes:
        joules: Joules of a call; None with the `reason`.
        idle_power: Watts before the calls, while the process slept.
        resolution: The smallest step that the counter was seen to make, in joules.
        period: Seconds from one step of the counter to the next.
        windows: Joules of each window of calls; None where the counter was reset in it.
        wraps: How often it began again at zero, which is part of the figures.
    """

    name: str
    part: EnergyPart
    joules: float | None = None
    idle_power: float | None = None
    resolution: float | None = None
    period: float | None = None
    windows: tuple[float | None, ...] = ()
    wraps: int = 0
    reason: str = ""


class Energy(Record, frozen=True, kw_only=True):
    """Energy of a call: the sum of the counters of what runs it, over windows of many calls.

    It is all that these parts of the machine took meanwhile, idle power and other programs with it.

    Attributes:
        joules: Joules of a call; None with the `reason`.
        interval: Its 95 % interval, over the windows, no narrower than the counters' steps.
        at_least: Whether a counter of the machine could not be read: it is more than so much.
        above_idle: Joules of a call less the idle power's over its time.
        power: Watts during the calls.
        per_sample: Joules of a sample; None if the inputs do not say how many they hold.
        per_token: Joules of a token, likewise.
        calls: Calls in all windows that count.
        duration: Seconds of these windows.
        window_times: Seconds of each window.
        window_calls: Calls in each window.
        counters: Each counter, those that could not be read too.
        reason: Why it is unknown.
    """

    joules: float | None = None
    interval: Interval | None = None
    at_least: bool = False
    above_idle: float | None = None
    power: float | None = None
    per_sample: float | None = None
    per_token: float | None = None
    calls: int = 0
    duration: float = 0.0
    window_times: tuple[float, ...] = ()
    window_calls: tuple[int, ...] = ()
    counters: tuple[EnergyCounter, ...] = ()
    reason: str = ""
    warnings: tuple[MeasurementWarning, ...] = ()
    how: How = "measured"

    @property
    def by_window(self) -> tuple[float, ...]:
        """Joules of a call in each window in which every counter that is read was read."""
        read = [counter.windows for counter in self.counters if counter.joules is not None]
        windows = zip(*read, strict=True)
        sums = [None if None in parts else sum(filter(None, parts)) for parts in windows]
        pairs = zip(sums, self.window_calls, strict=False)
        return tuple(joules / calls for joules, calls in pairs if joules is not None and calls)
