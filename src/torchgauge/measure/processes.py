"""A measurement repeated in fresh processes: what varies between runs shows only there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import cloudpickle
import msgspec
import torch

from torchgauge.errors import InputError, MeasurementError
from torchgauge.measure.latency import LatencyOptions
from torchgauge.model.latency import LatencyRun
from torchgauge.progress import Progress
from torchgauge.target.source import Source

# Starting Python, importing torch and building the model come on top of the sampling.
START_LIMIT = 900.0
BUDGET_FACTOR = 10.0
LONGEST = 3600.0


class ChildAnswer(msgspec.Struct):
    """What a child process writes: its run, or the error that ended it."""

    run: LatencyRun | None = None
    error: dict[str, str] = msgspec.field(default_factory=dict)


def in_fresh_process(source: Source, options: LatencyOptions) -> LatencyRun:
    """Measure latency in a new Python process and return its run.

    Raises InputError `not-picklable`; MeasurementError `child-killed`, `child-timeout`,
    `child-failed`, and whatever error the measurement itself ended with.
    """
    with tempfile.TemporaryDirectory(prefix="torchgauge-") as folder:
        request, answer = Path(folder, "request"), Path(folder, "answer")
        request.write_bytes(_pack(source, options))
        command = [sys.executable, "-m", "torchgauge.measure.child", str(request), str(answer)]
        limit = START_LIMIT + BUDGET_FACTOR * min(options.plan.time_limit, LONGEST)
        code, stderr = _run(command, limit)
        if answer.exists():
            return _read(answer.read_bytes())
    raise _died(code, stderr)


def _pack(source: Source, options: LatencyOptions) -> bytes:
    try:
        body = cloudpickle.dumps((source, options))
    except Exception as error:
        raise InputError(
            "The model cannot be sent to a fresh process.",
            id="not-picklable",
            cause=f"{type(error).__name__}: {error}",
            remedy="Use processes=1, or name it as file.py:factory on the command line.",
        ) from error
    settings = {"threads": torch.get_num_threads(), "path": sys.path, "folder": str(Path.cwd())}
    return bytes(cloudpickle.dumps({**settings, "body": body}))


def _run(command: list[str], limit: float) -> tuple[int, str]:
    # What the user's model prints must not land in our standard output (it may be JSON).
    environment = dict(os.environ)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=environment, text=True, errors="replace",
    ) as child:  # fmt: skip
        try:
            _, stderr = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            child.kill()
            raise MeasurementError(
                "A measuring process did not finish in time and was stopped.",
                id="child-timeout",
                cause=f"It was still running after {limit:.0f} s.",
                remedy="Check that the model's forward returns; use a smaller --budget.",
            ) from None
        except BaseException:
            child.kill()
            raise
    return child.returncode, stderr


def _read(data: bytes) -> LatencyRun:
    answer = msgspec.json.decode(data, type=ChildAnswer)
    if answer.run is not None:
        return answer.run
    raise MeasurementError(
        answer.error["message"],
        id=answer.error["id"],
        cause=answer.error["cause"],
        remedy=answer.error["remedy"],
    )


def _died(code: int, stderr: str) -> MeasurementError:
    last = "\n".join(stderr.strip().splitlines()[-5:])
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (the system's out-of-memory killer sends it)" if name == "SIGKILL" else ""
        return MeasurementError(
            f"A measuring process was killed by {name}.",
            id="child-killed",
            cause=f"Signal {-code}{hint}. {last}".strip(),
            remedy="Try a smaller batch; run it with --processes 1 to see where it dies.",
        )
    return MeasurementError(
        "A measuring process ended without a result.",
        id="child-failed",
        cause=f"Exit code {code}. {last}".strip(),
        remedy="Run it with --processes 1 to see what the model does.",
    )


def repeated(source: Source, options: LatencyOptions, progress: Progress) -> list[LatencyRun]:
    """Return one run from each of `options.processes` fresh processes, one after the other.

    Ctrl-C ends the repetition; what was measured until then is returned, if it is anything.
    """
    runs: list[LatencyRun] = []
    for number in range(options.processes):
        progress.update(f"process {number + 1} of {options.processes}", number / options.processes)
        try:
            runs.append(in_fresh_process(source, options.shared()))
        except KeyboardInterrupt:
            if not runs:
                raise
            runs[-1] = msgspec.structs.replace(runs[-1], stop="interrupted")
            break
    return runs
