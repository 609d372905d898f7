"""What a measuring process does: it takes a request, measures, and writes the answer to a file."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

import msgspec

from torchgauge.device import settings
from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.files import write_atomically
from torchgauge.measure.forward import running
from torchgauge.measure.latency.latency import measure
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.timeline import layer_times
from torchgauge.records.finding import Answer, Failure
from torchgauge.records.latency.latency import LatencyRun
from torchgauge.targets.builds.home import check_home
from torchgauge.targets.builds.source import Source
from torchgauge.targets.changed_target import Changed, changed
from torchgauge.targets.placement import Placement

S = TypeVar("S", bound=Source)
S_co = TypeVar("S_co", bound=Source, covariant=True)
T = TypeVar("T")


class Sent(NamedTuple, Generic[S_co]):
    """What is to be measured and how, in a process under its parent's settings."""

    source: S_co
    options: LatencyOptions
    settings: dict[str, Any]

    def original(self) -> Placement:
        """Load the target as it is, then set what torch lets a process set a single time."""
        with running(self.source.device or "cpu", "Loading the model"):
            placement = self.source.open()
        settings.apply(self.settings, once=True)
        return placement

    def opened(self) -> Placement:
        """Load the target and change it, which comes last, since a change may be a setting."""
        source = self.source
        placement = self.original()
        return changed(placement, source.code) if isinstance(source, Changed) else placement


Work = Callable[[Sent[S]], T]
"""What a process does: a function of a module, whose result JSON can hold."""
Request = tuple[S, LatencyOptions, Work[S, T] | None]


def answer_to(folder: Path, request: BinaryIO, foreign: str = "") -> None:
    """Do the requested work, and write the answer, or the error that ended it."""
    try:
        with request:
            sent, work = read_request(request)
        assert work is not None  # noqa: S101 - whoever waits for questions gets another process
        answer = Answer(work(sent))
        check_home(foreign)
    except TorchgaugeError as error:
        answer = Answer(failure=Failure.from_error(error))
    write_atomically(folder / "answer", msgspec.json.encode(answer))


def measure_latency(sent: Sent[Source]) -> LatencyRun:
    """Time calls, and with them layers where the options say so."""
    placement, options = sent.opened(), sent.options
    run = measure(placement, options)
    if options.layers and run.stop != "interrupted":
        run = _with_layers(run, placement, options)
    return run


def _with_layers(run: LatencyRun, placement: Placement, options: LatencyOptions) -> LatencyRun:
    """Return the run with its layers' times, or as it is where Ctrl-C comes meanwhile."""
    try:
        layers = layer_times.measure(placement, options.train)
    except KeyboardInterrupt:
        return msgspec.structs.replace(run, stop="interrupted")
    return msgspec.structs.replace(run, layer_times=layers.typical)


def read_request(request: BinaryIO) -> tuple[Sent[Any], Work[Any, Any] | None]:
    """Take the parent's settings, and return what is to be measured and the work."""
    parent_settings = pickle.load(request)  # noqa: S301 - the parent wrote it
    settings.apply(parent_settings)
    source, options, work = unpacked(request)
    Path(request.name).unlink()  # it holds the model, maybe in memory
    return Sent(source, options, parent_settings), work


def unpacked(request: BinaryIO) -> Request[Source, Any]:
    """Return what is to be measured; raises InputError `not-picklable` if unpickling fails."""
    try:
        measurement: Request[Source, Any] = pickle.load(request)  # noqa: S301 - the parent wrote it
    except Exception as error:  # unpickling imports and runs the user's code
        raise InputError(
            "The model cannot be rebuilt in a fresh process.",
            id="not-picklable",
            cause=f"{type(error).__name__}: {error}",
            remedy="Use processes=1, or name it as file.py:factory on the command line.",
        ) from error
    return measurement
