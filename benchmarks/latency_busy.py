"""Intervals of a latency on busy machines, from recorded runs: what they hold, how wide they are.

`python benchmarks/latency_busy.py [FILE]` takes the runs and blocks of recordings of three models
(`busy_recordings.py`), each as one run of several processes. The measured interval, Student's t on
the processes' medians, is to hold the median of the other runs at that load. The undisturbed one is
to hold what the other runs of that model at any load found undisturbed, in the median. Widths are
high ÷ low.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
from collections import defaultdict
from pathlib import Path

import msgspec

from torchgauge.analyze.latency.latency import undisturbed_of
from torchgauge.analyze.latency.run_spread import process_interval
from torchgauge.measure.timeline.layer_times import QUIET
from torchgauge.records.latency.latency import LatencyRun

FILE = Path(__file__).with_name("busy_blocks.json.gz")
PROCESS = LatencyRun(
    samples=(), warmup=0, steady=True, first_call=0.0, median=0.0, interval=None,
    autocorrelation=1.0, stop="short run done",
)  # fmt: skip


def undisturbed(run, median):
    """Return what a run found undisturbed."""
    times = zip(run["undisturbed"], run["fastest"], run["quiet"], strict=True)
    found = [
        math.exp(min(layers, call)) if quiet > QUIET else None for layers, call, quiet in times
    ]
    runs = [msgspec.structs.replace(PROCESS, undisturbed=seconds) for seconds in found]
    return undisturbed_of(runs, median)


def row(held, widths, runs):
    """Format how often an interval held, and how wide it was."""
    if not widths:
        return f"none of {runs}"
    return f"held {held} of {len(widths)}, ×{statistics.median(widths):.1f} wide"


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    recordings = json.loads(gzip.decompress(parser.parse_args().file.read_bytes()))
    runs = defaultdict(list)
    for kind in ("blocks", "runs"):
        for name, recorded in recordings[kind].items():
            runs[name] += recorded
    medians = {
        name: [statistics.median(map(math.exp, run["typical"])) for run in recorded]
        for name, recorded in runs.items()
    }
    found = {
        name: [undisturbed(*both) for both in zip(recorded, medians[name], strict=True)]
        for name, recorded in runs.items()
    }
    for name, recorded in runs.items():
        model = name.rpartition(", ")[2]
        held, widths, quiet_held, quiet_widths, speeds = 0, [], 0, [], []
        for number, run in enumerate(recorded):
            others = medians[name][:number] + medians[name][number + 1 :]
            if (interval := process_interval(list(map(math.exp, run["typical"])))) and others:
                held += interval.low <= statistics.median(others) <= interval.high
                widths.append(interval.high / interval.low)
            if (estimate := found[name][number]) is not None:
                others = [
                    other.value
                    for there, estimates in found.items()
                    if there.endswith(f", {model}")
                    for other in estimates
                    if other is not None and other is not estimate
                ]
                inside = estimate.interval
                quiet_held += inside.low <= statistics.median(others) <= inside.high
                quiet_widths.append(inside.high / inside.low)
                speeds.append(estimate.speed)
        typical = statistics.median(medians[name])
        quiet = [estimate.value for estimate in found[name] if estimate is not None]
        print(
            f"{name}: {len(recorded)} runs, median {1e3 * typical:.2f} ms, "
            f"{row(held, widths, len(recorded))}; undisturbed "
            + (f"{1e3 * statistics.median(quiet):.2f} ms, " if quiet else "")
            + row(quiet_held, quiet_widths, len(recorded))
            + (f", machine at {statistics.median(speeds):.2g}" if speeds else "")
        )


if __name__ == "__main__":
    main()
