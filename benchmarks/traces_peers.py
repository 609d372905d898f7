"""Recorded traces read by us and by HolisticTraceAnalysis: the same figures, time and memory.

    pip install --target PEERS --no-deps -r benchmarks/requirements-peers.txt
    python benchmarks/traces_peers.py PEERS [FILE …] [--rounds N]

Figures first: busy, idle, computation, communication and its overlap, idle time by cause, of each
file by both. HTA is told to keep nanoseconds and the last step, and to take pauses up to our 5 µs
for the device's own. Then both as whole processes, in turn, after one that does not count: ours
makes its whole record (tree, critical path, queues, findings), HTA loads and makes the figures
above. Both run from bytecode, as what is installed does. CPU seconds stand beside wall time, since
the former differ little on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

TRACES = Path(__file__).parents[2] / "shared" / "traces" / "kineto"
LARGEST = "v100_train_memory_events_rank1of2.json.gz"

OURS = """
import json, sys
import torchgauge as tg
rank = tg.read_trace(sys.argv[1], progress=False).ranks[0]
one = rank.times[0].breakdown
found = {
    "window": one.window, "compute": one.compute, "idle": one.idle.total,
    "other work": one.window - one.idle.total - one.compute, "overlap": one.overlap,
}
for stream in rank.times[0].streams:
    idle = stream.breakdown.idle
    found[f"stream {stream.stream}: idle, host"] = idle.host_wait
    found[f"stream {stream.stream}: idle, device"] = idle.kernel_wait
    found[f"stream {stream.stream}: idle, other"] = idle.other
print(json.dumps(found))
"""
HTA = """
import json, logging, os, sys, warnings
warnings.filterwarnings("ignore"); logging.disable(logging.CRITICAL)
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
sys.path.insert(0, sys.argv[2])
from hta.trace_analysis import TraceAnalysis
read = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="", include_last_profiler_step=True)
row = read.get_temporal_breakdown(visualize=False).iloc[0]
found = {
    "window": row["kernel_time(us)"], "compute": row["compute_time(us)"],
    "idle": row["idle_time(us)"], "other work": row["non_compute_time(us)"],
}
found = {name: float(value) * 1e-6 for name, value in found.items()}
share = float(read.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"].iloc[0])
found["overlap"] = None if share != share else share / 100
idle, _ = read.get_idle_time_breakdown(ranks=[0], visualize=False, consecutive_kernel_delay=5.0001)
names = {"host_wait": "host", "kernel_wait": "device", "other": "other"}
for _, row in idle.iterrows():
    name = f"stream {int(row['stream'])}: idle, {names[row['idle_category']]}"
    found[name] = float(row["idle_time"]) * 1e-6
read.get_queue_length_summary(ranks=[0])
print(json.dumps(found))
"""


def measured(code: str, arguments: list[str]) -> tuple[dict[str, Any], float, float, float]:
    """Return what a process found, its wall and CPU seconds, and the peak of its memory in MB."""
    wrapper = (
        "import resource, subprocess, sys, time; start = time.perf_counter(); "
        "subprocess.run([sys.executable, '-c', *sys.argv[1:]], check=True); "
        "wall = time.perf_counter() - start; "
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
        "print(wall, used.ru_utime + used.ru_stime, used.ru_maxrss)"
    )
    command = [sys.executable, "-c", wrapper, code, *arguments]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        said = done.stderr.split("Traceback")[1].strip().splitlines()
        raise RuntimeError(said[-1])
    *_, found, used = done.stdout.strip().splitlines()
    wall, cpu, peak = used.split()
    return json.loads(found), float(wall), float(cpu), float(peak) * 1024 / 1e6


def figures(files: list[Path], peers: str) -> None:
    """Print the figures of both, and by how much they differ."""
    for file in files:
        print(f"\n{file.name}")
        ours = measured(OURS, [str(file)])[0]
        try:
            theirs = measured(HTA, [str(file), peers])[0]
        except RuntimeError as error:
            print(f"  HTA: {error}")
            continue
        print(f"  {'':32} {'torchgauge':>14} {'HTA':>14} {'difference':>12}")
        for name, one in ours.items():
            other = theirs.get(name)
            if one is None or other is None:
                print(f"  {name:32} {shown(one):>14} {shown(other):>14}")
                continue
            unit = 1 if name == "overlap" else 1e6
            print(f"  {name:32} {one * unit:14,.3f} {other * unit:14,.3f} "
                  f"{(one - other) * unit:+12,.3f}")  # fmt: skip


def shown(value: float | None) -> str:
    """Return a figure that the other one lacks."""
    return "–" if value is None else f"{value * 1e6:,.3f}"


def speed(file: Path, peers: str, rounds: int) -> None:
    """Print medians of both, in turn, and the ratios of the pairs."""
    routes = {"torchgauge": (OURS, [str(file)]), "HTA": (HTA, [str(file), peers])}
    runs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in routes}
    for route in routes.values():
        measured(*route)
    for number in range(rounds):
        for name in list(routes)[:: 1 if number % 2 else -1]:
            runs[name].append(measured(*routes[name])[1:])
    print(f"\n{file.name}: whole processes, {rounds} each, in turn")
    for name, found in runs.items():
        wall, cpu, peak = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"  {name:12} {wall:6.2f} s wall  {cpu:6.2f} s CPU  {peak:6.0f} MB")
    for place, what in enumerate(("wall time", "CPU time", "memory")):
        pairs = zip(runs["HTA"], runs["torchgauge"], strict=True)
        ratios = sorted(theirs[place] / ours[place] for theirs, ours in pairs)
        print(f"  {what:10} {statistics.median(ratios):5.1f}× [{ratios[0]:.1f}, {ratios[-1]:.1f}]")


def main() -> None:
    """Compare figures, then speed and memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", help="where the peers are installed")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_intermixed_args()
    files = options.files or sorted(TRACES.glob("*.json.gz"))
    figures(files, options.peers)
    speed(next((one for one in files if one.name == LARGEST), files[0]), options.peers,
          options.rounds)  # fmt: skip


if __name__ == "__main__":
    main()
