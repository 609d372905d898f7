"""One fresh process of an A/A run: a small network, timed each time the parent asks.

Started by its path with nothing of torchgauge imported, so that every process is alike.
"""

from __future__ import annotations

import statistics
import sys
import time

CALLS_AT_LEAST = 5
WARMUP = 0.2


def main() -> None:
    """Say "ready THREADS VERSION"; then answer each "SECONDS" by the median call in seconds."""
    import torch

    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(64 * 24 * 24, 64),
    ).eval()
    images = torch.randn(2, 3, 48, 48)
    with torch.inference_mode():
        timed(network, images, WARMUP)
        print("ready", torch.get_num_threads(), torch.__version__, flush=True)  # noqa: T201
        for line in sys.stdin:
            print(timed(network, images, float(line)), flush=True)  # noqa: T201


def timed(network: object, images: object, seconds: float) -> float:
    """Return the median seconds of a call, over calls for `seconds` in all."""
    samples: list[int] = []
    end = time.perf_counter_ns() + round(seconds * 1e9)
    while True:
        start = time.perf_counter_ns()
        network(images)  # type: ignore[operator]
        stop = time.perf_counter_ns()
        samples.append(stop - start)
        if stop >= end and len(samples) >= CALLS_AT_LEAST:
            return statistics.median(samples) / 1e9


if __name__ == "__main__":
    main()
