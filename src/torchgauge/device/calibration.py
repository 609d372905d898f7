"""What is remembered of each machine: its A/A runs, in one file of the user's."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from torchgauge.analyze.noise import LEAST_SESSIONS, between
from torchgauge.analyze.stored import HostNoise
from torchgauge.device import state_file
from torchgauge.files import write_atomically
from torchgauge.folders import typed, users_folder
from torchgauge.model.doctor import NoiseRun
from torchgauge.model.record import Record

VARIABLE = "TORCHGAUGE_STATE"
MOST_RUNS = 10  # of one workload
MOST_WORKLOADS = 50


class Calibration(Record, frozen=True, kw_only=True):
    """The A/A runs of each machine by its fingerprint, the newest last."""

    schema: str = "torchgauge.calibration/1"
    machines: dict[str, tuple[NoiseRun, ...]] = msgspec.field(default_factory=dict)


def path() -> Path:
    """Return the file: below TORCHGAUGE_STATE, XDG_STATE_HOME/torchgauge or ~/.local/state.

    Without a home it is one that cannot be: nothing is kept, and nothing is left elsewhere.
    """
    if told := os.environ.get(VARIABLE):
        return typed(told) / "calibration.json"
    folder = users_folder("XDG_STATE_HOME", ".local", "state") or Path(os.devnull)
    return folder / "torchgauge" / "calibration.json"


def runs(
    fingerprint: str, alike: NoiseRun | None = None, file: Path | None = None
) -> tuple[NoiseRun, ...]:
    """Return the A/A runs kept of one machine; with `alike`, those of its work and threads."""
    kept = state_file.read(file or path(), Calibration).machines.get(fingerprint, ())
    if alike is None:
        return kept
    wanted = (alike.workload, alike.threads)
    return tuple(run for run in kept if (run.workload, run.threads) == wanted)


def keep(fingerprint: str, run: NoiseRun, file: Path | None = None) -> Path:
    """Add the run to those of its machine, ten at most of one workload, and return the file.

    Raises InputError `output-unwritable`.
    """
    file = file or path()
    machines = dict(state_file.read(file, Calibration).machines)
    kept = (*machines.get(fingerprint, ()), run)
    alike = [one for one in kept if one.workload == run.workload]
    dropped = {id(one) for one in alike[:-MOST_RUNS]}
    latest = list(dict.fromkeys(one.workload for one in reversed(kept)))[:MOST_WORKLOADS]
    machines[fingerprint] = tuple(
        one for one in kept if id(one) not in dropped and one.workload in latest
    )
    return write_atomically(file, msgspec.json.encode(Calibration(machines=machines)))


def between_sessions(fingerprint: str, workload: str, file: Path | None = None) -> HostNoise | None:
    """Return how the log medians of a workload spread between the sessions kept of a machine.

    None before three sessions were: fewer do not show it.
    """
    sessions = [one.medians for one in runs(fingerprint, file=file) if one.workload == workload]
    if len(sessions) < LEAST_SESSIONS:
        return None
    return HostNoise(between(sessions), len(sessions))
