"""The project's own tests that need a GPU."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_rows.line import Line, absent, judged

if TYPE_CHECKING:
    from gpu_rows.machine import Machine

ROOT = Path(__file__).parents[2]
# Without these no test of the project is collected.
NEEDED = ("pytest", "hypothesis")
_OUTCOMES = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


def files() -> list[Path]:
    """Return the files of tests that have some for a GPU: others need packages of their own."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    return [path for path in tests if re.search(r"pytest\.mark\.gpu\b", path.read_text())]


def outcomes(summary: str) -> dict[str, int]:
    """Return the counts of pytest's last line: "2 failed, 7 passed in 3.1s"."""
    return {outcome.removesuffix("s"): int(count) for count, outcome in _OUTCOMES.findall(summary)}


def lines(machine: Machine) -> Iterator[Line]:
    """Yield the outcome of all of them, and a line for each that failed."""
    if not machine.on_gpu:
        yield absent("pytest -m gpu", "no GPU")
        return
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        yield absent("pytest -m gpu", f"{', '.join(missing)} is absent")
        return
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "--tb=short", "-p",
               "no:cacheprovider", *map(str, files())]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    print(done.stdout, done.stderr, sep="\n")
    yield from told(done.stdout)


def told(output: str) -> Iterator[Line]:
    """Yield the lines of what pytest printed."""
    output_lines = output.strip().splitlines()
    counts = outcomes(output_lines[-1] if output_lines else "")
    broken = counts.get("failed", 0) + counts.get("error", 0)
    yield judged(
        "pytest -m gpu",
        ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "no outcome",
        goal="none fails",
        met=bool(counts.get("passed")) and not broken,
        **counts,
    )
    for text in output_lines:
        if text.startswith(("FAILED ", "ERROR ")):
            name, _, why = text.partition(" - ")
            yield Line(name.partition(" ")[2], verdict="failed", note=why)
