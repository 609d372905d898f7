"""How much of the spread between runs is the machine's, and what telling it costs.

`yardstick.py collect FOLDER --rounds 20 [--busy] [--threads N]` measures six models with the
defaults, each in a fresh interpreter, in turn; what the host remembers of them, in FOLDER, is the
result, so that it goes on where it ended. `--busy` keeps one core loaded meanwhile.
`yardstick.py show FOLDER` prints, by model, the spread of the runs and what a correction by the
yardsticks leaves of it (each run left out of its own weights), how often two runs of the same model
are told apart, and how often a tenth more time is found. `yardstick.py effect` times calls in
windows with and without the yardstick in turn (A, B, B, A), and prints how much slower the calls
are with it and which share of the time it takes.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from interval_coverage import NAMES, subject
from torchgauge.analyze.gate.stored import HostNoise, Welch, corrected
from torchgauge.analyze.latency.correction import correction
from torchgauge.analyze.latency.run_spread import run_spread
from torchgauge.device.calibration import PastRuns

WINDOW = 0.15
CALLS = 5
LIMIT = 300.0
PAIRS = 100
BUSY = "import time\nend = time.monotonic() + {:.0f}\nwhile time.monotonic() < end: pass"


def collect(folder, rounds, threads, *, busy):
    """Have each model measured in `rounds` fresh interpreters; FOLDER keeps the host's memory."""
    import msgspec

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "past_runs.json"
    state = os.environ | {"TORCHGAUGE_STATE": str(folder)}
    known = msgspec.json.decode(file.read_bytes(), type=PastRuns) if file.exists() else PastRuns()
    done = min((len(runs) for runs in by_target(known).values()), default=0)
    for number in range(done, rounds):
        for name in NAMES:
            command = [sys.executable, __file__, "one", name, "--threads", str(threads)]
            load = [sys.executable, "-c", BUSY.format(LIMIT)]
            with subprocess.Popen(load if busy else ["true"]) as other:
                try:
                    subprocess.run(command, env=state, check=True, timeout=LIMIT)
                finally:
                    other.kill()
        print(f"round {number + 1} of {rounds}", flush=True)


def one(name, threads):
    """Measure one model as users do; the host remembers it."""
    import torch

    import torchgauge as tg

    if threads:
        torch.set_num_threads(threads)
    model, inputs = subject(name)
    tg.measure_latency(model.eval(), inputs, progress=False)


def by_target(known):
    """Return the runs of the machine that has most, by target."""
    machine = max(known.machines.values(), key=len, default=())
    found = defaultdict(list)
    for run in machine:
        found[run.target].append(run)
    return found


def show(folder):
    """Print spreads, false alarms and detection of two stored runs."""
    import msgspec

    file = folder / "past_runs.json"
    targets = by_target(msgspec.json.decode(file.read_bytes(), type=PastRuns))
    past = list(itertools.chain.from_iterable(targets.values()))
    factors = []
    for target, runs in targets.items():
        pairs = list(itertools.permutations(runs, 2))
        few = random.Random(0).sample(pairs, min(PAIRS, len(pairs)))
        told = [judged(pair, past) for pair in few]
        before = statistics.median(row["before"] for row in told)
        after = statistics.median(row["after"] for row in told)
        factors.append(before / after)
        figures = {
            name: 100 * statistics.fmean(row[name] for row in told)
            for name in ("alarm", "raw alarm", "found", "raw found", "used")
        }
        middle = statistics.median(statistics.fmean(run.medians) for run in runs)
        print(
            f"{target.split(' threads')[0][:48]:48} {1e3 * middle:8.3f} ms, {len(runs)} runs: "
            f"spread {100 * before:.1f} → {100 * after:.1f} % (corrected in {figures['used']:.0f} "
            f"%); one build told apart {figures['raw alarm']:.1f} → {figures['alarm']:.1f} %, "
            f"+10 % found {figures['raw found']:.0f} → {figures['found']:.0f} %"
        )
    print(f"median factor {statistics.median(factors):.2f}")


def judged(pair, past):
    """Judge two runs, and the second as if it took a tenth more, by all others."""
    old, new = pair
    others = [run for run in past if run is not old and run is not new]
    known = correction(old, new, others)
    spread = run_spread(others, new.target, busy=None)
    confidence = HostNoise(spread.between, spread.runs + 1, remembered=True).confidence
    logs = [statistics.fmean(map(math.log, run.medians)) for run in pair]
    raw = Welch(logs[1] - logs[0], math.sqrt(2) * spread.between, spread.runs)
    told = raw if known is None else corrected(old.medians, new.medians, known)
    row = {
        "used": known is not None,
        "before": spread.between if known is None else known.before,
        "after": spread.between if known is None else known.between,
    }
    for name, test in (("", told), ("raw ", raw)):
        row[f"{name}alarm"] = not holds_none(test, 0.0, confidence)
        row[f"{name}found"] = moved(test, math.log(1.1)).interval(confidence).low > 0
    return row


def moved(test, log):
    """Return the test of a current run that takes e^log as long."""
    return Welch(test.estimate + log, test.error, test.freedom)


def holds_none(test, log, confidence):
    """Return whether the interval of the change holds no change."""
    interval = moved(test, log).interval(confidence)
    return interval.low <= 0 <= interval.high


def effect(seconds, processes, threads):
    """Print what the yardstick does to calls, and what it takes, by model."""
    for name in NAMES:
        command = [sys.executable, __file__, "windows", name, "--seconds", str(seconds)]
        rows = []
        for _ in range(processes):
            told = subprocess.run(
                [*command, "--threads", str(threads)], capture_output=True, text=True, check=True
            )
            rows.append([float(word) for word in told.stdout.split()])
        differences = sorted(itertools.chain.from_iterable(row[1:] for row in rows))
        count = len(differences)
        reach = 0.98 * math.sqrt(count)  # 95 % of order statistics about the median
        ends = max(0, int(count / 2 - reach)), min(count - 1, math.ceil(count / 2 + reach))
        low, high = (100 * differences[end] for end in ends)
        print(
            f"{name:13} calls {100 * statistics.median(differences):+.2f} % slower (95 % in "
            f"{low:+.2f} … {high:+.2f} %, {count} blocks); it takes "
            f"{100 * statistics.fmean(row[0] for row in rows):.1f} % of the time",
            flush=True,
        )


def windows(name, seconds, threads):
    """Print the share of the time that the yardstick takes, and d of each block of windows."""
    import torch

    from torchgauge.clock import SystemClock
    from torchgauge.device.select import open_device
    from torchgauge.measure.latency.latency import Yardstick

    if threads:
        torch.set_num_threads(threads)
    model, inputs = subject(name)
    model.eval()
    now, work = time.perf_counter_ns, Yardstick(SystemClock(), open_device("cpu"))
    spent = total = 0

    def window(length, *, timed):
        nonlocal spent, total
        samples, began = [], now()
        while now() < began + 1e9 * length or len(samples) < CALLS:
            start = now()
            model(inputs)
            end = now()
            samples.append(end - start)
            if timed and end >= work.due:
                work.run()
                spent += now() - end
        total += (now() - began) if timed else 0
        return math.log(statistics.median(samples))

    differences = []
    with torch.inference_mode():
        window(0.3, timed=False)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            before, first, second, after = (
                window(WINDOW, timed=timed) for timed in (False, True, True, False)
            )
            differences.append((first + second - before - after) / 2)
    print(spent / total, *differences)


def main():
    """Collect runs, show them, or measure what the yardstick does."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["collect", "show", "effect", "one", "windows"])
    parser.add_argument("where", nargs="?", default="")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as torch takes")
    parser.add_argument("--busy", action="store_true", help="keep one core loaded")
    given = parser.parse_args()
    if given.what == "collect":
        collect(Path(given.where), given.rounds, given.threads, busy=given.busy)
    elif given.what == "show":
        show(Path(given.where))
    elif given.what == "effect":
        effect(given.seconds, given.processes, given.threads)
    elif given.what == "one":
        one(given.where, given.threads)
    else:
        windows(given.where, given.seconds, given.threads)


if __name__ == "__main__":
    main()
