"""A measurement repeated in fresh processes: what varies between runs shows only there.

A child leads a process group of its own (Linux), which a terminal's Ctrl-C does not reach: this
process passes it on. Elsewhere it reaches both, and the child takes the first only (see `child`).

A temporary folder for messages between this process and a fresh one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import cloudpickle
import msgspec

from torchgauge.device import settings
from torchgauge.errors import InputError, MeasurementError, TorchgaugeError, text_of
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes.child_work import Request, S, T, Work, measure_latency
from torchgauge.measure.processes.fork_server import ChildEnd, ForkServer
from torchgauge.progress import Progress
from torchgauge.records.finding import Answer
from torchgauge.records.latency.latency import LatencyRun
from torchgauge.records.record import MeasurementWarning
from torchgauge.targets.builds.home import Home
from torchgauge.targets.builds.source import Source
from torchgauge.targets.hygiene.recursion import deeper, recursion_limit
from torchgauge.temporary import temporary_folder
from torchgauge.workers import NOWHERE, killed_after, worker

CHILD = Path(__file__).with_name("child.py")
# Starting Python, importing torch and building the model come on top of the sampling.
START_LIMIT = 900.0
BUDGET_FACTOR = 10.0
LONGEST = 3600.0
# After an interrupt: for the call that is running, and for the figures of what was measured.
PATIENCE = 5.0
STDERR_TAIL = 4096


def repeated(
    source: Source, options: LatencyOptions, progress: Progress
) -> tuple[list[LatencyRun], list[MeasurementWarning]]:
    """Return one run from each of `options.processes` fresh processes, one after the other.

    The first process that fails, for whatever reason, ends the repetition: the next would run the
    same and most likely fail the same way, after the same wait. The runs before it are returned
    with a `failed` warning that says which process it was; where there is none, its error is
    raised. Ctrl-C ends the repetition as well: the last run has `stop` "interrupted", and where
    nothing was measured KeyboardInterrupt is raised.
    """
    runs: list[LatencyRun] = []
    count = options.processes or 1
    for number in range(1, count + 1):
        try:
            progress.update(f"process {number} of {count}", (number - 1) / count)
            runs.append(in_fresh_process(source, options.shared()))
        except KeyboardInterrupt:
            if not runs:
                raise
            runs[-1] = msgspec.structs.replace(runs[-1], stop="interrupted")
        except TorchgaugeError as error:
            if not runs:
                raise
            return runs, [
                MeasurementWarning.from_error(error, "latency", f"Process {number} of {count}: ")
            ]
        if runs[-1].stop == "interrupted":
            break
    return runs, []


def in_fresh_process(source: Source, options: LatencyOptions) -> LatencyRun:
    """Measure latency in a new Python process, under this one's settings, and return its run.

    On Ctrl-C the run is what the child had until then, with `stop` "interrupted".

    Raises InputError `not-picklable`, `output-unwritable`; MeasurementError `child-killed`,
    `child-timeout`, `child-failed`; whatever error the measurement itself ended with;
    KeyboardInterrupt where the child had nothing.
    """
    run, interrupted = ask(measure_latency, LatencyRun, source, options)
    return msgspec.structs.replace(run, stop="interrupted") if interrupted else run


def ask(
    work: Work[S, T],
    kind: type[T],
    source: S,
    options: LatencyOptions,
    home: Home | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    limit: float | None = None,
    server: ForkServer | None = None,
) -> tuple[T, bool]:
    """Return what a fresh process answers, and whether Ctrl-C ended it before its time.

    `work` is done there, and returns a `kind`.
    `home` is where the target's code lives; None where it lives for this process. `variables` are
    added to the child's environment. It is killed after `limit` seconds, where that is sooner than
    its own limit. `server` forks it where that is the same.

    Raises what `in_fresh_process` does.
    """
    longest = time_limit(options)
    limit = longest if limit is None else min(limit, longest)
    with fresh_folder() as folder:
        write_request(folder / "request", (source, options, work), home)
        if server is not None and server.serves(home, variables):
            end = server.run(folder, limit)
        else:
            end = _run(folder, limit, variables)
        return answer_of(kind, end, folder, limit)


def time_limit(options: LatencyOptions) -> float:
    """Return the seconds after which a child that measures so is stopped."""
    return START_LIMIT + BUDGET_FACTOR * min(options.plan.time_limit, LONGEST)


def answer_of(kind: type[T], end: ChildEnd, folder: Path, limit: float) -> tuple[T, bool]:
    """Return what an ended child has written to `folder`, and whether Ctrl-C ended it.

    Raises what `in_fresh_process` does.
    """
    answer = folder / "answer"
    if end.interrupted:
        try:
            return _read(kind, answer.read_bytes()), True
        except (OSError, TorchgaugeError):
            raise KeyboardInterrupt from None
    # An answer counts however the child ended after writing it.
    if answer.exists():
        return _read(kind, answer.read_bytes()), False
    raise timed_out(limit) if end.late else died(end.code, tail(folder / "stderr"))


def write_request(
    path: Path, request: Request[Any, Any] | tuple[Source, None, None], home: Home | None = None
) -> None:
    """Write what a child reads: where its code lives, the settings, what to measure and how.

    Raises InputError `not-picklable`; OSError where it cannot be written.
    """
    home = home or Home.current()
    # Three pickles, in the order in which the child can read them: see `child`.
    with path.open("wb") as file:
        place = {"path": list(home.path), "folder": home.folder, "foreign": home.foreign}
        cloudpickle.dump(place, file)
        cloudpickle.dump(settings.read(), file)
        try:
            with deeper(recursion_limit()):
                cloudpickle.dump(request, file)
        except OSError:
            raise
        except Exception as error:  # pickling runs the user's code
            raise InputError(
                "The model cannot be sent to a fresh process.",
                id="not-picklable",
                cause=text_of(error),
                remedy="Use processes=1, or name it as file.py:factory on the command line.",
            ) from error


def _run(folder: Path, limit: float, variables: Mapping[str, str]) -> ChildEnd:
    # What the user's model prints must not land in our standard output (it may be JSON). A file
    # for its errors, because a pipe stays open as long as any process that the model started.
    with (
        (folder / "stderr").open("wb") as stderr,
        worker(
            *(CHILD, str(folder), str(os.getpid()), "answer"),
            variables=variables,
            stdin=NOWHERE,
            stdout=NOWHERE,
            stderr=stderr,
        ) as child,
    ):
        try:
            return _wait(child, limit)
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
            return _wait(child, PATIENCE)._replace(interrupted=True)


def _wait(child: subprocess.Popen[bytes], limit: float) -> ChildEnd:
    """Wait for the child, and kill it after `limit` seconds."""
    with killed_after(limit, child) as late:
        return ChildEnd(child.wait(), late.is_set())


def _read(kind: type[T], data: bytes) -> T:
    try:
        answer = msgspec.json.decode(data, type=Answer[kind])  # type: ignore[valid-type]
        return answer.result()
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MeasurementError(
            "What a measuring process wrote cannot be read.",
            id="child-failed",
            cause=str(error),
            remedy="Run it with --processes 1 to see what the model does.",
        ) from error


def tail(file: Path) -> str:
    """Return the last lines of what a child wrote to its standard error."""
    with file.open("rb") as stderr:
        stderr.seek(max(0, file.stat().st_size - STDERR_TAIL))
        text = stderr.read().decode(errors="replace")
    return "\n".join(text.strip().splitlines()[-5:])


def timed_out(limit: float) -> MeasurementError:
    """Return the error of a child that was killed after `limit` seconds."""
    return MeasurementError(
        "A measuring process did not finish in time and was stopped.",
        id="child-timeout",
        cause=f"It was still running after {limit:.0f} s.",
        remedy="Check that the model's forward returns; use a smaller --budget.",
    )


def died(code: int, error_text: str) -> MeasurementError:
    """Return the error of a child that ended with a code, negative for a signal, and no answer."""
    if code < 0:
        signal_names = {number.value: number.name for number in signal.Signals}
        name = signal_names.get(-code, f"signal {-code}")
        hint = " (the system's out-of-memory killer sends it)" if name == "SIGKILL" else ""
        return MeasurementError(
            f"A measuring process was killed by {name}.",
            id="child-killed",
            cause=f"Signal {-code}{hint}. {error_text}".strip(),
            remedy="Try a smaller batch; run it with --processes 1 to see where it dies.",
        )
    return MeasurementError(
        "A measuring process ended without a result.",
        id="child-failed",
        cause=f"Exit code {code}. {error_text}".strip(),
        remedy="Run it with --processes 1 to see what the model does.",
    )


@contextlib.contextmanager
def fresh_folder() -> Iterator[Path]:
    """Yield a new folder that is gone after the block.

    Raises InputError `output-unwritable` where it, or what the block writes there, has no room.
    """
    try:
        with temporary_folder() as folder:
            yield folder
    except OSError as error:
        raise InputError(
            "A measuring process could not be started.",
            id="output-unwritable",
            cause=": ".join(filter(None, (error.strerror or str(error), error.filename))),
            remedy="Free space, or set TMPDIR to a folder that has some.",
        ) from error
