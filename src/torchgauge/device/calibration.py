"""Each machine's A/A runs and past latency measurements, stored in the user's state folder.

The file is read and written whole: of two writers at once one entry may be lost, and the file is
never damaged.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from torchgauge.analyze.gate.stored import HostNoise
from torchgauge.analyze.latency.noise import LEAST_SESSIONS, between
from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.files import write_atomically
from torchgauge.folders import state_folder
from torchgauge.reading import RECORD, read_bytes
from torchgauge.records.doctor import NoiseRun
from torchgauge.records.latency.latency import PastRun
from torchgauge.records.record import Record

MOST_RUNS_OF_TARGET = 40  # of one target
MOST_TARGETS = 60  # of one machine
MOST_MACHINES = 8  # a home may be shared by many
MOST_MEDIANS = 64  # of one run


class Versioned(Protocol):
    """A record with a schema and a default for each other field."""

    @property
    def schema(self) -> str:
        """Its kind and version."""


K = TypeVar("K", bound=Versioned)


def read(file: Path, kind: type[K]) -> K:
    """Return the stored record; an empty one where the file is absent, damaged or outdated."""
    try:
        record = msgspec.json.decode(read_bytes(file, RECORD), type=kind)
    except (TorchgaugeError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return kind()
    return record if record.schema == kind().schema else kind()


MOST_RUNS = 10  # of one workload
MOST_WORKLOADS = 50


class Calibration(Record, frozen=True, kw_only=True):
    """The A/A runs of each machine by its fingerprint, the newest last."""

    schema: str = "torchgauge.calibration/1"
    machines: dict[str, tuple[NoiseRun, ...]] = msgspec.field(default_factory=dict)


def path() -> Path:
    """Return the file in the user's state.

    Without a home it is one that cannot be: nothing is kept, and nothing is left elsewhere.
    """
    return (state_folder() or Path(os.devnull)) / "calibration.json"


def runs(
    fingerprint: str, reference: NoiseRun | None = None, file: Path | None = None
) -> tuple[NoiseRun, ...]:
    """Return one machine's stored A/A runs; with `reference`, those of its workload and threads."""
    machine_runs = read(file or path(), Calibration).machines.get(fingerprint, ())
    if reference is None:
        return machine_runs
    key = (reference.workload, reference.threads)
    return tuple(run for run in machine_runs if (run.workload, run.threads) == key)


def keep(fingerprint: str, new_run: NoiseRun, file: Path | None = None) -> Path:
    """Add the run to those of its machine, ten at most of one workload, and return the file.

    Raises InputError `output-unwritable`.
    """
    file = file or path()
    machines = dict(read(file, Calibration).machines)
    machine_runs = (*machines.get(fingerprint, ()), new_run)
    workload_runs = [run for run in machine_runs if run.workload == new_run.workload]
    dropped = {id(run) for run in workload_runs[:-MOST_RUNS]}
    latest = list(dict.fromkeys(run.workload for run in reversed(machine_runs)))[:MOST_WORKLOADS]
    machines[fingerprint] = tuple(
        run for run in machine_runs if id(run) not in dropped and run.workload in latest
    )
    return write_atomically(file, msgspec.json.encode(Calibration(machines=machines)))


def between_sessions(fingerprint: str, workload: str, file: Path | None = None) -> HostNoise | None:
    """Return how the log medians of a workload spread between the sessions kept of a machine.

    None before three sessions were: fewer do not show it.
    """
    # A file that something else wrote may hold runs that have no spread.
    sessions = [
        run.medians
        for run in runs(fingerprint, file=file)
        if run.workload == workload and len(run.medians) > 1 and min(run.medians) > 0
    ]
    if len(sessions) < LEAST_SESSIONS:
        return None
    return HostNoise(between(sessions), len(sessions))


class PastRuns(Record, frozen=True, kw_only=True):
    """The measurements of each machine by its fingerprint, the newest last."""

    schema: str = "torchgauge.past_runs/1"
    machines: dict[str, tuple[PastRun, ...]] = msgspec.field(default_factory=dict)


def past_runs_path() -> Path:
    """Return the file, beside that of the calibration."""
    return path().with_name("past_runs.json")


def past_runs(
    fingerprint: str, target: str | None = None, file: Path | None = None
) -> tuple[PastRun, ...]:
    """Return the runs remembered of one machine, or those of one target on it, the newest last.

    None are remembered where the file is absent, unreadable, damaged or of another version.
    """
    machine_runs = read(file or past_runs_path(), PastRuns).machines.get(fingerprint, ())
    return (
        machine_runs
        if target is None
        else tuple(run for run in machine_runs if run.target == target)
    )


def remember(fingerprint: str, run: PastRun, file: Path | None = None) -> Path | None:
    """Add a run to those of its machine, and return the file; None where it cannot be written."""
    file = file or past_runs_path()
    machines = dict(read(file, PastRuns).machines)
    machine_runs = machines.pop(fingerprint, ())
    short = msgspec.structs.replace(
        run, medians=run.medians[-MOST_MEDIANS:], yardsticks=run.yardsticks[-MOST_MEDIANS:]
    )
    machines[fingerprint] = _newest((*machine_runs, short))
    latest = dict(list(machines.items())[-MOST_MACHINES:])
    try:
        return write_atomically(file, msgspec.json.encode(PastRuns(machines=latest)))
    except InputError:
        return None


def _newest(runs: tuple[PastRun, ...]) -> tuple[PastRun, ...]:
    """Return the last runs of each target, for the most recently run targets only."""
    by_target: dict[str, int] = {}
    newest_first = []
    for run in reversed(runs):
        count = by_target.get(run.target, 0)
        if count == MOST_RUNS_OF_TARGET or (count == 0 and len(by_target) == MOST_TARGETS):
            continue
        by_target[run.target] = count + 1
        newest_first.append(run)
    return tuple(reversed(newest_first))
