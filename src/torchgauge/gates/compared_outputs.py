"""The outputs of a file that runs in another runtime beside those of the model it was made from."""

from __future__ import annotations

import dataclasses

import msgspec

from torchgauge.errors import TorchgaugeError
from torchgauge.gates.builds import side_request
from torchgauge.measure.advice.check import CheckSource
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes.processes import ask
from torchgauge.progress import Progress
from torchgauge.records.comparison import Comparison
from torchgauge.records.record import MeasurementWarning
from torchgauge.targets.builds.source import Source
from torchgauge.targets.runtimes.runtime_options import in_runtime
from torchgauge.targets.target import TargetRequest

# Of the largest value of an output: what other kernels and their order of sums make of fp32. The
# check allows more where a side is in low precision.
TOLERANCE = 1e-3


def with_outputs(
    comparison: Comparison, request: TargetRequest, baseline: str, progress: Progress
) -> Comparison:
    """Return the comparison with how far the outputs differ, where a side runs in its own runtime.

    Both run in a process of their own on the same inputs, those of the model in torch. What fails
    is a warning: the times hold without it.
    """
    sides = [side_request(request, spec) for spec in (baseline, request.spec)]
    if not any(in_runtime(side.spec) for side in sides):
        return comparison
    sides.sort(key=lambda side: in_runtime(side.spec))
    first, other = map(Source.of_request, sides)
    fields = {field.name: getattr(first, field.name) for field in dataclasses.fields(first)}
    source = CheckSource(**fields, other=other, tolerance=TOLERANCE)
    progress.start("comparing outputs")
    try:
        answer, interrupted = ask("check", source, LatencyOptions())
    except TorchgaugeError as error:
        warning = MeasurementWarning.from_error(error, "outputs")
        return _warned(comparison, warning)
    if interrupted or answer.checked is None:
        message = "Ctrl-C ended the comparison of the outputs."
        return _warned(comparison, MeasurementWarning(id="interrupted", message=message))
    check = answer.checked.output
    compared = msgspec.structs.replace(comparison, outputs=check)
    if check.passed:
        return compared
    return _warned(
        compared,
        MeasurementWarning(
            id="outputs-differ",
            message=f"The two return different outputs for the same inputs. {check.reason}",
            probe="outputs",
            remedy="Export the file from this very model: random weights are others in each "
            "process, unless the target loads or seeds them.",
        ),
    )


def _warned(comparison: Comparison, warning: MeasurementWarning) -> Comparison:
    return msgspec.structs.replace(comparison, warnings=(*comparison.warnings, warning))
