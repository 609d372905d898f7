"""Each machine's past latency measurements, stored in one file in the user's state folder.

The file is read and written whole: of two writers at once one entry may be lost, and the file is
never damaged.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from torchgauge.device import calibration
from torchgauge.device import calibration as state_file
from torchgauge.errors import InputError
from torchgauge.files import write_atomically
from torchgauge.records.latency.latency import PastRun
from torchgauge.records.record import Record

MOST_RUNS = 40  # of one target
MOST_TARGETS = 60  # of one machine
MOST_MACHINES = 8  # a home may be shared by many
MOST_MEDIANS = 64  # of one run


class PastRuns(Record, frozen=True, kw_only=True):
    """The measurements of each machine by its fingerprint, the newest last."""

    schema: str = "torchgauge.past_runs/1"
    machines: dict[str, tuple[PastRun, ...]] = msgspec.field(default_factory=dict)


def path() -> Path:
    """Return the file, beside that of the calibration."""
    return calibration.path().with_name("past_runs.json")


def past_runs(
    fingerprint: str, target: str | None = None, file: Path | None = None
) -> tuple[PastRun, ...]:
    """Return the runs remembered of one machine, or those of one target on it, the newest last.

    None are remembered where the file is absent, unreadable, damaged or of another version.
    """
    machine_runs = state_file.read(file or path(), PastRuns).machines.get(fingerprint, ())
    return (
        machine_runs
        if target is None
        else tuple(run for run in machine_runs if run.target == target)
    )


def remember(fingerprint: str, run: PastRun, file: Path | None = None) -> Path | None:
    """Add a run to those of its machine, and return the file; None where it cannot be written."""
    file = file or path()
    machines = dict(state_file.read(file, PastRuns).machines)
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
        if count == MOST_RUNS or (count == 0 and len(by_target) == MOST_TARGETS):
            continue
        by_target[run.target] = count + 1
        newest_first.append(run)
    return tuple(reversed(newest_first))
