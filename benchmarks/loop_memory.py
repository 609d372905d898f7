"""Whether the recording of a long loop stays within its stated memory, and what the loop pays.

    python benchmarks/loop_memory.py [--steps N] [--budget MB] [--layers N] [--repeat N]

One process runs the loop bare, then inside a timeline that is asked to record all its steps. The
memory is the most that the process held above what the bare loop left it with, sampled by a process
of its own, so that nothing waits for the sampler.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import time

import psutil
import torch
from torch import nn

import torchgauge as tg


def watch(process: int, largest: object, stop: object) -> None:
    """Note the largest resident set of a process until told to stop."""
    watched = psutil.Process(process)
    while not stop.is_set():  # type: ignore[attr-defined]
        largest.value = max(largest.value, watched.memory_info().rss)  # type: ignore[attr-defined]
        time.sleep(0.002)


def loop(layers: int, steps: int) -> float:
    """Train a stack of layers and return the seconds that it took."""
    model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(layers)])
    optimizer = torch.optim.Adam(model.parameters())
    start = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 32)).sum().backward()
        optimizer.step()
    return time.perf_counter() - start


def measure(layers: int, steps: int, budget: int, repeat: int = 1) -> dict[str, float]:
    """Return seconds and bytes of the loop without and within the timeline."""
    loop(layers, 10)
    bare = loop(layers, steps)
    with tg.timeline(schedule=tg.Schedule(record=1)):  # loads the profiler's libraries
        loop(1, 10)
    gc.collect()
    before = psutil.Process().memory_info().rss
    context = multiprocessing.get_context("spawn")
    largest, stop = context.Value("q", 0), context.Event()
    watcher = context.Process(target=watch, args=(os.getpid(), largest, stop))
    watcher.start()
    while not largest.value:
        time.sleep(0.01)
    schedule = tg.Schedule(record=None if repeat == 1 else steps // repeat, repeat=repeat)
    start = time.perf_counter()
    with tg.timeline(schedule=schedule, memory_budget=budget) as run:
        loop(layers, steps)
    taken = time.perf_counter() - start
    stop.set()
    watcher.join()
    captured = run.captured
    return {
        "steps": run.record.count,
        "recorded": captured.recorded,
        "events": captured.events or 0,
        "file": (captured.file or 0) * captured.recorded,
        "budget": budget,
        "memory": largest.value - before,
        "bare": bare,
        "seconds": taken,
        "overhead": (run.record.median("record") or 0) / (run.record.bare or 1),
    }


def main() -> None:
    """Print what one run gives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--budget", type=float, default=256, help="MB")
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=1)
    chosen = parser.parse_args()
    found = measure(chosen.layers, chosen.steps, int(chosen.budget * 1e6), chosen.repeat)
    print(
        f"{found['recorded']:,} of {found['steps']:,} steps recorded, {found['events']:,} events "
        f"each, {found['file'] / 1e6:.1f} MB of files\n"
        f"memory {found['memory'] / 1e6:.1f} MB of {found['budget'] / 1e6:.1f} MB\n"
        f"loop {found['bare']:.2f} s bare, {found['seconds']:.2f} s with the timeline; "
        f"a recorded step {found['overhead']:.2f}× a bare one"
    )


if __name__ == "__main__":
    main()
