"""What is remembered of a machine's latency measurements, in one file of the user's.

The file is read and written whole: of two writers at once one entry may be lost, and the file is
never damaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from torchgauge.device import calibration
from torchgauge.errors import InputError
from torchgauge.files import write_atomically
from torchgauge.model.past_run import PastRun
from torchgauge.model.record import Record

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
    known = _read(file or path()).get(fingerprint, ())
    return known if target is None else tuple(run for run in known if run.target == target)


def remember(fingerprint: str, run: PastRun, file: Path | None = None) -> Path | None:
    """Add a run to those of its machine, and return the file; None where it cannot be written."""
    file = file or path()
    machines = dict(_read(file))
    known = machines.pop(fingerprint, ())
    short = msgspec.structs.replace(
        run, medians=run.medians[-MOST_MEDIANS:], yardsticks=run.yardsticks[-MOST_MEDIANS:]
    )
    machines[fingerprint] = _newest((*known, short))
    latest = dict(list(machines.items())[-MOST_MACHINES:])
    try:
        return write_atomically(file, msgspec.json.encode(PastRuns(machines=latest)))
    except InputError:
        return None


def _newest(runs: tuple[PastRun, ...]) -> tuple[PastRun, ...]:
    """Return the last runs of each target, and those of the targets that were run last alone."""
    by_target: dict[str, int] = {}
    newest_first = []
    for run in reversed(runs):
        count = by_target.get(run.target, 0)
        if count == MOST_RUNS or (count == 0 and len(by_target) == MOST_TARGETS):
            continue
        by_target[run.target] = count + 1
        newest_first.append(run)
    return tuple(reversed(newest_first))


def _read(file: Path) -> Mapping[str, tuple[PastRun, ...]]:
    try:
        found = msgspec.json.decode(file.read_bytes(), type=PastRuns)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return found.machines if found.schema == PastRuns().schema else {}
