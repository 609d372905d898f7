"""How long torchgauge takes to know a latency to ±1 %, and how far its results spread.

Beside it: `torch.utils.benchmark.Timer.blocked_autorange()`, which runs for 0.2 s, and the mean of
100 calls after 10 for warm-up, as most scripts do. All measure one ResNet-18 on the CPU in this
process, in turns, so that load on the machine meets them alike.

    python benchmarks/latency_peers.py --repeats 10
"""

from __future__ import annotations

import argparse
import runpy
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.utils.benchmark import Timer

from torchgauge.analyze.latency.latency import combine
from torchgauge.clock import SystemClock, resolution
from torchgauge.measure.latency.latency_options import SamplingPlan
from torchgauge.measure.latency.sampling import Timing, sample

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLE = Path(__file__).parents[1] / "examples" / "resnet18.py"


def torchgauge_method(forward: Callable[[], object]) -> tuple[float, float | None]:
    """Return the median in seconds and its relative error, with the budget's default."""
    clock = SystemClock()

    def call() -> Timing:
        start = clock.now()
        forward()
        return Timing(clock.now() - start)

    latency = combine([sample(call, clock, SamplingPlan(), clock_resolution=resolution(clock))])
    return latency.median, latency.relative_error


def blocked_autorange(forward: Callable[[], object]) -> tuple[float, None]:
    """Return the median of torch's Timer, in seconds; it gives no interval."""
    timer = Timer("forward()", globals={"forward": forward}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange().median, None


def hundred_calls(forward: Callable[[], object]) -> tuple[float, None]:
    """Return the mean of 100 calls after 10 for warm-up, in seconds."""
    for _ in range(10):
        forward()
    start = time.perf_counter()
    for _ in range(100):
        forward()
    return (time.perf_counter() - start) / 100, None


METHODS = {
    "torchgauge, ±1 %": torchgauge_method,
    "Timer.blocked_autorange()": blocked_autorange,
    "100 iterations, mean": hundred_calls,
}


def measure(forward: Callable[[], object], repeats: int) -> dict[str, list[tuple[float, ...]]]:
    """Return (seconds taken, result, relative error or NaN) of every repeat of every method."""
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in METHODS}
    names = list(METHODS)
    for repeat in range(repeats):
        first = repeat % len(names)
        for name in names[first:] + names[:first]:
            start = time.perf_counter()
            result, error = METHODS[name](forward)
            taken = time.perf_counter() - start
            found[name].append((taken, result, float("nan") if error is None else error))
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--size", type=int, default=64, help="height and width of the image")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = runpy.run_path(str(EXAMPLE))["ResNet18"]().eval()
    image = torch.randn(1, 3, options.size, options.size)

    def forward() -> object:
        with torch.inference_mode():
            return model(image)

    forward()
    head = ("seconds", "result ms", "std/mean %", "range/mean %", "own error %")
    print(
        f"{options.repeats} repeats, 1×3×{options.size}×{options.size}, {options.threads} thread(s)"
    )
    print(f"{'':28}" + "".join(f"{name:>14}" for name in head))
    for name, rows in measure(forward, options.repeats).items():
        taken, results, errors = zip(*rows, strict=True)
        mean = statistics.fmean(results)
        deviation = statistics.stdev(results) if len(results) > 1 else 0.0
        figures = (
            statistics.fmean(taken),
            mean * 1e3,
            100 * deviation / mean,
            100 * (max(results) - min(results)) / mean,
            100 * statistics.fmean(errors),
        )
        print(f"{name:28}" + "".join(f"{figure:14.2f}" for figure in figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
