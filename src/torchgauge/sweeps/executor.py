"""Executors of jobs: fresh processes here, one after the other, or a cluster."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.sweeps.job import Done, Job, perform

NAMES = ("process", "ray")


class Executor(Protocol):
    """Takes up to `slots` jobs at once; `name` is for the record, `is_local`: on this machine."""

    name: str
    is_local: bool

    @property
    def slots(self) -> int:
        """How many jobs may be under way."""
        ...

    def submit(self, job: Job) -> None:
        """Take a job."""
        ...

    def next(self) -> Done:
        """Wait for one of the jobs, and return it with what came of it.

        That is an error where the target itself cannot be used.
        """
        ...

    def close(self) -> None:
        """Give up what is under way."""
        ...


class Processes:
    """One fresh process at a time: two would disturb each other."""

    name = "process"
    is_local = True
    slots = 1

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        """Take a job; it begins with `next`."""
        self._waiting.append(job)

    def next(self) -> Done:
        """Do the job. Raises KeyboardInterrupt."""
        job = self._waiting.popleft()
        try:
            return job, perform(job)
        except TorchgaugeError as error:
            return job, error

    def close(self) -> None:
        """Forget what has not begun; a process that runs ends with `next`."""
        self._waiting.clear()


def executor(name: str) -> Executor:
    """Return the executor of a name. Raises InputError `executor-unknown`, MissingExtraError."""
    if name == "process":
        return Processes()
    if name == "ray":
        from torchgauge.sweeps.ray_cluster import RayCluster

        return RayCluster()
    raise InputError(
        f"There is no executor '{name}'.",
        id="executor-unknown",
        cause="Executors are " + ", ".join(NAMES) + ".",
        remedy="Give one of them.",
    )
