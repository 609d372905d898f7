"""The builds that gates and experiments run: of a request, of a revision, of objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from torchgauge.errors import InputError, TorchgaugeError, option_conflict
from torchgauge.gates.gate_options import BaseRequest, GateOptions
from torchgauge.gates.paired_gate import gate_builds
from torchgauge.measure.advice.check import CheckResult, CheckSource, check_sent
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes.processes import ask
from torchgauge.measure.processes.waiting_process import Build
from torchgauge.progress import Progress
from torchgauge.records.comparison import Comparison
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.verdict import Verdict
from torchgauge.targets.builds.home import Home
from torchgauge.targets.builds.revision import Revision, checked_out, with_environment
from torchgauge.targets.builds.source import Source
from torchgauge.targets.runtimes.runtime_options import in_runtime, is_program
from torchgauge.targets.target import TargetRequest
from torchgauge.targets.training.named_training import NamedLoss, requested_training
from torchgauge.targets.training.training import Training

ModelWithInputs = tuple[Callable[..., Any], Any]
PAIR = 2


def request_build(request: TargetRequest, label: str = "current") -> Build:
    """Return the build that a request names, for a process that is like this one."""
    source, options = Source.of_request(request), LatencyOptions(train=requested_training(request))
    return Build(source, options, None, label, request.spec)


def side_request(request: TargetRequest, spec: str) -> TargetRequest:
    """Return the request of another target beside the requested one.

    Raises InputError `option-conflict` where both are programs of one ExecuTorch record.
    """
    program = is_program(spec)
    if request.etrecord is not None and program and spec != request.spec:
        raise option_conflict(
            "--etrecord belongs to one program, and two are compared.",
            "Leave it out, or profile each with its own record and compare the two.",
        )
    return dataclasses.replace(request, spec=spec, etrecord=request.etrecord if program else None)


def object_build(label: str, pair: ModelWithInputs, train: Training | bool | None) -> Build:
    """Return the build of a model with its inputs. Raises InputError `gate-sides`."""
    if len(pair) != PAIR:
        raise InputError(
            f"The {label} is a tuple of {len(pair)}.",
            id="gate-sides",
            remedy="Give (model, inputs).",
        )
    source = Source.of_object(*pair, training=bool(train))
    return Build(source, LatencyOptions(train=Training.resolve(train)), None, label)


def revision_build(current: Build, revision: Revision) -> Build:
    """Return the same build as the revision has it."""
    request = current.source.target
    assert isinstance(request, TargetRequest)  # noqa: S101 - `request_build` made it
    weights, etrecord = (
        None if file is None else Path(revision.file(str(file)))
        for file in (request.weights, request.etrecord)
    )
    spec = revision.target(request.spec)
    source = Source.of_request(
        dataclasses.replace(request, spec=spec, weights=weights, etrecord=etrecord)
    )
    options = current.options
    if options.train is not None and isinstance(options.train.loss, NamedLoss):
        loss = NamedLoss(revision.target(options.train.loss.spec))
        options = dataclasses.replace(options, train=dataclasses.replace(options.train, loss=loss))
    return Build(source, options, revision.home, f"base ({revision.ref})", current.spec)


def gate_targets(
    request: TargetRequest, base: BaseRequest, options: GateOptions, progress: Progress
) -> Verdict:
    """Return the verdict on a target. Raises what checking out, loading and running raise."""
    current = request_build(request)
    if base.target is not None:
        base_build = request_build(side_request(request, base.target), "base")
        return gate_builds(base_build, current, options, progress)
    assert base.ref is not None  # noqa: S101 - `BaseRequest` has one of the two
    progress.start(f"checking out {base.ref}")
    with checked_out(base.ref, request.spec) as revision:
        if base.environment == "build":
            revision = with_environment(revision)
        base_build = revision_build(current, revision)
        current = current._replace(home=Home.current(foreign=str(revision.tree)))
        notes = tuple(
            MeasurementWarning(id="base-note", message=note, probe="gate")
            for note in revision.notes
        )
        try:
            return gate_builds(base_build, current, options, progress, notes)
        except TorchgaugeError as error:
            # An import that fails may be of a submodule that is not there.
            absent = [note for note in revision.notes if note.startswith("The base has")]
            error.cause = " ".join([error.cause, *absent])
            raise


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
        checked, interrupted = ask(check_sent, CheckResult, source, LatencyOptions())
    except TorchgaugeError as error:
        warning = MeasurementWarning.from_error(error, "outputs")
        return _warned(comparison, warning)
    if interrupted:
        message = "Ctrl-C ended the comparison of the outputs."
        return _warned(comparison, MeasurementWarning(id="interrupted", message=message))
    check = checked.output
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
