"""The gate of a target against a git revision of it, or against another target."""

from __future__ import annotations

from torchgauge.errors import TorchgaugeError
from torchgauge.gates.builds import request_build, revision_build, side_request
from torchgauge.gates.gate_options import BaseRequest, GateOptions
from torchgauge.gates.paired_gate import gate_builds
from torchgauge.progress import Progress
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.verdict import Verdict
from torchgauge.targets.builds.home import Home
from torchgauge.targets.builds.revision import checked_out
from torchgauge.targets.builds.revision_environment import with_environment
from torchgauge.targets.target import TargetRequest


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
