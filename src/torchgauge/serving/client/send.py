"""Send requests by a plan, and return what became of each."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Any

from torchgauge.errors import MeasurementError, TorchgaugeError
from torchgauge.progress import Progress, Silent
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.serving.level import ClientLoad
from torchgauge.records.serving.requests import Fate, Requests
from torchgauge.serving.client.columns import merged
from torchgauge.serving.client.send_plan import SendPlan
from torchgauge.serving.client.sending_loop import ShareResult
from torchgauge.signals import HeldBack, restoring
from torchgauge.workers import end_worker, start_worker

CHILD = Path(__file__).with_name("client_child.py")
_BEGIN_SECONDS = 0.02  # from when all processes are ready
_SHOW_SECONDS = 0.5
_START_SECONDS = 60.0
_GRACE_SECONDS = 60.0  # for the results, after everything must have ended


@dataclass(frozen=True, kw_only=True)
class SentLoad:
    """What was sent, and what became of it.

    Attributes:
        requests: Every request that was due.
        client: Whether the client kept up.
        software: What the server calls itself; empty where it does not say.
        version: The protocol.
        problems: The first error text of each fate, of this machine or of the protocol.
        interrupted: Whether Ctrl-C ended it: requests that were not due yet are left out.
        failed_alike: Whether it ended since the first requests all failed alike, likewise.
        seconds: From the begin until the end of sending and draining.
    """

    requests: Requests
    client: ClientLoad
    software: str = ""
    version: str = "HTTP/1.1"
    problems: dict[Fate, str]
    interrupted: bool = False
    failed_alike: bool = False
    seconds: float

    @property
    def warnings(self) -> Iterator[MeasurementWarning]:
        """What the client met, one warning of each fate that has a text."""
        for fate, text in self.problems.items():
            count = self.requests.fate.count(fate)
            yield MeasurementWarning(
                id=f"requests-{fate}",
                message=f"{count:,} requests ended as '{fate}'."
                + " No other was answered: the load was stopped." * self.failed_alike,
                probe="serving",
                failed=self.failed_alike,
                cause=text,
            )


def send(plan: SendPlan, progress: Progress | None = None) -> SentLoad:
    """Send requests by a plan, from processes that do nothing else.

    Ctrl-C ends it, and what was measured is returned with `interrupted`; a second one is raised.

    Args:
        plan: What to send.
        progress: Is told how far it is.

    Raises InputError `token-missing`, `token-invalid`; MeasurementError `client-failed`.
    """
    with _processes(plan.shares()) as processes:
        begin = _begun(processes)
        interrupted = _watched(processes, begin, plan, progress or Silent())
        results = [process.result for process in processes]
    load = _load([result for result in results if result is not None], begin, interrupted)
    return replace(load, version=plan.protocol)


class _Process:
    """A client process: its pipes, and what it has answered."""

    def __init__(self, plan: SendPlan) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
        self._process = start_worker(CHILD, stderr=self._errors)
        pipes = self._process.stdin, self._process.stdout
        numbers = [os.dup(pipe.fileno()) for pipe in pipes if pipe is not None]
        self._orders = Pipe(numbers[0], readable=False)
        self.answers = Pipe(numbers[1], writable=False)
        self.progress = (0, 0, 0)
        self.result: ShareResult | None = None
        self._plan = plan

    def set_up(self) -> None:
        """Send it its plan."""
        self.order(_import_path())
        self.order(self._plan)

    def order(self, message: object) -> None:
        """Send it an order; one that has ended reads none."""
        with contextlib.suppress(OSError):
            self._orders.send(message)

    def receive(self) -> Any:
        """Return its next answer, which is kept if it is progress or a result.

        Raises what it raised, and MeasurementError `client-failed` where it ended without a result.
        """
        try:
            answer = self.answers.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if isinstance(answer, TorchgaugeError):
            raise answer
        if isinstance(answer, ShareResult):
            self.result = answer
        elif isinstance(answer, tuple):
            self.progress = answer
        return answer

    def end(self) -> None:
        """End it, and free what it has."""
        self._orders.close()
        self.answers.close()
        end_worker(self._process)
        self._errors.close()

    def _died(self) -> MeasurementError:
        code = self._process.wait()
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip().splitlines()
        return MeasurementError(
            "The process that sends requests ended without a result.",
            id="client-failed",
            cause=f"Signal {-code}." if code < 0 else (text[-1] if text else f"Exit code {code}."),
            remedy="If memory ran out, send fewer requests at once (--in-flight, --requests).",
        )


def _import_path() -> list[str]:
    """Return this process's `sys.path`, with the folder of its script at the end.

    A script that has the name of a library (h2.py) would be run in place of that library.
    """
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    own = {"", os.path.dirname(os.path.abspath(script))} if script else {""}  # noqa: PTH100, PTH120
    return sorted(sys.path, key=own.__contains__)


@restoring
def _processes(plans: Sequence[SendPlan]) -> Iterator[list[_Process]]:
    processes: list[_Process] = []
    try:
        for plan in plans:
            processes.append(_Process(plan))  # noqa: PERF401 - those that started are ended
        yield processes
    finally:
        for process in processes:
            process.end()


def _begun(processes: Sequence[_Process]) -> float:
    """Set all processes up, and return the moment at which they begin."""
    for process in processes:
        process.set_up()
    for process in processes:
        if not process.answers.poll(_START_SECONDS):
            raise _stuck("did not start")
        process.receive()
    begin = time.monotonic() + _BEGIN_SECONDS
    for process in processes:
        process.order(begin)
    return begin


def _watched(
    processes: Sequence[_Process], begin: float, plan: SendPlan, progress: Progress
) -> bool:
    """Wait until all have answered, and return whether Ctrl-C ended it."""
    latest = begin + plan.seconds + plan.drain + _GRACE_SECONDS
    interrupted = False
    while open_processes := [process for process in processes if process.result is None]:
        try:
            by_pipe = {process.answers: process for process in open_processes}
            for pipe in wait(list(by_pipe), _SHOW_SECONDS):
                with HeldBack():  # half an answer would be lost
                    by_pipe[pipe].receive()  # type: ignore[index]
            _show(progress, processes, time.monotonic() - begin, plan)
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            latest = time.monotonic() + _GRACE_SECONDS
            for process in open_processes:
                process.order("stop")
        if time.monotonic() > latest:
            raise _stuck("did not end")
    return interrupted


def _show(progress: Progress, processes: Sequence[_Process], now: float, plan: SendPlan) -> None:
    due, done, failed = map(sum, zip(*(process.progress for process in processes), strict=True))
    detail = f"{due:,} due, {done:,} answered" + f", {failed:,} failed" * bool(failed)
    of_queries = 0.0 if plan.count is None else (done + failed) / (plan.count * plan.samples)
    share = max(now / plan.seconds, of_queries, 0.0) if plan.seconds else None
    progress.update(detail, None if share is None else min(share, 1.0))


def _stuck(how: str) -> MeasurementError:
    return MeasurementError(
        f"The process that sends requests {how}.",
        id="client-failed",
        cause="It has not answered in time.",
        remedy="The machine may be overloaded: send fewer requests, or from another machine.",
    )


def _load(results: Sequence[ShareResult], begin: float, interrupted: bool) -> SentLoad:
    requests = merged([result.columns for result in results], begin)
    problems: dict[Fate, str] = {}
    for result in results:
        problems = result.problems | problems
    return SentLoad(
        requests=requests,
        client=_client_load(results, requests),
        software=next((result.software for result in results if result.software), ""),
        problems=problems,
        interrupted=interrupted or any(result.interrupted for result in results),
        failed_alike=any(result.failed_alike for result in results),
        seconds=max(max(result.end_moment for result in results) - begin, 0.0),
    )


def _client_load(results: Sequence[ShareResult], requests: Requests) -> ClientLoad:
    lateness = sorted(late for result in results for late in result.columns.lateness)
    waits = [result.waiting for result in results if result.waiting is not None]
    return ClientLoad(
        processes=len(results),
        connections=sum(result.connections for result in results),
        lateness=_quantile(lateness, 0.5),
        lateness_p99=_quantile(lateness, 0.99),
        lateness_max=lateness[-1] if lateness else None,
        cpu=sum(result.cpu for result in results) / len(requests) if len(requests) else None,
        waiting=max(waits, default=None),
        waited=sum(result.waited for result in results),
        open_files=min((r.open_files for r in results if r.open_files is not None), default=None),
    )


def _quantile(ascending: Sequence[float], fraction: float) -> float | None:
    """Return the value that `fraction` do not exceed (nearest rank)."""
    return ascending[math.ceil(fraction * len(ascending)) - 1] if ascending else None
