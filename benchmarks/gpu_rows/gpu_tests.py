"""The project's own tests that need a GPU."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_rows import pytest_words
from gpu_rows.line import Line, absent

if TYPE_CHECKING:
    from gpu_rows.machine import Machine

ROOT = Path(__file__).parents[2]
# Without these no test of the project is collected.
NEEDED = ("pytest", "hypothesis")
# A test's verdict, as `pytest -v` writes it with the words of `pytest_words`.
_TESTED = re.compile(r"(tests/\S+) (PASSED|FAILED|ERROR|SKIPPED)(?: — (.*))?")
_VERDICTS = {"PASSED": "met", "SKIPPED": "not run"}


def files() -> list[str]:
    """Return the files of tests that have some for a GPU: others need packages of their own."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    marked = [path for path in tests if re.search(r"pytest\.mark\.gpu\b", path.read_text())]
    return [str(path.relative_to(ROOT)) for path in marked]


def lines(machine: Machine, file: str) -> Iterator[Line]:
    """Yield a line for each test of a file as it ends."""
    if not machine.on_gpu:
        yield absent(file, "no GPU")
        return
    from torchgauge.measure.processes.child import end_with

    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        yield absent(file, f"{', '.join(missing)} is absent")
        return
    command = [sys.executable, "-m", "pytest", "-v", "-m", "gpu", "--tb=short", "-p",
               "no:cacheprovider", "-p", pytest_words.__name__, "-o",
               "console_output_style=classic", file]  # fmt: skip
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1",
                 "COLUMNS": "400", pytest_words.PRETENDED: str(int(machine.pretended))}  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
        env=os.environ | variables, preexec_fn=functools.partial(end_with, os.getpid()),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        yield from told(process.stdout)
        code = process.wait()
    if code not in (0, 1):  # all passed, some failed
        yield Line(file, verdict="failed", note=f"pytest's exit code {code}")


def told(output: Iterable[str]) -> Iterator[Line]:
    """Yield the lines of what pytest prints."""
    for text in output:
        print(text, end="", flush=True)
        if tested := _TESTED.match(text):
            name, outcome, reason = tested.groups()
            verdict = _VERDICTS.get(outcome, "failed")
            yield Line(name.partition("::")[2], verdict=verdict, note=reason or "")
