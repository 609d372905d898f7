"""What a GPU can show of torchgauge, in one run of at most 6 minutes: `make gpu`.

    make gpu PYTHON=python3
    make gpu PYTHON=python3 GPU_OPTIONS="--minutes 9 --recordings recordings"
    python benchmarks/gpu.py --page docs/gpu.md --table-of build/gpu/results.jsonl

Each row runs in a process of its own for at most 40 s, so that a failure or a hang costs one row.
Results are written as they come, to results.jsonl and results.md, and what rows print to rows.log.
Nothing is installed: the Python that is given is used, and what it lacks is said
(`gpu_wheels.py` makes a folder of it). Without a GPU every row says so.
`--device cpu --tiny` tries the code of the rows with small models on the CPU, and once more with a
GPU that is a fake.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import importlib.metadata
import itertools
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpu_rows import results
from gpu_rows.every import ROWS, Row
from gpu_rows.line import Line

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
# Of rows alone.
OPTIONAL = ("pytest", "hypothesis", "torchvision", "transformers", "triton", "nvidia-ml-py", "zeus")
PROBE = """
import torch
name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
print(torch.__version__, torch.version.cuda, name, sep="\\n")
"""
PROBE_SECONDS = 300
LEAST_SECONDS = 10  # with less time left no row is begun
RESULTS, LOG = "results.jsonl", "rows.log"
_ERROR = re.compile(r"[\w.]+(Error|Exception)\b")


def main() -> int:
    """Run all rows, or one of them, or make the page's table."""
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.table_of:
        lines = results.latest(results.read(path) for path in options.table_of)
        results.put_into_page(options.page, results.table(lines))
        return 0
    if options.row:
        return run_row(options)
    return run_all(options)


def arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=6, help="for all rows together")
    parser.add_argument("--limit", type=float, default=40, help="seconds of a row, at most")
    parser.add_argument("--rows", help="only those whose names hold one of these, by commas")
    parser.add_argument("--out", type=Path, default=Path("build/gpu"), help="folder of the results")
    parser.add_argument("--recordings", type=Path, help="keep small recordings in this folder")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="small models, few repetitions")
    parser.add_argument("--table-of", type=Path, nargs="+", help="files of JSON lines")
    parser.add_argument("--page", type=Path, default=Path("docs/gpu.md"), help="for --table-of")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    return parser.parse_args()


def run_all(options: argparse.Namespace) -> int:
    """Run the rows one after the other, and return 1 where one failed."""
    options.out.mkdir(parents=True, exist_ok=True)
    rows = chosen(options.rows)
    deadline = time.monotonic() + options.minutes * 60
    run = Run(options.out)
    reason, facts = why_not(options.device)
    missing = absent([*required(), *OPTIONAL])
    print(*facts, *([f"absent: {', '.join(missing)}"] if missing else []), sep="\n", flush=True)
    if reason:
        run.add(*results.not_run(reason, [row.name for row in rows]))
        return 0 if reason == "no GPU" else 1
    if options.recordings:
        options.recordings.mkdir(parents=True, exist_ok=True)
    for row in rows:
        left = deadline - time.monotonic()
        if left < min(options.limit, LEAST_SECONDS):
            run.add(*results.not_run("the time was over", [row.name]))
        else:
            run.show(lines_of(row, options, min(options.limit, left)))
    return int(run.broken)


class Run:
    """What was found so far, on the terminal and in two files."""

    def __init__(self, folder: Path) -> None:
        self.json, self.markdown = folder / RESULTS, folder / "results.md"
        for name in (RESULTS, LOG):
            (folder / name).unlink(missing_ok=True)
        self.lines: list[Line] = []

    def add(self, *lines: Line) -> None:
        """Write lines down before anything else runs."""
        for line in lines:
            results.append(self.json, line)
        self.show(lines)

    def show(self, lines: Iterable[Line]) -> None:
        """Print lines that are written already, and make the table with them."""
        for line in lines:
            self.lines.append(line)
            note = f" ({line.note})" if line.note else ""
            parts = (line.row, line.of, line.ours, line.beside, line.verdict + note)
            print(" | ".join(part for part in parts if part), flush=True)
        self.markdown.write_text(results.table(self.lines))

    @property
    def broken(self) -> bool:
        """Whether a row failed or ran out of its time."""
        return any(line.verdict in ("failed", "timed out") for line in self.lines)


def chosen(names: str | None) -> list[Row]:
    """Return the rows whose names hold one of some words; all without."""
    words = [word.strip().lower() for word in (names or "").split(",") if word.strip()]
    rows = [row for row in ROWS if not words or any(word in row.name.lower() for word in words)]
    if not rows:
        raise SystemExit(f"No row is named so; there are: {', '.join(r.name for r in ROWS)}")
    return rows


def required() -> list[str]:
    """Return the names of the packages that every row needs: torch, and the project's."""
    texts = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    return ["torch", *(re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in texts)]


def absent(names: Iterable[str]) -> list[str]:
    """Return the packages that the Python lacks."""
    missing = []
    for name in names:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    return missing


def why_not(device: str) -> tuple[str, list[str]]:
    """Return why no row can run (empty where they can), and what torch says of itself.

    It is asked in another process: this one is to hold nothing of the GPU's memory.
    """
    if absent(["torch"]):
        return "no GPU", ["torch is absent"]
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "torch could not be asked", [f"torch did not load in {PROBE_SECONDS} s"]
    version, cuda, name = ([*done.stdout.splitlines(), "", "", ""])[:3]
    facts = [f"torch {version or 'broken'}, CUDA {cuda or 'None'}, {name or 'no GPU'}"]
    if device == "cuda" and not name:
        return "no GPU", facts
    missing = absent(required())
    return (f"{', '.join(missing)} is absent" if missing else ""), facts


def lines_of(row: Row, options: argparse.Namespace, limit: float) -> list[Line]:
    """Run one row in a process of its own, and return its lines, with one for how it ended.

    The process writes its lines itself, so that they are there whatever ends this one. What the
    machine is remembered by (roofs, runs) is that of this folder, not the user's.
    """
    path, log_path = options.out / RESULTS, options.out / LOG
    before, begun = len(results.read(path)), time.monotonic()
    with log_path.open("a") as log:
        print(f"\n=== {row.name}", file=log, flush=True)
        written = log.tell()
        process = subprocess.Popen(
            command_of(row, options),
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,
            env=os.environ | {"TORCHGAUGE_STATE": str((options.out / "state").resolve())},
        )
        code = waited_for(process, limit)
    print(f"=== {row.name}: {time.monotonic() - begun:.1f} s", flush=True)
    lines = results.read(path)[before:]
    if code is None:
        ending = Line(row.subject, verdict="timed out", note=f"after {limit:.0f} s", row=row.name)
    elif code or not lines:
        note = last_words(log_path.read_text(errors="replace")[written:], code)
        ending = Line(row.subject, verdict="failed", note=note, row=row.name)
    else:
        return lines
    results.append(path, ending)
    return [*lines, ending]


def command_of(row: Row, options: argparse.Namespace) -> list[str]:
    """Return the command of the process that runs one row."""
    command = [sys.executable, __file__, "--row", row.name, "--out", str(options.out),
               "--device", options.device]  # fmt: skip
    command += ["--tiny"] * options.tiny
    if options.recordings:
        command += ["--recordings", str(options.recordings)]
    return command


def waited_for(process: subprocess.Popen[bytes], limit: float) -> int | None:
    """Return the exit code; None where it took too long and was ended with all that it started."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:  # after Ctrl-C too: it is in a group of its own
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def last_words(log: str, code: int) -> str:
    """Return the last line that a process wrote which names an error, else the last one."""
    written = [text.strip() for text in log.splitlines() if text.strip(" =")]
    errors = [text for text in written if _ERROR.match(text)]
    words = (errors or written or ["nothing was written"])[-1]
    return f"exit code {code}: {words[:300]}"


def run_row(options: argparse.Namespace) -> int:
    """Run one row here, and write its lines as they come; in a trial also with a fake GPU."""
    from gpu_rows.machine import Machine
    from gpu_rows.pretended import tried
    from torchgauge.measure.processes.child import end_with

    end_with(os.getppid())
    row = next(row for row in ROWS if row.name == options.row)
    function = getattr(importlib.import_module(f"gpu_rows.{row.module}"), row.function)

    def lines(machine: Machine) -> Iterator[Line]:
        yield from function(machine, *row.arguments)

    device = "cuda:0" if options.device == "cuda" else "cpu"
    found = lines(Machine(device, options.tiny, options.recordings))
    if options.device == "cpu":
        found = itertools.chain(found, tried(lines, options.tiny, options.recordings))
    for line in found:
        results.append(options.out / RESULTS, dataclasses.replace(line, row=row.name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
