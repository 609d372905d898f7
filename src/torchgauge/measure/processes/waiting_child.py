"""The other ends of `waiting` and `fork_server`: time a build when asked, fork for each line."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import pickle
import signal
import statistics
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import BinaryIO

import msgspec
import numpy as np
import torch

from torchgauge.clock import CpuClock, SystemClock
from torchgauge.device.process_counters import Scheduled, scheduled
from torchgauge.device.select import open_device
from torchgauge.errors import TorchgaugeError
from torchgauge.garbage import no_collections
from torchgauge.measure.description import describe
from torchgauge.measure.latency.latency import timed_call
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.latency.sampling import Timing
from torchgauge.measure.processes.child_work import answer_to, read_request
from torchgauge.measure.processes.waiting_process import Answer, Question, not_timed
from torchgauge.measure.step import prepared
from torchgauge.measure.timeline.layer_times import OwnTimes, layer_seconds, synchronized_clock
from torchgauge.records.finding import Failure
from torchgauge.targets.builds.home import check_home
from torchgauge.targets.placement import Placement

WARMUP = 0.5
WARMUP_CALLS = 3
# After waking the caches are others', and threads and clocks have gone to sleep.
WAKING = 0.02
_QUANTILES = {"p90": (0.90, 20), "p95": (0.95, 40), "p99": (0.99, 200)}
_PHASES = ("forward", "backward", "optimizer")


def serve(request: BinaryIO, foreign: str = "") -> None:
    """Answer that the build is ready, and then each question, until standard input ends.

    The two pipes are moved away first: what the user's model prints or reads is not ours.
    """
    questions, answers = _moved(0, os.devnull, "rb"), _moved(1, None, "wb")

    def say(answer: Answer) -> None:
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()

    try:
        with request:
            sent, _ = read_request(request)
        _serve(sent.opened(), sent.options, foreign, questions, say)
    except TorchgaugeError as error:
        say(Answer(failure=Failure.from_error(error)))


def _moved(number: int, replacement: str | None, mode: str) -> BinaryIO:
    """Return a file on what descriptor `number` is, which becomes `replacement`, or stderr."""
    sys.stdout.flush()
    duplicate = os.dup(number)
    if replacement is None:
        os.dup2(2, number)
    else:
        other = os.open(replacement, os.O_RDONLY)
        os.dup2(other, number)
        os.close(other)
    return os.fdopen(duplicate, mode)  # type: ignore[return-value]


def _serve(
    placement: Placement,
    options: LatencyOptions,
    foreign: str,
    questions: BinaryIO,
    say: Callable[[Answer], None],
) -> None:
    if not placement.computes:
        raise not_timed()
    clock, device = SystemClock(), open_device(placement.device)
    with device.current(), prepared(placement, options.train) as step:
        call, cpu_call = (
            timed_call(placement, step, options, by, device) for by in (clock, CpuClock())
        )
        warm = _calls(call, clock.now, WARMUP, WARMUP_CALLS)
        check_home(foreign)
        say(
            Answer(
                step=warm[-1].total * 1e-9,
                target=describe(placement, training=options.train is not None),
                threads=torch.get_num_threads(),
                torch=str(torch.__version__),
            )
        )
        for line in questions:
            question = msgspec.json.decode(line, type=Question)
            _calls(call, clock.now, WAKING, 1)
            before = scheduled(os.getpid())
            timings = _calls(call, clock.now, question.seconds, question.calls)
            metrics = figures(timings, placement.target.batch)
            if question.cpu:
                metrics |= _core_share(before, scheduled(os.getpid()))
                timings = _calls(cpu_call, clock.now, question.seconds / 2, question.calls)
                metrics["cpu_time"] = statistics.median(timing.total for timing in timings) * 1e-9
            own = OwnTimes({}, {})
            if question.layers:
                own = layer_seconds(placement, step, synchronized_clock(clock, device))
            adds_up = not (device.asynchronous or options.staged or options.train is not None)
            say(Answer(figures=metrics, layers=own.typical, fastest=own.fastest if adds_up else {}))


def _calls(
    call: Callable[[], Timing], now: Callable[[], int], seconds: float, min_calls: int
) -> list[Timing]:
    timings: list[Timing] = []
    end = now() + round(seconds * 1e9)
    while len(timings) < min_calls or now() < end:
        timings.append(call())
    return timings


def figures(timings: list[Timing], batch: int | None) -> dict[str, float]:
    """Return the timing metrics of one visit by name; those that it is too short for are absent."""
    totals = [timing.total * 1e-9 for timing in timings]
    median = statistics.median(totals)
    metrics = {"latency": median, "p50": median, "fastest": _fastest(timings)}
    for name, (share, min_samples) in _QUANTILES.items():
        if len(totals) >= min_samples:
            metrics[name] = float(np.quantile(totals, share))
    if batch and median:
        metrics["throughput"] = batch / median
    devices = [timing.device for timing in timings if timing.device is not None]
    if devices:
        metrics["device_time"] = statistics.median(devices)
    for name in _PHASES:
        if name in timings[0].stages:
            metrics[name] = statistics.median(timing.stages[name] * 1e-9 for timing in timings)
    return {name: value for name, value in metrics.items() if value > 0}


def _core_share(before: Scheduled, after: Scheduled) -> dict[str, float]:
    """Return the share of the time in which threads could run that they ran, where it is known."""
    ran = sum(seconds - before[0].get(thread, 0.0) for thread, seconds in after[0].items())
    if before[1] is None or after[1] is None or ran <= 0:
        return {}
    return {"core_share": ran / (ran + max(0.0, after[1] - before[1]))}


def _fastest(timings: list[Timing]) -> float:
    """Return the least seconds of a call; of one in stages the sum of the stages' least ones."""
    stages = [timing.stages or {"": timing.total} for timing in timings]
    return sum(min(stage[name] for stage in stages) for name in stages[0]) * 1e-9


def serve_forks(
    modules: Sequence[str],
    end_with: Callable[[int], None],
    take_the_first: Callable[[int, FrameType | None], None],
) -> None:
    """Import torch and `modules`, then measure in a forked process for each folder named.

    Each line of standard input is "answer" or "wait" and a folder with a request.
    Standard output has lines of what happens: "ready" once all is imported, "forked" with a
    process's number, "ended" with its number and exit code. Nothing of torch runs in this process.
    `end_with` ties a process to its parent, `take_the_first` is its handler of Ctrl-C.
    """
    interruptible = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the measuring process takes it
    questions, answers = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    _import(modules)
    os.write(answers, b"ready\n")
    signal.signal(signal.SIGCHLD, lambda *_: _report_ends(answers))
    with os.fdopen(questions, "rb") as lines:
        for line in lines:
            server = os.getpid()
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(answers)
                os.dup2(nowhere, 1)
                signal.signal(signal.SIGINT, take_the_first if interruptible else signal.SIG_IGN)
                work, _, folder = line.decode().rstrip("\n").partition(" ")
                _measure(work, Path(folder), functools.partial(end_with, server))
            os.write(answers, b"forked %d\n" % child)


def _report_ends(answers: int) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            os.write(answers, b"ended %d %d\n" % (ended[0], os.waitstatus_to_exitcode(ended[1])))


def _import(modules: Sequence[str]) -> None:
    # With torch and all that measuring and answering need, so that no process imports them anew.
    with no_collections():
        for name in modules:
            # What cannot be imported here is told where the model is loaded.
            with warnings.catch_warnings(), contextlib.suppress(Exception):
                warnings.simplefilter("ignore")
                importlib.import_module(name)


def _measure(work: str, folder: Path, end_with_server: Callable[[], None]) -> None:
    """Do the work of one process and end it, without what Python does at an exit."""
    code = 1
    try:
        end_with_server()
        errors = os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(errors, 2)
        request = (folder / "request").open("rb")
        pickle.load(request)  # noqa: S301 - its place, which is the server's
        if work == "wait":
            _wait(folder, request)
        else:
            answer_to(folder, request)
        code = 0
    except BaseException:  # noqa: BLE001 - its text is what the parent shows
        os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(code)


def _wait(folder: Path, request: BinaryIO) -> None:
    for number, (name, flags) in enumerate((("questions", os.O_RDONLY), ("answers", os.O_WRONLY))):
        pipe = os.open(folder / name, flags)
        os.dup2(pipe, number)
        os.close(pipe)
    serve(request)
