"""ABBA blocks: four fresh processes of two builds, timed in turn; the paired run of them."""

from __future__ import annotations

import contextlib
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from torchgauge import units
from torchgauge.analyze.statistics.paired import ESTIMATING_BLOCKS, FourLogs, four_of
from torchgauge.errors import TorchgaugeError
from torchgauge.measure import forward
from torchgauge.measure.processes.fork_server import ForkServer
from torchgauge.measure.processes.processes import fresh_folder
from torchgauge.measure.processes.waiting_process import Answer, Build, Question, waiting
from torchgauge.progress import Progress
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.target import TargetDescription

ABBA = 4
# What Python and torch take in each process beside the model.
PROCESS_MEMORY = 600e6
LEAST_BLOCKS = 2  # blocks without which nothing can be said


@dataclass(frozen=True)
class Pace:
    """How a block is timed: visits by process, seconds and calls of a visit at least.

    After them come visits of their own in which layers are stamped.

    `concurrent`: the four processes wait beside each other, so that their imports overlap and each
    is visited in every round. Else one runs after the other, and is visited once for as long.
    `cpu`: calls are timed by the processes' CPU time too.
    """

    rounds: int = 4
    seconds: float = 0.1
    calls: int = 3
    layer_rounds: int = 3
    concurrent: bool = True
    cpu: bool = False

    @property
    def question(self) -> Question:
        """What a process is asked in one visit."""
        if self.concurrent:
            return Question(self.seconds, self.calls, cpu=self.cpu)
        seconds, calls = self.seconds * self.rounds, self.calls * self.rounds
        return Question(seconds, calls, layers=True, cpu=self.cpu)


def fitting_pace(device: str, models: float) -> Pace:
    """Return how blocks are timed: one process after the other where four would not fit.

    `models` is the bytes that the models of all four take on the device.
    """
    free = forward.free_bytes(device)
    return Pace(concurrent=free is None or models + ABBA * PROCESS_MEMORY < free)


class Timed(NamedTuple):
    """A block: each timing metric by process (A, B, B, A) and round, in SI units.

    `layers` are own seconds by path of each process, `fastest` the least of each of them where they
    add up to a call; `duration` is the seconds it all took.
    """

    figures: dict[str, tuple[tuple[float, ...], ...]]
    layers: tuple[dict[str, float], ...] = ({}, {}, {}, {})
    fastest: tuple[dict[str, float], ...] = ({}, {}, {}, {})
    duration: float = 0.0
    target: TargetDescription | None = None
    threads: int = 0
    torch: str = ""

    def differences(self) -> dict[str, float]:
        """Return d = ln(B ÷ A) of each metric, the mean over the rounds."""
        return {name: log_difference(self.logs(name)) for name in self.figures}

    def logs(self, name: str) -> FourLogs:
        """Return the processes' logs of a metric, each the mean over its rounds."""
        return four_of(
            statistics.fmean(math.log(value) for value in visits) for visits in self.figures[name]
        )

    @property
    def undisturbed(self) -> tuple[float, ...]:
        """The seconds of a call in which no other process disturbs, by process.

        They are the sum of each layer's least time, since some moment of a few calls is quiet for
        each layer even where none is for a whole call. Where layers do not add up to a call, or the
        two builds have others, they are those of the fastest call.
        """
        paths = self.fastest[0].keys()
        if paths and all(parts.keys() == paths for parts in self.fastest):
            return tuple(math.fsum(parts.values()) for parts in self.fastest)
        return tuple(min(visits) for visits in self.figures["fastest"])

    def layer_logs(self, *, fastest: bool = False) -> dict[str, FourLogs]:
        """Return the logs of each layer that all four processes have with a time above 0."""
        by_path = {}
        processes = self.fastest if fastest else self.layers
        for path in processes[0]:
            times = [layers.get(path, 0.0) for layers in processes]
            if min(times) > 0:
                by_path[path] = four_of(map(math.log, times))
        return by_path


def log_difference(logs: FourLogs) -> float:
    """Return d = ln(B ÷ A) from the logs of the four processes in the order A, B, B, A."""
    return (logs[1] + logs[2] - logs[0] - logs[3]) / 2


def block(
    a: Build, b: Build, pace: Pace, limit: float | None = None, server: ForkServer | None = None
) -> Timed:
    """Run one block and return what it timed; no process is left whatever happens.

    After `limit` seconds its processes are killed. Where `server` can fork both sides it does;
    never one alone, since the two would differ by how they began.

    Raises what `waiting.Waiting` does; InputError `not-picklable`, and `output-unwritable` where
    the temporary folder is full.
    """
    began = time.perf_counter()
    end = math.inf if limit is None else time.monotonic() + limit
    builds = (a, b, b, a)
    if server is not None and not all(
        server.serves(build.home, build.variables) for build in (a, b)
    ):
        server = None
    with fresh_folder() as folder:
        runs = _run_concurrently if pace.concurrent else _run_in_turn
        ready, visits, own = runs(builds, pace, folder, end, server)
    common = set(visits[0][0]).intersection(
        *(visit for process_visits in visits for visit in process_visits)
    )
    figures = {
        name: tuple(tuple(visit[name] for visit in process_visits) for process_visits in visits)
        for name in sorted(common)
    }
    return Timed(
        figures=figures,
        layers=tuple(_combined([visit.layers for visit in visits], typical) for visits in own),
        fastest=tuple(_combined([visit.fastest for visit in visits], min) for visits in own),
        duration=time.perf_counter() - began,
        target=ready.target,
        threads=ready.threads,
        torch=ready.torch,
    )


_Run = tuple[Answer, list[list[dict[str, float]]], list[list[Answer]]]


def _run_concurrently(
    builds: Sequence[Build], pace: Pace, folder: Path, end: float, server: ForkServer | None
) -> _Run:
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(waiting(build, folder / str(number), end, server))
            for number, build in enumerate(builds)
        ]
        ready = [process.ready() for process in processes]
        visits: list[list[dict[str, float]]] = [[] for _ in processes]
        # In a new order each time: no build has a place that is better than another.
        sample = random.Random().sample  # noqa: S311 - the global one is the user's
        for _ in range(pace.rounds):
            for number in sample(range(ABBA), ABBA):
                visits[number].append(processes[number].ask(pace.question).figures)
        stamped: list[list[Answer]] = [[] for _ in processes]
        for _ in range(pace.layer_rounds):
            for number in sample(range(ABBA), ABBA):
                stamped[number].append(processes[number].ask(Question(0.0, 1, layers=True)))
    return ready[1], visits, stamped


def typical(times: Sequence[float]) -> float:
    """Return the geometric mean, of which d is the mean of d; 0 where a time is 0."""
    return statistics.geometric_mean(times) if min(times) > 0 else 0.0


def _combined(
    visits: Sequence[dict[str, float]], statistic: Callable[[Sequence[float]], float]
) -> dict[str, float]:
    """Return one value of each layer that all visits have."""
    return {
        path: statistic(times)
        for path in (visits[0] if visits else ())
        if len(times := [visit[path] for visit in visits if path in visit]) == len(visits)
    }


def _run_in_turn(
    builds: Sequence[Build], pace: Pace, folder: Path, end: float, server: ForkServer | None
) -> _Run:
    ready, answers = [], []
    for number, build in enumerate(builds):
        with waiting(build, folder / str(number), end, server) as process:
            ready.append(process.ready())
            answers.append(process.ask(pace.question))
    return ready[1], [[answer.figures] for answer in answers], [[answer] for answer in answers]


@dataclass
class PairedRun:
    """The blocks of a paired run and how often they were judged.

    `interrupted` by Ctrl-C; `hopeless` where the first blocks told that all would not be enough;
    `warnings` hold the error that ended the run early.
    """

    blocks: list[Timed] = field(default_factory=list)
    look_count: int = 0
    interrupted: bool = False
    hopeless: bool = False
    warnings: list[MeasurementWarning] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """True where all planned blocks were run."""
        return not self.interrupted and not self.warnings


def run(
    block: Callable[[], Timed],
    blocks: int,
    most_blocks: int,
    decided: Callable[[Sequence[Timed]], bool],
    progress: Progress,
    hopeless: Callable[[Sequence[Timed], int], bool] = lambda _, __: False,
) -> PairedRun:
    """Run `blocks` blocks, judge, and where nothing is decided as many again, `most_blocks` in all.

    After three blocks `hopeless` tells of them and the most whether to end there. Ctrl-C ends the
    run and keeps the whole blocks. So does an error after two blocks; before them
    it is raised.
    """
    result = PairedRun()
    try:
        extended = min(2 * blocks, most_blocks)
        _extend(result, block, min(ESTIMATING_BLOCKS, blocks), progress)
        result.hopeless = hopeless(result.blocks, extended)
        if result.hopeless:
            return result
        _extend(result, block, blocks, progress)
        result.look_count = 1
        if extended > blocks and not decided(result.blocks):
            progress.start("one extension")
            _extend(result, block, extended, progress)
            result.look_count = 2
    except KeyboardInterrupt:
        result.interrupted = True
    except TorchgaugeError as error:
        if len(result.blocks) < LEAST_BLOCKS:
            raise
        prefix = f"Block {len(result.blocks) + 1}: "
        result.warnings.append(MeasurementWarning.from_error(error, "gate", prefix))
    return result


def _extend(result: PairedRun, block: Callable[[], Timed], to: int, progress: Progress) -> None:
    while len(result.blocks) < to:
        done = len(result.blocks)
        remaining = ""
        if done:
            seconds_per_block = sum(timed.duration for timed in result.blocks) / done
            remaining = f", {units.time(seconds_per_block * (to - done), 2)} left"
        progress.update(f"block {done + 1} of {to}{remaining}", done / to)
        result.blocks.append(block())
