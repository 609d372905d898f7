"""Cases of a reader worked through by a child process with limits, which is replaced when it falls.

The child is `tests/attack/batch_child.py`: it says a line for each case. What falls is a traceback,
a case that takes longer than `DEADLINE`, a child that dies, and memory beyond `MEMORY`, which ends
in a MemoryError.
"""

import collections
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# Seconds of one case: they take milliseconds, and the machine may do other work beside.
DEADLINE = 60.0
# Bytes that a child may take beyond what it has when all is imported. The largest file of a case is
# a few hundred kB; what readers may unpack to and hold of it, by their bounds, is less.
MEMORY = 2 << 30


class Fallen(NamedTuple):
    """A case and what became of it: `python -m tests.attack.batch_child READER CASE` shows it."""

    reader: str
    case: int
    what: str


class Outcome(NamedTuple):
    """How often which id came, or "result"; what fell; the most memory that a child took, bytes."""

    said: collections.Counter
    fallen: list[Fallen]
    peak: int


def attack(reader: str, cases: int, folder: Path, *, deadline: float = DEADLINE) -> Outcome:
    """Let a reader read so many cases in child processes; print and return what came of them."""
    said: collections.Counter = collections.Counter()
    fallen: list[Fallen] = []
    peak = case = 0
    while case < cases:
        child = _Child(reader, case, cases, folder)
        for line in child.lines(deadline):
            peak = max(peak, line["peak"])
            if "fell" in line:
                fallen.append(Fallen(reader, line["case"], line["fell"]))
            else:
                said[line["said"]] += 1
            case = line["case"] + 1
        if case < cases:
            fallen.append(Fallen(reader, case, child.ended()))
            case += 1
    print(f"{reader}: {cases} cases, {len(fallen)} fell, {peak / 2**20:.0f} MiB: {dict(said)}")
    for one in fallen[:20]:
        print(f"  {one.reader} {one.case}: {one.what}")
    return Outcome(said, fallen, peak)


class _Child:
    """A child that reads cases from `first` on."""

    def __init__(self, reader: str, first: int, cases: int, folder: Path) -> None:
        self._errors = (folder / "stderr").open("w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.attack.batch_child", reader, str(first), str(cases)],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(folder), "TORCHGAUGE_STATE": str(folder / "state")},
        )
        self._late = ""
        self._said: queue.Queue = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self._process.stdout:
            self._said.put(line)
        self._said.put(b"")

    def lines(self, deadline: float):
        """Yield what it says of each case, until it ends or a case takes too long."""
        while True:
            try:
                line = self._said.get(timeout=deadline)
            except queue.Empty:
                self._late = f"hung: more than {deadline:g} s"
                break
            if not line:
                break
            yield json.loads(line)
        self._process.kill()
        self._process.wait()

    def ended(self) -> str:
        """Return why it did not say of the next case."""
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
        return self._late or f"exit code {self._process.returncode}: {''.join(last)}"
