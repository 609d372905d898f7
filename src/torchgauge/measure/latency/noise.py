"""The noise floor of this machine: an A/A run, the same work on both sides in fresh processes."""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from torchgauge.analyze.latency.noise import difference
from torchgauge.clock import Clock, SystemClock
from torchgauge.device.counters import machine_times, own_time_with_children
from torchgauge.errors import MeasurementError, missing_extra
from torchgauge.progress import Progress, Silent
from torchgauge.records.doctor import NoiseRun
from torchgauge.workers import killed_after, worker

CHILD = Path(__file__).with_name("noise_child.py")
WORKLOAD = "convolutions of 2 images of 48×48, about 1 ms"
BUDGET = 11.0
LEAST_BLOCKS = 3
MOST_BLOCKS = 8
SECONDS = 0.25
START_LIMIT = 120.0

Block = Callable[[], tuple[list[float], str]]
"""Returns four medians in the order A, B, B, A, and the processes' threads and torch version."""


def run(
    *,
    block: Block | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
    findings: tuple[str, ...] = (),
    watch_load: Callable[[], Callable[[], float | None]] | None = None,
) -> NoiseRun:
    """Run ABBA blocks for 11 s, three at least and eight at most, and return their differences.

    `watch_load` begins to watch other processes, and returns what reads the cores they took.

    Raises MissingExtraError where torch is absent; MeasurementError `noise-failed`.
    """
    if importlib.util.find_spec("torch") is None:
        raise missing_extra("torch", "torch", "The A/A run")
    block, clock, progress = block or fresh_block, clock or SystemClock(), progress or Silent()
    watched = (watch_load or watch_others)()
    end = clock.now() + round(BUDGET * 1e9)
    medians: list[float] = []
    differences: list[float] = []
    description = ""
    while len(differences) < MOST_BLOCKS:
        began = clock.now()
        progress.update(f"block {len(differences) + 1}", len(differences) / MOST_BLOCKS)
        block_medians, description = block()
        medians += block_medians
        differences.append(difference(*block_medians))
        now = clock.now()
        # No block begins that would end beyond the budget.
        if len(differences) >= LEAST_BLOCKS and now + (now - began) > end:
            break
    threads, version = description.split()
    return NoiseRun(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        workload=WORKLOAD,
        torch=version,
        threads=int(threads),
        differences=tuple(differences),
        medians=tuple(medians),
        other=watched(),
        findings=findings,
    )


def watch_others() -> Callable[[], float | None]:
    """Return a function that returns the cores' worth of time that others took from now on.

    None where the system does not count it. The time of this process's children is its own once
    they have ended.
    """

    def read() -> tuple[float, float | None]:
        times, own_time = machine_times(), own_time_with_children()
        return time.perf_counter(), None if times is None else times.busy - own_time

    start, before = read()

    def cores() -> float | None:
        end, after = read()
        if before is None or after is None:
            return None
        return max(after - before, 0.0) / max(end - start, 1e-9)

    return cores


def watch_share() -> Callable[[], float | None]:
    """Return a function that returns the share of all cores' time that others took from now on."""
    watched = watch_others()

    def share() -> float | None:
        cores, count = watched(), os.cpu_count()
        return None if cores is None or not count else min(cores / count, 1.0)

    return share


def fresh_block() -> tuple[list[float], str]:
    """Start four processes at once, and time one after the other while the others sleep."""
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(worker(CHILD)) for _ in range(4)]
        for child in children:
            stack.enter_context(killed_after(START_LIMIT, child))
        answers = [_answer(child) for child in children]
        medians = [float(_answer(child, f"{SECONDS}\n")) for child in children]
        return medians, answers[0].removeprefix("ready ")


def _answer(child: subprocess.Popen[bytes], question: str = "") -> str:
    try:
        if child.stdin is not None and question:
            child.stdin.write(question.encode())
            child.stdin.flush()
        line = child.stdout.readline().decode().strip() if child.stdout is not None else ""
    except OSError as error:
        raise _failed(str(error)) from error
    if not line:
        raise _failed(f"It ended with code {child.wait()}.")
    return line


def _failed(cause: str) -> MeasurementError:
    return MeasurementError(
        "A process of the A/A run gave no result.",
        id="noise-failed",
        cause=cause,
        remedy="Check that `python -c 'import torch'` works; --quick leaves the run out.",
    )
