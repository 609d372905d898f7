"""The builds that gates and experiments run: of a request, of a revision, of objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchgauge.errors import InputError
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes.waiting_process import Build
from torchgauge.targets.builds.revision import Revision
from torchgauge.targets.builds.source import Source
from torchgauge.targets.runtimes.runtime_options import is_program
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
        raise InputError(
            "--etrecord belongs to one program, and two are compared.",
            id="option-conflict",
            remedy="Leave it out, or profile each with its own record and compare the two.",
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
