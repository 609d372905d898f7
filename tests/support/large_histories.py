"""Histories of many runs, made by SQL in seconds: the truth of each figure is known."""

import datetime
import hashlib
import math
import uuid
from pathlib import Path

import msgspec
from tests.support import history_runs, pages

from torchgauge.history.content import entry, packed
from torchgauge.history.store import Store, _row
from torchgauge.history.tables import metrics, runs, yardsticks
from torchgauge.records.run import Facts

BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
BATCH = 5_000
STEP_RUNS = 15  # runs at the new level


def value(target: int, number: int) -> float:
    """Return the latency of a run in s before the step: 10 ms, 1 ms more a target, noise."""
    noise = math.sin(12.9898 * number + 78.233 * target) * 43758.5453 % 1.0
    return (0.010 + 0.001 * target) * (0.99 + 0.02 * noise)


def fill(file: Path, *, targets: int, runs_each: int, names=None, step: float = 0.08) -> None:
    """Make a history of targets with so many runs each, one an hour, the targets in turn.

    Of every third target with 100 runs or more the newest 15 are slower by `step`.
    """
    with Store.open(str(file)) as store:
        engine = store._engine
        made = [
            entry(
                msgspec.structs.replace(
                    history_runs.profile(target=f"models/net{number}.py:make"),
                    tree=pages.chain(60).tree,
                ),
                Facts(commit="c", branch="main", message=f"Change number {number}"),
            )
            for number in range(targets)
        ]
        rows = []
        for number, one in enumerate(made):
            row = _row(one) | {"profile": packed(one.profile)}
            if names:
                row["target"] = names[number % len(names)]
            rows.append(row)
        total = targets * runs_each
        for start in range(0, total, BATCH):
            batch, figures, work = [], [], []
            for at in range(start, min(start + BATCH, total)):
                target, number = at % targets, at // targets
                batch.append(
                    rows[target]
                    | {
                        "id": at + 1,
                        "uuid": str(uuid.UUID(int=at + 1)),
                        "digest": f"d{at}",
                        "created": (
                            BEGIN + datetime.timedelta(hours=number, seconds=target)
                        ).isoformat(timespec="microseconds"),
                        "commit": hashlib.sha1(str(at).encode()).hexdigest(),
                    }
                )
                latency = value(target, number)
                if target % 3 == 0 and runs_each >= 100 and number >= runs_each - STEP_RUNS:
                    latency *= 1 + step
                measured = {"run": at + 1, "how": "measured", "scope": None}
                figures += [
                    measured
                    | {
                        "name": "latency_median",
                        "unit": "s",
                        "value": latency,
                        "low": 0.99 * latency,
                        "high": 1.01 * latency,
                    },
                    measured
                    | {
                        "name": "memory_peak",
                        "unit": "B",
                        "value": 1e8 * (target + 1),
                        "low": None,
                        "high": None,
                    },
                    measured
                    | {
                        "name": "parameters",
                        "unit": "",
                        "how": "counted",
                        "value": 1e6 * (target + 1),
                        "low": None,
                        "high": None,
                    },
                ]
                work.append(
                    {"run": at + 1, "kind": "matmul", "seconds": 0.001 * (1 + 0.01 * math.sin(at))}
                )
            with engine.begin() as connection:
                connection.execute(runs.insert(), batch)
                connection.execute(metrics.insert(), figures)
                connection.execute(yardsticks.insert(), work)
