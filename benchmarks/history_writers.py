"""Eight processes write 1,000 runs each into one history, and writers are killed meanwhile.

For SQLite and, where its programs are here, for a private PostgreSQL: runs lost and doubled, how
long one write took (median, 99 %, longest) beside the stated bound, and what a store holds after
writers were killed at random moments. `python benchmarks/history_writers.py` takes some minutes.
"""

from __future__ import annotations

import argparse
import datetime
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec
from benchmarks.private_postgres import missing, server
from tests.support import records

from torchgauge.history.content import entry
from torchgauge.history.retention import LONGEST_WAIT
from torchgauge.history.store import Store
from torchgauge.records.profile import Profile
from torchgauge.records.run import Facts
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree

BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
LAYERS = 20


def record(writer: int, number: int) -> Profile:
    """Return a small record like no other."""
    when = BEGIN + datetime.timedelta(minutes=number, microseconds=writer)
    rows = [TreeRow(name="Net", kind="model", parent=-1, calls=1, host=number)]
    rows += [
        TreeRow(name=str(i), kind="layer", parent=0, calls=1, path=f"body.{i}", host=1000 + i)
        for i in range(LAYERS)
    ]
    environment = msgspec.structs.replace(records.environment(), created=when.isoformat())
    return records.profile(environment=environment, tree=Tree(rows=tuple(rows)))


def write(location: str, writer: int, runs: int) -> None:
    """Add runs, and say of each on standard output how long it took, when it was saved."""
    with Store.open(location) as store:
        for number in range(runs):
            made = entry(record(writer, number), Facts(labels={"writer": str(writer)}))
            begun = time.perf_counter()
            uuid, _ = store.add(made)
            print(f"{uuid} {time.perf_counter() - begun}", flush=True)


def start(location: str, writer: int, runs: int) -> subprocess.Popen[str]:
    """Return a process that writes."""
    command = [sys.executable, __file__, "--write", location, str(writer), str(runs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def together(location: str, writers: int, runs: int) -> tuple[list[str], list[float]]:
    """Return the uuids that all writers were told are saved, and the seconds each took."""
    started = [start(location, writer, runs) for writer in range(writers)]
    said = [writer.communicate()[0] for writer in started]
    if any(writer.returncode for writer in started):
        sys.exit("a writer failed")
    lines = [line.split() for text in said for line in text.splitlines()]
    return [uuid for uuid, _ in lines], [float(seconds) for _, seconds in lines]


def killed(location: str, kills: int, seed: int = 5) -> tuple[list[str], int]:
    """Kill writers at random moments; return what they said is saved, and how many had begun."""
    moments = random.Random(seed)
    said: list[str] = []
    for number in range(kills):
        with start(location, 1000 + number, 10**6) as writer:
            assert writer.stdout is not None
            said.append(writer.stdout.readline().split()[0])
            time.sleep(moments.uniform(0, 0.1))
            writer.send_signal(signal.SIGKILL)
            # The last line may be cut off where the process was.
            whole = [line for line in writer.stdout.readlines() if line.endswith("\n")]
        said += [line.split()[0] for line in whole]
    return said, kills


def check(location: str, said: list[str]) -> dict[str, int]:
    """Return what is wrong with the store beside what its writers were told; all should be 0."""
    with Store.open(location, create=False) as store:
        runs = store.runs()
        held = [run.uuid for run in runs]
        digests = {run.digest for run in runs}
        broken = 0
        for run in runs:
            profile = store.profile(run.uuid)
            broken += profile.tree is None or len(profile.tree.rows) != LAYERS + 1
        figures = store.read(_incomplete)
    lost = len(set(said) - set(held))
    doubled = len(held) - len(digests)
    return {"lost": lost, "doubled": doubled, "unreadable": broken, "incomplete": figures}


def _incomplete(connection) -> int:
    """Return how many runs have not all their figures, layers and labels."""
    from sqlalchemy import func, select

    from torchgauge.history.tables import labels, layers, metrics, runs

    parts = []
    for table in (labels, metrics, layers):
        counted = select(func.count()).where(table.c.run == runs.c.id)
        parts.append(counted.scalar_subquery())
    counts = [tuple(row[1:]) for row in connection.execute(select(runs.c.id, *parts))]
    return sum(row != max(counts) for row in counts)


def measure(name: str, location: str, other: str, options: argparse.Namespace) -> None:
    """Print the figures of one database."""
    begun = time.perf_counter()
    said, seconds = together(location, options.writers, options.runs)
    wall = time.perf_counter() - begun
    found = check(location, said)
    with Store.open(location, create=False) as store:
        held = len(store.runs())
    quantiles = statistics.quantiles(seconds, n=100)
    print(f"{name}: {options.writers} processes, {options.runs} runs each")
    print(f"  {held} runs held of {options.writers * options.runs}; {found}")
    print(f"  one write: median {1e3 * statistics.median(seconds):.1f} ms, "
          f"99 % within {1e3 * quantiles[98]:.0f} ms, longest {max(seconds):.2f} s "
          f"(bound {LONGEST_WAIT:.0f} s)")  # fmt: skip
    print(f"  {held / wall:.0f} runs per second together, {wall:.0f} s")
    said, kills = killed(other, options.kills)
    print(f"  {kills} writers killed, {len(said)} runs said to be saved: {check(other, said)}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--write", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write(options.write[0], int(options.write[1]), int(options.write[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        measure("SQLite", f"{folder}/one.db", f"{folder}/killed.db", options)
    if why := missing():
        print(f"PostgreSQL: left out ({why})")
        return
    with server() as one, server() as other:
        measure("PostgreSQL", one, other, options)


if __name__ == "__main__":
    main()
