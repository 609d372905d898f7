"""The one launcher of worker processes: our script in a fresh Python, gone after its block."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO

from torchgauge.signals import HeldBack, restoring

CHILD = Path(__file__).with_name("worker_child.py")
NOWHERE, PIPE = subprocess.DEVNULL, subprocess.PIPE


def start_worker(
    script: Path,
    *arguments: str,
    variables: Mapping[str, str] = MappingProxyType({}),
    stdin: int = PIPE,
    stdout: int = PIPE,
    stderr: int | IO[bytes] = NOWHERE,
) -> subprocess.Popen[bytes]:
    """Start a script of ours in a new process of this Python; `end_worker` ends it.

    By its path, without its folder on sys.path: `-m` would import torchgauge before the process
    has the sys.path of this one, which it is to take from what it is sent.

    Args:
        script: The file to run.
        arguments: Its command line.
        variables: Added to the environment of this process.
        stdin: Where it reads from: a pipe, or NOWHERE.
        stdout: Where it writes to.
        stderr: Where its errors go.

    Raises:
        OSError: No process is to be had.
    """
    return subprocess.Popen(
        [sys.executable, "-P", str(script), *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=os.environ | variables,
    )


def calling(function: str) -> tuple[Path, str, str]:
    """Return the script and arguments that call "module:name" with two files in a worker.

    The function reads questions from the first and writes answers to the second.
    """
    return CHILD, function, json.dumps(sys.path)


def open_pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    """Return a pipe of a process that was started with it."""
    assert pipe is not None  # noqa: S101 - it was asked for
    return pipe


def end_worker(child: subprocess.Popen[bytes]) -> None:
    """Kill a process that has not ended, wait for it and close its pipes."""
    with HeldBack():
        child.kill()  # which is nothing where it has ended
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):  # a question that nobody read is lost
                    pipe.close()


@restoring
def worker(
    script: Path,
    *arguments: str,
    variables: Mapping[str, str] = MappingProxyType({}),
    stdin: int = PIPE,
    stdout: int = PIPE,
    stderr: int | IO[bytes] = NOWHERE,
) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a new process as `start_worker` makes it; it is gone after the block."""
    child = start_worker(
        script, *arguments, variables=variables, stdin=stdin, stdout=stdout, stderr=stderr
    )
    try:
        yield child
    finally:
        end_worker(child)


@restoring
def killed_after(seconds: float, child: subprocess.Popen[bytes]) -> Iterator[threading.Event]:
    """Kill a process that still runs after `seconds` of the block, and set the event then.

    `Popen.wait(timeout)` looks 20 times a second, which is work beside a measurement; here a thread
    sleeps.
    """
    late = threading.Event()

    def kill() -> None:
        late.set()
        child.kill()

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
