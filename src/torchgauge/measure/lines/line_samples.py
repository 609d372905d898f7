"""Samples of the line that runs, by a timer's signal to the main thread."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import sysconfig
import threading
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any

from torchgauge.analyze.timeline.line_times import Spot
from torchgauge.errors import MeasurementError
from torchgauge.folders import PACKAGE
from torchgauge.measure.step import Step
from torchgauge.measure.work.internals import TORCH_FOLDER, never_compiled
from torchgauge.signals import restoring

# Each with its separator: torchvision is not torch.
_TORCHGAUGE = str(PACKAGE) + os.sep
_TORCH = TORCH_FOLDER + os.sep
_LIBRARIES = tuple(
    {_TORCH, _TORCHGAUGE, *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))}
)
SHORTEST = 2000  # ns; a timer of 0 would be none
_STEP = Step.__call__.__code__


class LineSamples:
    """Notes when each sample was due and taken (`perf_counter_ns`), and the user's line.

    The innermost line counts that is neither torch's, a library's nor ours; `sources` are files
    that count though they are a library's. Samples come after random intervals of `interval` ns in
    the mean, exponentially distributed: however long an operator held one up, the next is as likely
    in any moment after it.
    """

    def __init__(self, interval: int, sources: frozenset[str] = frozenset()) -> None:
        self.interval = interval
        self.samples: list[tuple[int, int, Spot | None]] = []
        self._sources = sources
        self._kinds: dict[CodeType, str] = {}
        chance = random.Random(0)  # noqa: S311 - the same at every run
        self._intervals = itertools.cycle(
            [max(int(chance.expovariate(1 / interval)), SHORTEST) for _ in range(9973)]
        )
        self._due = 0
        self._on = False

    @restoring
    def sampling(self) -> Iterator[None]:
        """Take samples until the block ends. Raises MeasurementError `lines-unavailable`."""
        before = _free_timer()
        signal.signal(signal.SIGALRM, self._take)
        signal.siginterrupt(signal.SIGALRM, False)
        self._on = True
        self._arm()
        try:
            yield
        finally:
            # A sample that is due now is still taken: were the timer set again by it, the signal
            # would end the process once nobody handles it.
            self._on = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_IGN)  # drops one that is on its way
            signal.signal(signal.SIGALRM, before)

    def _arm(self) -> None:
        interval = next(self._intervals)
        self._due = perf_counter_ns() + interval
        signal.setitimer(signal.ITIMER_REAL, interval * 1e-9)

    def _take(self, _number: int, frame: FrameType | None) -> None:
        now = perf_counter_ns()
        if not self._on:
            return
        # What runs in our own wrappers is no cost of the user's.
        if frame is None or self._kind(frame.f_code) != "ours":
            self.samples.append((self._due, now, self._spot(frame)))
        self._arm()

    def _spot(self, frame: FrameType | None) -> Spot | None:
        while frame is not None and frame.f_code is not _STEP:
            if self._kind(frame.f_code) == "user's" and frame.f_lineno is not None:
                return Spot(frame.f_code.co_filename, frame.f_lineno)
            frame = frame.f_back
        return None

    def _kind(self, code: CodeType) -> str:
        kind = self._kinds.get(code)
        if kind is None:
            kind = self._kinds[code] = kind_of(code.co_filename, self._sources)
        return kind


never_compiled(LineSamples._take, below=True)  # noqa: SLF001


def kind_of(file: str, sources: frozenset[str] = frozenset()) -> str:
    """Tell whether a source file is the "user's", "ours" or "a library's"."""
    if file in sources:
        return "user's"
    if file.startswith(_TORCHGAUGE):
        return "ours"
    return "a library's" if file.startswith(("<", *_LIBRARIES)) else "user's"


def sources_of(model: Callable[..., Any]) -> frozenset[str]:
    """Return the files that the model's own classes are from, but for torch's."""
    import inspect

    from torchgauge.targets.hygiene import module_of

    owner = module_of(model)
    files = set()
    for kind in () if owner is None else {type(module) for module in owner.modules()}:
        with contextlib.suppress(TypeError, OSError):
            file = inspect.getsourcefile(kind)
            if file is not None and not file.startswith(_TORCH):
                files.add(file)
    return frozenset(files)


def _free_timer() -> Any:
    """Return the signal's handler, where neither it nor its timer is in use."""
    cause = ""
    if threading.current_thread() is not threading.main_thread():
        cause = "Lines are sampled by a signal, which Python handles in the main thread alone."
    elif not hasattr(signal, "setitimer"):
        cause = "This system has no timer that sends signals."
    elif signal.getitimer(signal.ITIMER_REAL)[0] or signal.getsignal(signal.SIGALRM) not in (
        signal.SIG_DFL,
        signal.SIG_IGN,
    ):
        cause = "The program uses the timer's signal (SIGALRM) itself."
    if not cause:
        return signal.getsignal(signal.SIGALRM)
    raise MeasurementError(
        "Time by line cannot be measured here.",
        id="lines-unavailable",
        cause=cause,
        remedy="Measure in the main thread of a program without such a timer, on Linux or macOS.",
    )
