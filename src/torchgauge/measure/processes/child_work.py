"""What a measuring process does: it takes a request, measures, and writes the answer to a file."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.files import write_atomically
from torchgauge.measure.latency.latency import measure
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes.processes import ChildAnswer, Request
from torchgauge.measure.timeline import layer_times
from torchgauge.records.finding import Failure
from torchgauge.records.latency.latency import LatencyRun
from torchgauge.targets.builds.home import check_home
from torchgauge.targets.builds.source import Source
from torchgauge.targets.placement import Placement


def answer_to(folder: Path, request: BinaryIO, work: str, foreign: str = "") -> None:
    """Do the requested work, and write the answer, or the error that ended it."""
    try:
        answer = measured(request, work)
        check_home(foreign)
    except TorchgaugeError as error:
        answer = ChildAnswer(failure=Failure.from_error(error))
    write_atomically(folder / "answer", msgspec.json.encode(answer))


def measured(request: BinaryIO, work: str) -> ChildAnswer:
    """Take the parent's settings, then its model, and measure."""
    with request:
        parent_settings, (source, options, timeline) = read_request(request)
    if work == "check":
        from torchgauge.measure.advice import check

        assert isinstance(source, check.CheckSource)  # noqa: S101 - it comes with this work
        return ChildAnswer(checked=check.check(source, original(source, parent_settings), options))
    if work == "layers":
        from torchgauge.measure.advice import check

        assert isinstance(source, check.LayerChoiceSource)  # noqa: S101 - it comes with this work
        return ChildAnswer(layers=check.chosen(source, original(source, parent_settings), options))
    if work == "count":
        from torchgauge.measure.processes.separate_process import count_in_separate_process
        from torchgauge.measure.work import count

        assert isinstance(source, count.CountSource)  # noqa: S101 - it comes with this work
        return ChildAnswer(
            count=count.count(source.target, source.options, count_in_separate_process)
        )
    if work == "parallel":
        from torchgauge.measure.parallel import rank_count

        assert isinstance(source, rank_count.ParallelSource)  # noqa: S101 - it comes with this work
        return ChildAnswer(parallel=rank_count.count_ranks(source))
    if work == "serving":
        from torchgauge.measure.processes.separate_process import ServingSource

        assert isinstance(source, ServingSource)  # noqa: S101 - it comes with this work
        return ChildAnswer(serving=source.serving())
    if work == "profile":
        from torchgauge.measure import plan
        from torchgauge.progress import Silent

        return ChildAnswer(profile=plan.profile(source, options, Silent(), timeline))
    if work == "essentials":
        from torchgauge.measure import essentials

        return ChildAnswer(profile=essentials.measure(source, options))
    placement = opened(source, parent_settings)
    if work == "facts":
        from torchgauge.measure.advice.facts import facts

        return ChildAnswer(facts=facts(placement, options))
    run = measure(placement, options)
    if options.layers and run.stop != "interrupted":
        run = _with_layers(run, placement, options)
    return ChildAnswer(run=run)


def _with_layers(run: LatencyRun, placement: Placement, options: LatencyOptions) -> LatencyRun:
    """Return the run with its layers' times, or as it is where Ctrl-C comes meanwhile."""
    try:
        layers = layer_times.measure(placement, options.train)
    except KeyboardInterrupt:
        return msgspec.structs.replace(run, stop="interrupted")
    return msgspec.structs.replace(run, layer_times=layers.typical)


def read_request(request: BinaryIO) -> tuple[dict[str, Any], Request]:
    """Take the parent's settings, and return them and what is to be measured."""
    from torchgauge.device import settings

    parent_settings = pickle.load(request)  # noqa: S301 - the parent wrote it
    settings.apply(parent_settings)
    measurement = unpacked(request)
    Path(request.name).unlink()  # it holds the model, maybe in memory
    return parent_settings, measurement


def opened(source: Source, parent_settings: dict[str, Any]) -> Placement:
    """Load the target, then set what torch lets a process set a single time.

    What is changed about it comes last, since it may be a setting.
    """
    from torchgauge.targets.changed_target import Changed, changed

    placement = original(source, parent_settings)
    return changed(placement, source.code) if isinstance(source, Changed) else placement


def original(source: Source, parent_settings: dict[str, Any]) -> Placement:
    """Load the target as it is, then set what torch lets a process set a single time."""
    from torchgauge.device import settings
    from torchgauge.measure.forward import running

    with running(source.device or "cpu", "Loading the model"):
        placement = source.open()
    settings.apply(parent_settings, once=True)
    return placement


def unpacked(request: BinaryIO) -> Request:
    """Return what is to be measured; raises InputError `not-picklable` if unpickling fails."""
    try:
        measurement: Request = pickle.load(request)  # noqa: S301 - the parent wrote it
    except Exception as error:  # unpickling imports and runs the user's code
        raise InputError(
            "The model cannot be rebuilt in a fresh process.",
            id="not-picklable",
            cause=f"{type(error).__name__}: {error}",
            remedy="Use processes=1, or name it as file.py:factory on the command line.",
        ) from error
    return measurement
