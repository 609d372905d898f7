"""Where each undisturbed step of a loop went: the stepping thread's time, every moment once."""

from __future__ import annotations

from typing import Literal, get_args

from torchgauge.records.record import Record

StepKind = Literal[
    "loading", "forward", "backward", "optimizer", "waiting", "collecting", "outside"
]
STEP_KINDS: tuple[StepKind, ...] = get_args(StepKind)


class StepTimes(Record, frozen=True, kw_only=True):
    """Seconds of each step by kind, with no profiler attached; with `preempted` they are the step.

    What runs inside something else counts where it is itself: a collection during the forward pass
    is no part of that. On a GPU these are times of the host, which runs ahead of the device.

    Attributes:
        steps: The numbers of these steps in the loop, from 1; of a long loop every second, fourth,
            … step.
        loading: In the iterator of a torch DataLoader.
        forward: In the modules that the loop itself calls, losses with them.
        backward: In `backward()`, without the wait for gradients of other processes at its end.
        optimizer: In the optimizer's step.
        waiting: Waiting for other processes.
        collecting: In Python's garbage collection.
        outside: In the rest of the loop.
        preempted: In which the thread could have run and had no core, whatever it was doing. None
            where the system does not tell, and of short steps: it is in the other kinds then.
    """

    steps: tuple[int, ...]
    loading: tuple[float, ...]
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    optimizer: tuple[float, ...]
    waiting: tuple[float, ...]
    collecting: tuple[float, ...]
    outside: tuple[float, ...]
    preempted: tuple[float, ...] | None = None

    def seconds(self, kind: StepKind) -> tuple[float, ...]:
        """Return the seconds of one kind, by step."""
        times: tuple[float, ...] = getattr(self, kind)
        return times

    @property
    def running(self) -> tuple[float, ...]:
        """The seconds of each step without those in which the thread had no core."""
        return tuple(map(sum, zip(*map(self.seconds, STEP_KINDS), strict=True)))

    @property
    def durations(self) -> tuple[float, ...]:
        """The seconds of each step."""
        if self.preempted is None:
            return self.running
        return tuple(map(sum, zip(self.running, self.preempted, strict=True)))
