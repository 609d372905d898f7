"""Does the headline interval hold what the next runs measure? Six models, run again and again.

`interval_coverage.py collect FILE --rounds 20 [--busy]` adds runs to FILE, one JSON object a line;
each run is a fresh interpreter that measures one model with the defaults, then with
torch.utils.benchmark and with a hundred calls, and the models take turns, so that the runs of one
are a minute or more apart. `--busy` keeps one core loaded meanwhile. It goes on where it ended.
`interval_coverage.py show FILE` prints, for each tool, how often its interval holds the median of
the other runs' medians, how wide it is and what it takes. What the host remembers is kept beside
FILE, so that the first runs are those of a host that remembers nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

NAMES = ("mlp", "lstm", "transformer", "convolutions", "mobilenet_v2", "resnet18")
TOOLS = ("torchgauge", "torch.utils.benchmark", "100 calls")
PAUSE = 1.0


def subject(name):
    """Return a model and its input: from about 50 µs to 50 ms on two cores."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    if name == "mlp":
        model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
        return model, torch.randn(16, 256)
    if name == "lstm":
        return nn.LSTM(64, 64, batch_first=True), torch.randn(2, 12, 64)
    if name == "transformer":
        layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
        return nn.TransformerEncoder(layer, 2), torch.randn(1, 32, 128)
    if name == "convolutions":
        blocks = [
            nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
            for _ in range(6)
        ]
        return nn.Sequential(*blocks), torch.randn(1, 32, 56, 56)
    import torchvision

    return getattr(torchvision.models, name)(), torch.randn(1, 3, 224, 224)


def measured(name):
    """Measure one model with each tool in this process; seconds."""
    import torch
    from torch.utils.benchmark import Timer

    import torchgauge as tg

    model, inputs = subject(name)
    model.eval()
    rows = {}
    start = time.perf_counter()
    latency = tg.measure_latency(model, inputs, progress=False)
    rows["torchgauge"] = {
        "median": latency.median,
        "interval": latency.interval and [latency.interval.low, latency.interval.high],
        "scope": latency.interval_scope,
        "medians": list(latency.process_medians),
        "yardsticks": [run.yardstick for run in latency.processes],
        "warnings": [warning.id for warning in latency.warnings],
        "took": time.perf_counter() - start,
    }
    with torch.inference_mode():
        start = time.perf_counter()
        timer = Timer(
            "model(inputs)",
            globals={"model": model, "inputs": inputs},
            num_threads=torch.get_num_threads(),
        )
        found = timer.blocked_autorange(min_run_time=1.0)
        low, high = (sorted(found.times)[int(len(found.times) * q)] for q in (0.25, 0.75))
        rows["torch.utils.benchmark"] = {
            "median": found.median,
            "interval": [low, high],
            "took": time.perf_counter() - start,
        }
        start = time.perf_counter()
        for _ in range(10):
            model(inputs)
        times = []
        for _ in range(100):
            before = time.perf_counter()
            model(inputs)
            times.append(time.perf_counter() - before)
        mean, error = statistics.fmean(times), statistics.stdev(times) / 10
        rows["100 calls"] = {
            "median": mean,
            "interval": [mean - 1.96 * error, mean + 1.96 * error],
            "took": time.perf_counter() - start,
        }
    return rows


def collect(file, rounds, *, busy):
    """Add runs to the file until each model has `rounds` of them."""
    lines = file.read_text().splitlines() if file.exists() else []
    done = defaultdict(int)
    for line in lines:
        done[json.loads(line)["model"]] += 1
    own = {**os.environ, "TORCHGAUGE_STATE": str(file.with_suffix(".state"))}
    while any(done[name] < rounds for name in NAMES):
        for name in NAMES:
            if done[name] >= rounds:
                continue
            command = [sys.executable, __file__, "measure", name]
            run = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
            row = {"model": name, "at": time.time(), "busy": busy, **json.loads(run.stdout)}
            with file.open("a") as out:
                out.write(json.dumps(row) + "\n")
            done[name] += 1
            time.sleep(PAUSE)


def show(file):
    """Print coverage, width and duration of each tool over all runs of the file."""
    runs = defaultdict(list)
    for line in file.read_text().splitlines():
        row = json.loads(line)
        runs[row["model"]].append(row)
    print(f"{'model':14}{'median':>10}  " + "".join(f"{tool:>36}" for tool in TOOLS))
    totals = {tool: [0, 0] for tool in TOOLS}
    for name, rows in runs.items():
        cells = []
        for tool in TOOLS:
            held, widths, took = coverage([row[tool] for row in rows])
            totals[tool][0] += held
            totals[tool][1] += len(rows)
            width = f"±{100 * statistics.median(widths):.1f} %" if widths else "none"
            cells.append(f"{held:>3} of {len(rows)}, {width}, {statistics.median(took):.1f} s")
        median = statistics.median(row["torchgauge"]["median"] for row in rows)
        print(f"{name:14}{1e3 * median:>7.3f} ms  " + "".join(f"{cell:>36}" for cell in cells))
    for tool, (held, count) in totals.items():
        print(f"{tool}: the interval holds the median of the others in {held} of {count}", end="")
        print(f" ({100 * held / count:.0f} %)")
    scopes = [row["torchgauge"]["scope"] for rows in runs.values() for row in rows]
    print("scopes:", {scope: scopes.count(scope) for scope in sorted(set(scopes))})
    spreads = {
        name: statistics.stdev(math.log(row["torchgauge"]["median"]) for row in rows)
        for name, rows in runs.items()
        if len(rows) > 1
    }
    print("runs differ by (standard deviation):", end=" ")
    print(", ".join(f"{name} {100 * spread:.1f} %" for name, spread in spreads.items()))


def coverage(rows):
    """Return how many intervals hold the median of the other runs, half-widths, and seconds."""
    held, widths = 0, []
    for row in rows:
        others = statistics.median(other["median"] for other in rows if other is not row)
        if row["interval"] is not None:
            low, high = row["interval"]
            held += low <= others <= high
            widths.append((high - low) / 2 / row["median"])
    return held, widths, [row["took"] for row in rows]


def main():
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", choices=("measure", "collect", "show"))
    parser.add_argument("what", help="a model, or the file of the runs")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--busy", action="store_true", help="keep one core loaded meanwhile")
    options = parser.parse_args()
    if options.work == "measure":
        print(json.dumps(measured(options.what)))
        return
    file = Path(options.what)
    if options.work == "collect":
        load = [sys.executable, "-c", "while True: pass"]
        other = subprocess.Popen(load) if options.busy else None
        try:
            collect(file, options.rounds, busy=options.busy)
        finally:
            if other is not None:
                other.kill()
    show(file)


if __name__ == "__main__":
    main()
