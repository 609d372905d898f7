"""How long torchgauge takes to start, against an empty Python; interleaved, printed as ratios."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import torchgauge": ["-c", "import torchgauge"],
    "torchgauge --help": ["-m", "torchgauge", "--help"],
    "torchgauge profile --help": ["-m", "torchgauge", "profile", "--help"],
}


def measure(rounds: int) -> dict[str, float]:
    """Return the median seconds of each command, all of them run once in each round."""
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, arguments in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25)
    medians = measure(parser.parse_args().rounds)
    base = medians["python -c pass"]
    for name, seconds in medians.items():
        print(f"{name:26} {seconds * 1e3:7.1f} ms  {seconds / base:5.2f}×")


if __name__ == "__main__":
    main()
