"""Which steps of a loop are recorded: some left out, some to warm up, some recorded, again."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator

from torchgauge.errors import InputError
from torchgauge.records.timeline.loop import Phase

RECORDING: tuple[Phase, ...] = ("warmup", "record")
STAMPED = 10
# Steps before the first are without the clocks, so many of them, so many with them again, by turns.
SETTLED, PAUSED, CLOCKED, TURNS = 20, 4, 6, 12


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Which steps of a loop are recorded. Raises InputError `schedule-invalid`.

    The first warm-up step is recorded by itself: it says what a step needs, and with that how many
    fit into the memory.

    Attributes:
        skip: Steps at the beginning, without a profiler.
        warmup: Steps under the profiler that are not read.
        record: Steps that are recorded; None takes as many as fit.
        repeat: How often all that is done.
    """

    skip: int = 2
    warmup: int = 2
    record: int | None = 5
    repeat: int = 1

    def __post_init__(self) -> None:
        minimums = {"skip": 0, "warmup": 1, "record": 1, "repeat": 1}
        for name, minimum in minimums.items():
            value = getattr(self, name)
            if name == "record" and value is None:
                continue
            if type(value) is not int or value < minimum:
                raise InputError(
                    f"A schedule's {name} is a whole number of {minimum} or more, not {value!r}.",
                    id="schedule-invalid",
                    remedy="For example tg.Schedule(skip=2, warmup=2, record=5, repeat=1).",
                )
        if self.repeat > 1 and not self.skip:
            raise InputError(
                "A schedule that repeats skips at least one step in between.",
                id="schedule-invalid",
                cause="Two recordings without a step between them would be one.",
                remedy="Use skip=1, or repeat=1 with more steps to record.",
            )

    @property
    def requested_steps(self) -> int | None:
        """How many steps are to be recorded in all; None: as many as fit."""
        return None if self.record is None else self.record * self.repeat

    @property
    def length(self) -> int | None:
        """After how many steps all is recorded and stamped, if it fits; None: of no fixed number.

        Beside the steps of each cycle these are one that is recorded by itself, one before and one
        after the recordings.
        """
        if self.record is None:
            return None
        return self.repeat * (self.skip + self.warmup + self.record) + 2 + STAMPED

    def phases(self, fits: Callable[[], int]) -> Iterator[Phase]:
        """Yield what each step of the loop is; `fits`: how many steps one recording can hold.

        Module calls are wrapped one step before a recording, so that a compiled model compiles
        itself anew there and not in it. Between two recordings is a step without: a span that is
        open when one ends, as the optimizer's is, must end before the next begins, or torch writes
        into what it has freed. Behind them are a step in which the stamps' wrapper settles, stamped
        ones, and of a long loop some by turns without and with the clocks.
        """
        for cycle in range(self.repeat):
            yield from _times("bare", self.skip - 1)
            yield from _times("ready" if self.skip > 1 else "bare", min(self.skip, 1))
            warmup = self.warmup
            if cycle == 0:
                yield "estimate"
                yield "ready"
                warmup -= 1
            steps = fits() - warmup
            if self.record is not None:
                steps = min(steps, self.record)
            if steps < 1:
                break
            yield from _times("warmup", warmup)
            yield from _times("record", steps)
        yield "settle"
        yield from _times("stamp", STAMPED)
        yield from _times("bare", SETTLED)
        for _ in range(TURNS):
            yield from _times("paused", PAUSED)
            yield from _times("bare", CLOCKED)
        yield from itertools.repeat("bare")

    def watched(self) -> Iterator[Phase]:
        """Yield what each step is where memory is watched: not of the first, which makes states."""
        yield from _times("bare", max(self.skip, 1))
        steps = self.requested_steps
        yield from itertools.repeat("memory") if steps is None else _times("memory", steps)
        yield from itertools.repeat("bare")


def _times(phase: Phase, count: int) -> Iterator[Phase]:
    return itertools.repeat(phase, max(count, 0))
