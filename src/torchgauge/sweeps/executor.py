"""Executors of jobs: fresh processes here, one after the other, or a cluster.

The same jobs on a Ray cluster: one cell for each accelerator, or each group of cores.

A Ray task starts the same fresh process as here, so that a cell that crashes ends that process and
is a result; a worker that is lost is Ray's to replace, and its job is done again elsewhere.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from typing import Any, Protocol

import cloudpickle
import msgspec

from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.imports import required
from torchgauge.records.finding import Failure
from torchgauge.records.sweep import Cell
from torchgauge.sweeps.job import Done, Entry, Job, perform

RETRIES = 3


class RayCluster:
    """Jobs as Ray tasks on the cluster that `RAY_ADDRESS` names, else on one of this machine's own.

    A cell on a GPU takes one; on the CPU it takes its threads, or a whole node where it does not
    say how many. Raises MissingExtraError.
    """

    name = "ray"
    is_local = False

    def __init__(self) -> None:
        ray = required("ray", "ray", "A sweep on a Ray cluster")
        self._ray: Any = ray
        self._owns_cluster = not ray.is_initialized()
        if self._owns_cluster:
            ray.init(log_to_driver=False, include_dashboard=False)
        self._nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self._jobs: dict[Any, Job] = {}
        self._task = ray.remote(work)
        self.slots = 1

    def submit(self, job: Job) -> None:
        """Hand the job to Ray, with what it needs."""
        needs = self._needs(job)
        self.slots = max(sum(_fitting(node, needs) for node in self._nodes), 1)
        task = self._task.options(num_cpus=needs["CPU"], num_gpus=needs["GPU"], max_retries=RETRIES)
        reference = task.remote(cloudpickle.dumps(job), str(os.getcwd()), sys.path)  # noqa: PTH109
        self._jobs[reference] = job

    def _needs(self, job: Job) -> dict[str, int]:
        device = job.source.device or "cpu"
        gpus = any(node.get("GPU") for node in self._nodes)
        if device.startswith("cuda") or (device == "auto" and gpus):
            return {"CPU": job.settings.threads or 1, "GPU": 1}
        smallest_node = min((int(node.get("CPU", 1)) for node in self._nodes), default=1)
        return {"CPU": job.settings.threads or max(smallest_node, 1), "GPU": 0}

    def next(self) -> Done:
        """Wait for the job that is done first."""
        (ready, *_), _ = self._ray.wait(list(self._jobs), num_returns=1)
        job = self._jobs.pop(ready)
        try:
            return job, answer(self._ray.get(ready))
        except self._ray.exceptions.RayError as error:
            return job, _lost(job, error)

    def close(self) -> None:
        """Cancel what is under way, and shut down what this sweep started."""
        for reference in self._jobs:
            self._ray.cancel(reference, force=True)
        self._jobs.clear()
        if self._owns_cluster:
            self._ray.shutdown()


def work(job: bytes, folder: str, path: list[str]) -> bytes:
    """Do a job in a worker; what comes of it travels as JSON."""
    if os.path.isdir(folder):  # noqa: PTH112 - on another machine it may not be there
        os.chdir(folder)
    sys.path.extend(entry for entry in path if entry not in sys.path)
    try:
        return msgspec.json.encode(perform(cloudpickle.loads(job)))
    except TorchgaugeError as error:
        return msgspec.json.encode(Failure.from_error(error))


def answer(data: bytes) -> Entry | TorchgaugeError:
    """Return what a worker's text says: an entry, or the error that the target ended with."""
    try:
        return msgspec.json.decode(data, type=Entry)
    except msgspec.ValidationError:
        return msgspec.json.decode(data, type=Failure).error()


def _fitting(node: dict[str, float], needs: dict[str, int]) -> int:
    return min(int(node.get(kind, 0) // number) for kind, number in needs.items() if number)


def _lost(job: Job, error: Exception) -> Entry:
    first = next(iter(str(error).splitlines()), type(error).__name__)
    cell = Cell(
        settings=job.settings,
        status="failed",
        reason=f"Its worker was lost {RETRIES + 1} times, or Ray failed: {first}",
        error="worker-lost",
    )
    return Entry(number=job.number, cell=cell)


NAMES = ("process", "ray")


class Executor(Protocol):
    """Takes up to `slots` jobs at once; `name` is for the record, `is_local`: on this machine."""

    name: str
    is_local: bool

    @property
    def slots(self) -> int:
        """How many jobs may be under way."""

    def submit(self, job: Job) -> None:
        """Take a job."""

    def next(self) -> Done:
        """Wait for one of the jobs, and return it with what came of it.

        That is an error where the target itself cannot be used.
        """

    def close(self) -> None:
        """Give up what is under way."""


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
        return RayCluster()
    raise InputError(
        f"There is no executor '{name}'.",
        id="executor-unknown",
        cause="Executors are " + ", ".join(NAMES) + ".",
        remedy="Give one of them.",
    )
