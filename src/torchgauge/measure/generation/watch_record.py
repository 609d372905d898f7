"""Make the record of a watch of generation from its calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from torch import nn

from torchgauge.analyze.findings.catalogue import findings
from torchgauge.analyze.generation.cells import cells
from torchgauge.analyze.generation.fits import fits
from torchgauge.device.environment import environment
from torchgauge.errors import TorchgaugeError
from torchgauge.measure.description import describe_module
from torchgauge.measure.generation.call_watch import CallWatch
from torchgauge.measure.generation.timer_cost import timer_cost
from torchgauge.measure.work import size
from torchgauge.records.generation.call import GenerationCall
from torchgauge.records.generation.generation import Generation
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.target import TargetDescription
from torchgauge.records.work.size import Size


def watch_record(watch: CallWatch, *, interrupted: bool, slowing: Sequence[str] = ()) -> Generation:
    """Return the record of what a watch saw; `slowing` are profilers that were active with it."""
    calls = watch.calls
    shapes = cells(calls)
    generation = Generation(
        target=describe_module(watch.model),
        assistant=_described(watch.assistant),
        environment=environment(),
        size=_size(watch.model),
        watched=True,
        cells=shapes,
        fits=fits(shapes),
        overhead=timer_cost(),
        interrupted=interrupted,
        warnings=tuple(_warnings(calls, watch.packed_forwards, slowing)),
    )
    return msgspec.structs.replace(generation, findings=findings(generation))


def _size(model: nn.Module) -> Size | None:
    try:
        return size.measure(model)
    except TorchgaugeError:  # of weights that are not made yet
        return None


def _described(assistant: nn.Module | None) -> TargetDescription | None:
    return None if assistant is None else describe_module(assistant)


def _warnings(
    calls: Sequence[GenerationCall], packed_forwards: int, slowing: Sequence[str]
) -> Iterator[MeasurementWarning]:
    for name in slowing:
        yield MeasurementWarning(
            id="other-profiler",
            message=f"Another profiler was active: {name}. It changes what it watches.",
            probe="generation",
            remedy="Measure without it.",
        )
    if packed_forwards:
        yield MeasurementWarning(
            id="continuous-batching",
            message=f"{packed_forwards:,} forwards of continuous batching (generate_batch) are in "
            "no call.",
            probe="generation",
            cause="Each computes prompts of some requests and steps of others at once: it is "
            "neither a prefill nor a decode step of one shape.",
            remedy="Watch generate(); generate_batch(…, record_timestamps=True) has the times of a "
            "request's tokens.",
        )
    if not calls and not packed_forwards:
        yield MeasurementWarning(
            id="no-generation-seen",
            message="No call of the model was seen.",
            probe="generation",
            cause="The block did not call this model, or a compiled function that contains it did.",
            remedy="Give the model that generates, and compile the model itself.",
        )
    yield from _device_warnings(calls)


def _device_warnings(calls: Sequence[GenerationCall]) -> Iterator[MeasurementWarning]:
    untimed = [call for call in calls if call.device != "cpu" and len(call.forwards)]
    if any(not call.forwards.device for call in untimed):
        yield MeasurementWarning(
            id="device-time-unknown",
            message="Device times of some calls are not known; theirs are those of the host.",
            probe="generation",
            cause="The model is on several devices, or its forwards were captured in a graph.",
        )
