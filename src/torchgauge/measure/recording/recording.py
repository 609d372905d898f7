"""One recording: work under torch.profiler, exported, read back, its file deleted."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import itertools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler
from torch.profiler import ProfilerActivity, profile

from torchgauge import torch_private
from torchgauge.errors import MeasurementError
from torchgauge.forks import Owner, translating
from torchgauge.records.record import MeasurementWarning
from torchgauge.signals import restoring, started
from torchgauge.temporary import temporary_folder

# Nsight Systems sets it in the process that it watches.
_NSYS = "NSYS_PROFILING_SESSION_ID"


def refuse_inside_another(refusal: str) -> None:
    """Raise MeasurementError `profiler-active` where another of torch's profilers records.

    Two of them cannot record at once: starting the second would end the first silently.
    """
    if other := _recorder():
        raise MeasurementError(
            refusal,
            id="profiler-active",
            cause=f"{other} is recording in this process; a second would end it silently.",
            remedy=f"Measure outside of {other}; if its thread has ended, in another process.",
        )


def _recorder() -> str | None:
    is_here = torch_private.profiler_on()
    if not (is_here or vars(profiler)["_is_profiler_enabled"]):  # there is no public way
        return None
    kind = str(torch_private.profiler_kind()).rpartition(".")[2]
    if kind in ("NVTX", "ITT"):
        return f"torch.autograd.profiler.emit_{kind.lower()}"
    gc.collect()  # a profiler that is lost may be in a cycle
    types = {type(item) for item in gc.get_objects() if type(item) in _RECORDERS and _records(item)}
    if not is_here and (threading.active_count() == 1 or not types):
        return None  # the thread that began it, or all that could end it, is gone
    return f"torch.{'' if profile in types else 'autograd.'}profiler.profile"


_RECORDERS = (profile, profiler.profile)


def _records(recorder: Any) -> bool:
    inner = getattr(recorder, "profiler", recorder)
    return bool(getattr(inner, "entered", False)) and getattr(inner, "kineto_results", None) is None


def slowing() -> list[str]:
    """Return the names of what else watches this process and changes its times."""
    hooks = {"setprofile": sys.getprofile(), "settrace": sys.gettrace()}
    profilers = [
        f"{type(hook).__module__}.{type(hook).__qualname__}, set by sys.{setter}"
        for setter, hook in hooks.items()
        if hook is not None
    ]
    monitoring = getattr(sys, "monitoring", None)  # Python 3.12
    if monitoring is not None:
        names = (monitoring.get_tool(number) for number in range(6))
        profilers += [f"{name}, by sys.monitoring" for name in names if name]
    if _NSYS in os.environ:
        profilers.append("Nsight Systems (nsys)")
    return profilers


def slowed(name: str, probe: str) -> MeasurementWarning:
    """Return the warning that such a profiler was active in a probe."""
    return MeasurementWarning(
        id="other-profiler",
        message=f"Another profiler was active: {name}. It changes what it watches.",
        probe=probe,
        remedy="Measure without it.",
    )


MARK = "tg!"  # names have no quote: it would break the whole exported file


_GLOO = "pt_gloo"  # as its threads' names begin
_LONGEST_END = 0.05  # seconds
# Lines of the profiler's own that tell a user nothing, or what is told as a warning.
_NOISE = (
    b"USDT:",
    b"Memory block of unknown size was allocated before the profiling started",
    b"External init callback must run in same thread",
    b"Requested callback is not found",
    b"Leaked callback handle",
    b"no active profiling session found",
    b"Cancelling current trace request",
    b"gpuGetDeviceCount failed",
)


class Marks:
    """Points in a recording that the recorded program sets itself."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def set(self) -> str:
        """Put an empty range into the recording and return its name."""
        name = f"{MARK}{next(self._numbers)}"
        with torch_private.RecordFunction(name):
            pass
        return name


class Recorder:
    """One recording under torch.profiler of one thread and of autograd's, from `start` to `stop`.

    `shapes` records the operators' inputs and overloads; on a CUDA `device` its work is recorded.
    `memory` records allocations too. With `all_threads` the profiler sees operators of every thread
    and no allocation, and any thread may stop it; but torch then writes into what it has freed, and
    crashes or hangs sooner or later, where another thread is in an operator as it starts or stops.
    """

    def __init__(
        self,
        *,
        memory: bool = False,
        shapes: bool = False,
        device: str = "cpu",
        all_threads: bool = False,
    ) -> None:
        self._memory = memory
        self._owner = Owner()
        self._all_threads = all_threads
        self._thread: threading.Thread | None = None
        cuda = device.startswith("cuda")
        switches: dict[str, Any] = {
            "record_shapes": shapes,
            "profile_memory": memory,
            "experimental_config": _settings(
                profile_all_threads=all_threads, capture_overload_names=shapes
            ),
        }
        self._new: Callable[[], profile | profiler.profile]
        if cuda or "torch._inductor" in sys.modules or _distributed():
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
            self._new = functools.partial(profile, activities=activities, **switches)
        else:
            # torch.profiler imports the compiler to ask about its CUDA graphs, for 1.5 s.
            self._new = functools.partial(profiler.profile, use_kineto=True, **switches)

    def start(self) -> None:
        """Begin, in place of a recording that no thread can end any more.

        Raises MeasurementError `profiler-active` where another profiler records, and
        `profiler-broken` where torch cannot be brought to begin.
        """
        refuse_inside_another("A recording cannot start inside another one.")
        # Every thousandth free of a block that is older than the recording prints a warning,
        # starting with the first in the process: that one is freed here.
        older = torch.empty(1) if self._memory else None
        _end_forks_early()
        with _quiet():
            try:
                self._begin()
            except RuntimeError:
                with translating(_broken):
                    _end_lost()
                    self._begin()
            del older
        self._thread = threading.current_thread()

    def _begin(self) -> None:
        self._profile = self._new()
        self._profile.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """End it.

        Raises MeasurementError `recording-failed` where it is lost: on another thread than that of
        `start`, unless it is of all threads, and where this thread has it no more, as after a
        backward pass in which it began. torch would crash.
        """
        if self._owner.in_fork:  # the threads that recorded are not there
            return
        is_here = threading.current_thread() is self._thread and torch_private.profiler_on()
        if not (self._all_threads or is_here):
            _end_lost()
            raise MeasurementError(
                "A recording must be ended by the thread that began it.",
                id="recording-failed",
                cause="torch keeps it with the thread that is recorded.",
                remedy="Begin and end the timeline in the thread that runs the loop.",
            )
        if _distributed():
            _let_collectives_end()
        with _quiet():
            try:
                self._profile.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            except RuntimeError:
                del self._profile
                _end_lost()
                raise

    def ends_elsewhere(self) -> bool:
        """Return whether another thread, which is still there, has to stop it."""
        return (
            not self._all_threads
            and self._thread is not threading.current_thread()
            and self._thread is not None
            and self._thread.is_alive()
        )

    def export(self, path: Path) -> None:
        """Write the Kineto trace to a file, after `stop` and once."""
        self._profile.export_chrome_trace(str(path))
        if isinstance(self._profile, profile):
            # In a cycle of references 2.9 kB an event would stay until those are collected.
            self._profile.profiler = None
        else:
            self._profile.kineto_results = None


def record(
    work: Callable[[], Any],
    *,
    memory: bool = False,
    shapes: bool = False,
    device: str = "cpu",
    all_threads: bool = False,
) -> bytes:
    """Run `work` under torch.profiler and return the exported Kineto trace.

    The options are those of `Recorder`; raises MeasurementError as its `start` does.
    """
    recorder = Recorder(memory=memory, shapes=shapes, device=device, all_threads=all_threads)
    owner = Owner()
    with started(recorder):
        work()
    owner.end_fork()  # which has no recording to export
    with temporary_folder() as folder:
        path = folder / "recording.json"
        recorder.export(path)
        return path.read_bytes()


@functools.cache
def _end_forks_early() -> None:
    """Have processes that are forked from now on end before torch's libraries are taken down.

    Those wait for threads of the profiler's, for ever or until they abort, which a forked process
    does not have. All of Python has ended by then, with the exit code that it keeps.
    """
    libc = ctypes.CDLL(None)

    def end_early() -> None:
        libc.on_exit(libc._exit, None)  # noqa: SLF001 - called with the exit code, and last
        libc.on_exit(libc.fcloseall, None)  # what C has not written yet

    if hasattr(libc, "on_exit"):  # glibc
        os.register_at_fork(after_in_child=end_early)


def _broken(error: BaseException) -> MeasurementError:
    torch_private.set_profiler_on(False)  # or none could start
    return MeasurementError(
        "torch's profiler does not begin a recording.",
        id="profiler-broken",
        cause=f"An earlier recording was not ended, and it raises {error!r}.",
        remedy="Measure in a process of its own.",
    )


def _end_lost() -> None:
    """End what the process has begun for a recording that its thread cannot end any more.

    The process would crash as it ends. An empty recording takes the lost one's place; torch 2.11
    prepares none then, but begins one in what is prepared already.
    """
    torch_private.set_profiler_on(False)  # or none could start
    if not torch_private.profiler_on():  # the program's own, which ends as well
        empty = profiler.profile(use_kineto=True)
        with _quiet():
            try:
                empty.__enter__()  # type: ignore[no-untyped-call]
            except RuntimeError:
                empty._start_trace()  # type: ignore[no-untyped-call]  # noqa: SLF001
            empty.__exit__(None, None, None)  # type: ignore[no-untyped-call]


def _distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _let_collectives_end(threads: Path = Path("/proc/self/task")) -> None:
    """Wait until gloo's threads sleep, for 50 ms at most.

    They end a collective's event when its results are there already, so that the program may have
    gone on: after the end of the recording they would write into memory that torch has freed.
    """
    deadline = time.monotonic() + _LONGEST_END
    while _collectives_run(threads) and time.monotonic() < deadline:
        time.sleep(_LONGEST_END / 200)


def _collectives_run(threads: Path) -> bool:
    for thread in threads.glob("*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            name, _, fields = thread.read_text().partition("(")[2].rpartition(") ")
            if name.startswith(_GLOO) and fields.startswith("R"):
                return True
    return False


def _settings(**switches: Any) -> Any:
    """Return the profiler's settings; it need not parse the events where torch can skip it.

    torch 2.11 has no such switch, and parses them.
    """
    try:
        return torch_private.RecordingConfig(trace_only=True, **switches)
    except TypeError:
        return torch_private.RecordingConfig(**switches)


@restoring
def _quiet() -> Iterator[None]:
    """Keep the profiler's own lines off the user's terminal; pass on everything else.

    Against Kineto's `USDT:` lines KINETO_LOG_LEVEL works only when set before torch is imported,
    which is the user's business, and it silences warnings too. They are written while the profiler
    starts and stops, so standard error is held back for those milliseconds alone, never while the
    model runs.
    """
    _flush()
    try:
        terminal = os.dup(2)
    except OSError:  # closed: nobody reads it
        yield
        return
    try:
        with tempfile.TemporaryFile() as captured:
            os.dup2(captured.fileno(), 2)
            try:
                yield
            finally:
                _flush()
                os.dup2(terminal, 2)
                captured.seek(0)
                for line in captured:
                    if not any(noise in line for noise in _NOISE):
                        os.write(2, line)
    finally:
        os.close(terminal)


def _flush() -> None:
    with contextlib.suppress(AttributeError, OSError, ValueError):  # a script may have closed it
        sys.stderr.flush()
