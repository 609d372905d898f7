"""The processor's time that torchgauge takes to start, against an empty Python; interleaved.

Processor's time, since other processes lengthen what a clock on the wall shows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

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
            taken[name].append(processor_time([sys.executable, *arguments]))
    return {name: statistics.median(times) for name, times in taken.items()}


def processor_time(command: list[str]) -> float:
    """Run the command, and return the seconds that its process spent, in the system too."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return used.ru_utime + used.ru_stime


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
