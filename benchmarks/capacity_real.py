"""How well plans of capacity agree with a real server: 40 settings of rate, batch and delay.

The reference server runs layers whose weights fill no cache, in a process of its own, with one
thread; a batch takes some 20 to 60 ms. Each server (a batch and a delay) is put under five rates,
shares of the highest that it answered under too many requests; what a level shows is predicted from
the service times of the server's other levels, and both are printed. Measuring takes a quiet
machine:

    python benchmarks/capacity_real.py measure FOLDER 0     # each of both parts some 13 minutes
    python benchmarks/capacity_real.py measure FOLDER 1
    python benchmarks/capacity_real.py report FOLDER

With `--paced` the server computes convolutions and then waits, as for a device, until a time has
passed that grows with the batch: a batch then takes the same time at any time, where a virtual
machine is faster and slower by a fifth from one minute to the next. So it does for the knee of a
plan beside the one that a search finds, and whether a second run confirms that:

    python benchmarks/capacity_real.py knee FOLDER          # some 10 minutes

Whether servers with another order than one queue are refused:

    python benchmarks/capacity_real.py orders FOLDER        # some 60 seconds
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from msgspec.structs import replace
from torch import nn

import torchgauge as tg
from torchgauge.analyze.capacity.batch_model import BatchModel
from torchgauge.analyze.capacity.server_model import checks
from torchgauge.analyze.capacity.service_times import of_requests, service_times
from torchgauge.analyze.capacity.simulation import Workers
from torchgauge.analyze.capacity.verification import level_checks
from torchgauge.records.serving.capacity_plan import Check
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.serving import Serving

# Largest batch and delay of each server; the halves are measured apart.
PARTS = (((1, 0.0), (2, 2e-3), (4, 0.0), (8, 5e-3)), ((2, 0.0), (4, 2e-3), (8, 0.0), (8, 2e-3)))
LOADS = (0.3, 0.5, 0.65, 0.8, 0.9)
# Of a level, and of the one that shows the highest rate.
REQUESTS, FULL_REQUESTS = 800, 200
# The same of the servers with other orders.
SECONDS = 8.0
KNEE_BATCH, KNEE_DELAY = 4, 2e-3
# The limit of p95, in seconds of a full batch; the levels that confirm what was found.
KNEE_BATCHES, CONFIRMED_SECONDS = 3.0, 60.0
# These levels: a share of the rate that was found, and so far below and above its interval.
KNEE_LOAD, ASIDE = 0.6, 0.05
# Too many requests, in times of the rate of batches that are called here.
TOO_MANY = 1.5
WIDTH, DEPTH = 3072, 10
CHANNELS, SIZE, CONVOLUTIONS, PACED_SECONDS = 32, 16, 6, 0.02
REQUEST_SECONDS = 0.005  # that each request of a batch adds, where settings are compared

Made = tuple[nn.Module, torch.Tensor]


def model() -> Made:
    """Return layers with 38 MB of weights each."""
    torch.manual_seed(0)
    layers = [part for _ in range(DEPTH) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*layers).eval(), torch.randn(1, WIDTH)


class Paced(nn.Module):
    """Convolutions, and a wait until so many seconds have passed since they began."""

    def __init__(self, request_seconds: float) -> None:
        super().__init__()
        self.request_seconds = request_seconds
        self.layers = nn.Sequential(
            *(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(CONVOLUTIONS))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the convolutions do, when the time has passed."""
        end = time.perf_counter() + PACED_SECONDS + self.request_seconds * len(x)
        y = self.layers(x)
        time.sleep(max(0.0, end - time.perf_counter()))
        return y


def paced_model(request_seconds: float = 0.0) -> Made:
    """Return a model whose batches of a size always take the same time."""
    torch.manual_seed(0)
    return Paced(request_seconds).eval(), torch.randn(1, CHANNELS, SIZE, SIZE)


def batch_seconds(batch: int, made: Made) -> float:
    """Return the median seconds of a batch, called here."""
    module, example = made
    inputs = torch.cat([example] * batch)
    seconds = []
    with torch.inference_mode():
        for _ in range(25):
            began = time.perf_counter()
            module(inputs)
            seconds.append(time.perf_counter() - began)
    return float(np.median(seconds[5:]))


def measure(folder: Path, part: int, *, paced: bool) -> None:
    """Put the servers of a part under load, and save a record of each."""
    folder.mkdir(parents=True, exist_ok=True)
    made = paced_model(REQUEST_SECONDS) if paced else model()
    for batch, delay in PARTS[part]:
        server = {"max_batch": batch, "max_delay": delay, "seed": batch}
        too_many = TOO_MANY * batch / batch_seconds(batch, made)
        full = tg.measure_serving(*made, rate=too_many, requests=FULL_REQUESTS, **server)
        highest = BatchModel.from_times(service_times(full)).highest_rate(Workers(1, batch, delay))
        serving = tg.measure_serving(
            *made, rate=[load * highest for load in LOADS], requests=REQUESTS, **server
        )
        serving.save(folder / f"{batch}-{delay * 1e3:g}.json")
        print(batch, delay, [level.label for level in serving.levels], flush=True)


def measure_knee(folder: Path) -> None:
    """Search the capacity of a server, then put others under the rate found and above it."""
    folder.mkdir(parents=True, exist_ok=True)
    limit = KNEE_BATCHES * batch_seconds(KNEE_BATCH, paced_model())
    goals = f"p95<{limit * 1e3:.2f}ms"
    server = {"goals": goals, "max_batch": KNEE_BATCH, "max_delay": KNEE_DELAY}
    searched = tg.measure_serving(*paced_model(), rate="auto", **server)
    searched.save(folder / "searched.json")
    print(goals, searched.capacity, flush=True)
    interval = searched.capacity.interval
    if interval is None:
        return
    rates = (KNEE_LOAD * interval.low, (1 - ASIDE) * interval.low, (1 + ASIDE) * interval.high)
    again = tg.measure_serving(
        *paced_model(), rate=rates, duration=CONFIRMED_SECONDS, seed=99, **server
    )
    again.save(folder / "confirmed.json")
    print([(level.label, level.verdict, level.goals[0].value) for level in again.levels])
    report_knee(folder)


def orders(folder: Path) -> None:
    """Print which servers a plan refuses, from a level of load on each."""
    folder.mkdir(parents=True, exist_ok=True)
    highest = 1 / batch_seconds(1, model())
    script = Path(__file__).with_name("order_server.py")
    for order, load in (("fifo", 0.75), ("lifo", 0.75), ("queues", 1.1), ("shed", 1.3)):
        process = subprocess.Popen(
            [sys.executable, str(script), order],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with process:
            url = f"http://127.0.0.1:{int(process.stdout.readline())}/"
            serving = tg.measure_serving(url, rate=load * highest, duration=SECONDS)
            process.stdin.close()
        serving.save(folder / f"{order}.json")
        print(order, level_checks(serving, service_times(serving))[1] or "accepted", flush=True)


class Row(NamedTuple):
    """A figure of a level at a share of the highest rate, and how it was predicted.

    `late` is by how many seconds the client was late (p99), where that is too much.
    """

    level: str
    load: float
    check: Check
    late: float | None

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.check.predicted.value / self.check.measured.value - 1

    def text(self) -> str:
        """Return it as a line."""
        predicted, measured = self.check.predicted, 1e3 * self.check.measured.value
        low, high = predicted.interval.low, predicted.interval.high  # type: ignore[union-attr]
        outside = "" if self.check.inside else "outside"
        late = "" if self.late is None else f"client late by {self.late * 1e3:.1f} ms"
        return (
            f"  {self.level:18} load {self.load:4.2f}  {self.check.figure:12}"
            f" {predicted.value * 1e3:8.2f} ms [{low * 1e3:7.2f}, {high * 1e3:7.2f}]"
            f"  measured {measured:8.2f}  {100 * self.error:+6.1f} % {outside} {late}"
        )


def held_out(serving: Serving, level: Level) -> Iterator[Row]:
    """Yield the figures of a level, predicted from the server's other levels."""
    others = tuple(other for other in serving.levels if other is not level)
    batches, order = of_requests(other.requests for other in others)
    times = replace(serving.service_times, batches=batches, order=order)
    times = service_times(replace(serving, levels=others, service_times=times))
    workers = Workers(1, times.max_batch or 1, times.max_delay or 0.0)
    made = BatchModel.from_times(times)
    load = (level.offered or 0.0) / made.highest_rate(workers)
    for check in checks(made, level, workers):
        late = level.client is not None and level.client.limited
        yield Row(level.label, load, check, level.client.lateness_p99 if late else None)


def report(folder: Path) -> None:
    """Print each figure, and how many agree."""
    rows: list[Row] = []
    for batch, delay in itertools.chain(*PARTS):
        serving = tg.load(folder / f"{batch}-{delay * 1e3:g}.json")
        refused = level_checks(serving, service_times(serving))[1]
        print(f"batch {batch}, delay {delay * 1e3:g} ms: {refused or 'accepted'}")
        for level in serving.levels:
            if level.saturation is not None and level.saturation.saturated:
                print(f"  {level.label}: saturated")
            else:
                rows += held_out(serving, level)
        print(*(row.text() for row in rows if row.check.rate in rates(serving)), sep="\n")
    for which, (figure, limit) in itertools.product(
        ("all", "client on time"), (("latency p50", 0.1), ("latency p99", 0.2))
    ):
        judged = [
            row for row in rows
            if row.check.figure == figure and (which == "all" or row.late is None)
        ]  # fmt: skip
        errors = np.array([abs(row.error) for row in judged])
        print(
            f"{which}, {figure}: {len(errors)} levels, within {limit:.0%}:"
            f" {np.mean(errors <= limit):.0%},"
            f" median {np.median(errors):.1%}, 9 of 10 {np.quantile(errors, 0.9):.1%},"
            f" most {errors.max():.1%};"
            f" inside the interval {np.mean([row.check.inside for row in judged]):.0%}"
        )


def rates(serving: Serving) -> set[float | None]:
    """Return the rates of a record's levels."""
    return {level.arrivals.rate for level in serving.levels}


def report_knee(folder: Path) -> None:
    """Print the knee of plans beside the one that was found."""
    searched = tg.load(folder / "searched.json")
    goals = " ".join(goal.text for goal in searched.goals)
    print(f"searched: {searched.capacity}")
    for name in ("confirmed.json", "searched.json"):
        plan = tg.plan_capacity(
            tg.load(folder / name), rate=searched.capacity.rate, goals=goals, workers=1
        )
        print(f"by the service times of {name}: {plan.settings[0].knee}")


def main() -> None:
    """Measure, or print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("measure", "report", "knee", "orders"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        if name == "measure":
            command.add_argument("part", type=int, choices=range(len(PARTS)))
            command.add_argument("--paced", action="store_true", help="batches take given times")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.command == "measure":
        measure(arguments.folder, arguments.part, paced=arguments.paced)
    elif arguments.command == "orders":
        orders(arguments.folder)
    elif arguments.command == "knee":
        measure_knee(arguments.folder)
    else:
        report(arguments.folder)


if __name__ == "__main__":
    main()
