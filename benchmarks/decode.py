"""Reading a trace: ours, json.load and torch's key_averages(), each in processes of their own.

The trace is a public one written over and over to the size asked for, or a file of yours. torch's
route starts from its own recording, so it is compared on one that is made here.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SHARED = Path(__file__).parents[2] / "shared" / "traces" / "kineto"
COMMITTED = Path(__file__).parents[1] / "tests" / "data" / "tiny_training.json.gz"

# Each prints seconds, the peak of its memory in bytes, and how many events it read.
REPORT = """
import resource
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(seconds, peak, count)
"""
OURS = """
import sys, time
from torchgauge.readers.kineto.kineto import read_events
start = time.perf_counter()
events = read_events(sys.argv[1])
seconds = time.perf_counter() - start
count = len(events) + len(events.memory.time) + len(events.flows.time)
"""
JSON = """
import gzip, json, sys, time
start = time.perf_counter()
with (gzip.open if sys.argv[1].endswith("gz") else open)(sys.argv[1], "rb") as file:
    count = len(json.load(file)["traceEvents"])
seconds = time.perf_counter() - start
"""
RECORD = """
import sys, time
import torch
from torch.profiler import ProfilerActivity, profile
from torchgauge.readers.kineto.kineto import read_events
x = torch.ones(4, requires_grad=True)
recorder = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
with recorder:
    for _ in range(int(sys.argv[2])):
        ((x * 2 + 1).relu() @ x).backward()
"""
KEY_AVERAGES = (
    RECORD
    + """
start = time.perf_counter()
count = len(recorder.events())
recorder.key_averages(group_by_input_shape=True)
seconds = time.perf_counter() - start
"""
)
EXPORT = (
    RECORD
    + """
start = time.perf_counter()
recorder.profiler.kineto_results.save(sys.argv[1])
count = len(read_events(sys.argv[1]))
seconds = time.perf_counter() - start
"""
)


def main() -> None:
    """Print medians of seconds, peaks of memory, and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, help="a trace of yours")
    parser.add_argument("--megabytes", type=int, default=200, help="of the trace made here")
    parser.add_argument("--steps", type=int, default=4000, help="of the recording made here")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = options.file or enlarged(options.megabytes, Path(directory) / "trace.json")
        size = path.stat().st_size
        print(f"{path.name}: {size / 1e6:,.0f} MB")
        compare({"torchgauge": OURS, "json.load": JSON}, [str(path)], options.rounds)
        recording = [str(Path(directory) / "recording.json"), str(options.steps)]
        print(f"A recording of {options.steps:,} small training steps")
        routes = {"export and torchgauge": EXPORT, "key_averages()": KEY_AVERAGES}
        compare(routes, recording, options.rounds)


def enlarged(megabytes: int, path: Path) -> Path:
    """Write a trace of that size: the events of a recorded one again and again."""
    source = SHARED / "v100_train_memory_events_rank1of2.json.gz"
    text = gzip.decompress((source if source.exists() else COMMITTED).read_bytes())
    start = text.index(b"[", text.index(b'"traceEvents"')) + 1
    end = text.rindex(b"]")
    events = text[start:end]
    with path.open("wb") as file:
        file.write(text[:start] + events)
        while file.tell() < megabytes * 1_000_000:
            file.write(b"," + events)
        file.write(text[end:])
    return path


def compare(routes: dict[str, str], arguments: list[str], rounds: int) -> None:
    """Run each route in turn, `rounds` times, and print the first against the others."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in routes}
    for number in range(rounds):
        for name in list(routes)[:: 1 if number % 2 else -1]:
            found[name].append(measured(routes[name], arguments))
    middle = {
        name: [statistics.median(column) for column in zip(*runs, strict=True)]
        for name, runs in found.items()
    }
    ours = next(iter(middle.values()))
    for name, (seconds, peak, count) in middle.items():
        print(
            f"  {name:24} {seconds:8.2f} s  {count / seconds:12,.0f} events/s  "
            f"peak {peak / 1e6:7,.0f} MB  time {seconds / ours[0]:6.2f}×  "
            f"memory {peak / ours[1]:5.2f}×"
        )


def measured(code: str, arguments: list[str]) -> tuple[float, float, float]:
    """Return seconds, bytes and events of one process."""
    command = [sys.executable, "-c", code + REPORT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, peak, count = done.stdout.split()
    return float(seconds), float(peak), float(count)


if __name__ == "__main__":
    main()
