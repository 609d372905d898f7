"""Judge whether a model got worse: targets named on the command line, or objects in Python."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from torchgauge.analyze.gate.tolerances import USUAL_METRICS
from torchgauge.analyze.statistics.paired import USUAL_BLOCKS
from torchgauge.api.preparation import measuring, prepared, require_torch
from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.files import is_file
from torchgauge.gates.gate_options import MOST_BLOCKS, GateOptions
from torchgauge.gates.gate_warnings import warnings_of
from torchgauge.records.record import MeasurementWarning

if TYPE_CHECKING:
    from torchgauge.measure.latency.latency_options import LatencyOptions
    from torchgauge.measure.processes.waiting_process import Build
    from torchgauge.records.comparison import Comparison
    from torchgauge.records.profile import Profile
    from torchgauge.records.verdict import Verdict
    from torchgauge.targets.builds.revision import Revision
    from torchgauge.targets.target import TargetRequest
    from torchgauge.targets.training.training import Training

PAIR = 2
STORED_PROCESSES = 10
BaseEnvironment = Literal["this", "build"]


@dataclasses.dataclass(frozen=True)
class GateRequest:
    """What the command line names: a target, and how both builds of it are run."""

    target: str
    inputs: tuple[str, ...] = ()
    weights: Path | None = None
    batch: int | None = None
    device: str = "auto"
    precision: str | None = None
    trust: bool = False
    train: bool = False
    loss: str | None = None
    optimizer: str | None = None


def gate(
    baseline: Profile | str | Path | tuple[Callable[..., Any], Any],
    current: Profile | str | Path | tuple[Callable[..., Any], Any],
    *,
    metrics: Sequence[str] = (),
    tolerance: str | Sequence[str] = (),
    thresholds: Sequence[str] = (),
    train: Training | bool | None = None,
    blocks: int | None = None,
    max_blocks: int = MOST_BLOCKS,
    progress: bool | None = None,
) -> Verdict:
    """Judge whether `current` is worse than `baseline`: pass, fail, inconclusive, not comparable.

    Two pairs (model, inputs) are run in turn, in fresh processes that get them by value. Two
    records, or the files that hold them, are compared as they are. `tolerance` is texts such as
    "latency:1%:3%": the accepted change, and the change that must be excluded.

    Raises InputError `gate-sides`, `metric-unknown`, `threshold-invalid`; and what running raises.
    """
    texts = (tolerance,) if isinstance(tolerance, str) else tolerance
    options = GateOptions.parsed(metrics, texts, thresholds, blocks=blocks, max_blocks=max_blocks)
    if not isinstance(baseline, tuple) and not isinstance(current, tuple):
        return gate_records(baseline, current, options)
    if not isinstance(baseline, tuple) or not isinstance(current, tuple):
        raise InputError(
            "A model cannot be gated against a record.",
            id="gate-sides",
            cause="Both models are run in turn, or both records are read.",
            remedy="Give two pairs (model, inputs), or profile the model with processes=10 first.",
        )
    return _gate_models(baseline, current, train, options, progress)


def gate_records(
    baseline: Profile | str | Path,
    current: Profile | str | Path,
    options: GateOptions,
    labels: tuple[str, str] | None = None,
) -> Verdict:
    """Gate two records, or the files that hold them; nothing is run, torch is not needed.

    `labels` are what they are called, by default their paths or roles.

    Raises InputError `file-missing`, `not-a-profile`; RecordError as `load`.
    """
    from torchgauge.analyze.gate.stored_gate import gate as gate_stored_run
    from torchgauge.api.records import labels_of, loaded
    from torchgauge.gates.host_noise import host_noise

    old, new = loaded(baseline), loaded(current)
    return gate_stored_run(
        old,
        new,
        options.tolerances,
        limits=options.limits,
        usual=options.usual,
        noise=host_noise(old, new),
        labels=labels or labels_of(baseline, current),
    )


def gate_stored(baseline: str | Path, request: GateRequest, options: GateOptions) -> Verdict:
    """Gate a target, or a saved run of it, against the saved run `baseline`."""
    current = Path(request.target)
    if current.suffix == ".json" and is_file(current):
        return gate_records(baseline, current, options)
    from torchgauge.api.profiles import profile_request
    from torchgauge.api.records import labels_of, load_baseline

    # A mistake shows now, not after minutes; and the target may change folders.
    stored = load_baseline(baseline)
    request_fields = {
        field.name: getattr(request, field.name) for field in dataclasses.fields(request)
    }
    record = profile_request(**request_fields, processes=STORED_PROCESSES, roofs=False)
    verdict = gate_records(stored, record, options, labels_of(baseline, record))
    all_warnings = (*verdict.warnings, *warnings_of(record, "current"))
    return msgspec.structs.replace(verdict, warnings=all_warnings)


def gate_targets(
    request: GateRequest,
    options: GateOptions,
    *,
    base_ref: str | None = None,
    base_target: str | None = None,
    base_env: BaseEnvironment = "this",
    progress: bool | None = None,
) -> Verdict:
    """Gate a target against a git revision of it, or against another target.

    `base_env` "build" installs the revision's requirements into a separate environment. Raises what
    checking out, loading and running raise; InputError `option-conflict`.
    """
    require_torch()
    from torchgauge.gates.paired_gate import gate_builds

    current = request_build(request)
    with measuring(progress) as display:
        if base_target is not None:
            base = request_build(dataclasses.replace(request, target=base_target), "base")
            return gate_builds(base, current, options, display)
        if base_ref is None:
            raise InputError(
                "There is nothing to gate against.",
                id="option-conflict",
                remedy="Give --base-ref REF, --base-target TARGET or --baseline run.json.",
            )
        display.start(f"checking out {base_ref}")
        with _revision(base_ref, request.target, base_env) as revision:
            base = _base_build(current, request, revision)
            current = current._replace(home=_current_home(revision))
            notes = tuple(
                MeasurementWarning(id="base-note", message=note, probe="gate")
                for note in revision.notes
            )
            try:
                return gate_builds(base, current, options, display, notes)
            except TorchgaugeError as error:
                # An import that fails may be of a submodule that is not there.
                absent = [note for note in revision.notes if note.startswith("The base has")]
                error.cause = " ".join([error.cause, *absent])
                raise


def compare_targets(
    request: GateRequest,
    baseline: str,
    *,
    blocks: int | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Compare two targets on this machine, run in turn in `blocks` of four processes.

    Raises what loading and running raise.
    """
    options = _comparison_options(blocks)
    return _compared(gate_targets(request, options, base_target=baseline, progress=progress))


def compare_models(
    baseline: tuple[Callable[..., Any], Any],
    current: tuple[Callable[..., Any], Any],
    *,
    train: Training | bool | None = None,
    blocks: int | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Compare two pairs (model, inputs), run in turn in `blocks` of four processes.

    Raises InputError `gate-sides`, and what running raises.
    """
    return _compared(_gate_models(baseline, current, train, _comparison_options(blocks), progress))


def _gate_models(
    baseline: tuple[Callable[..., Any], Any],
    current: tuple[Callable[..., Any], Any],
    train: Training | bool | None,
    options: GateOptions,
    progress: bool | None,
) -> Verdict:
    require_torch()
    from torchgauge.gates.paired_gate import gate_builds

    sides = (("baseline", baseline), ("current", current))
    builds = [_object_build(name, pair, train) for name, pair in sides]
    with measuring(progress) as display:
        return gate_builds(builds[0], builds[1], options, display)


def _comparison_options(blocks: int | None) -> GateOptions:
    """Return what a comparison asks for: all metrics, and no more blocks than these."""
    count = USUAL_BLOCKS if blocks is None else blocks
    metrics = (*USUAL_METRICS, "throughput")
    return GateOptions.parsed(metrics, blocks=count, max_blocks=count, time_always=True)


def _compared(verdict: Verdict) -> Comparison:
    assert verdict.comparison is not None  # noqa: S101 - a gate of two builds has one
    return msgspec.structs.replace(verdict.comparison, warnings=verdict.all_warnings)


def request_build(request: GateRequest, label: str = "current") -> Build:
    """Return the build that a request names, for a process that is like this one."""
    from torchgauge.device.select import resolve
    from torchgauge.measure.processes.waiting_process import Build
    from torchgauge.targets.builds.source import Source
    from torchgauge.targets.target import TargetRequest

    named = TargetRequest(
        spec=request.target,
        inputs=request.inputs,
        weights=request.weights,
        batch=request.batch,
        device=resolve(request.device),
        precision=request.precision,
        training=request.train,
        trust=request.trust,
    )
    options = _timing(named, request.loss, request.optimizer)
    return Build(Source.of_request(named), options, None, label, request.target)


def _timing(named: TargetRequest, loss: str | None, optimizer: str | None) -> LatencyOptions:
    from torchgauge.measure.latency.latency_options import LatencyOptions

    if not named.training:
        return LatencyOptions()
    from torchgauge.targets.training.named_training import named_training

    training = named_training(loss, optimizer, precision=named.precision, device=named.device)
    return LatencyOptions(train=training)


def _base_build(current: Build, request: GateRequest, revision: Revision) -> Build:
    """Return the same build as the revision has it."""
    from torchgauge.measure.processes.waiting_process import Build
    from torchgauge.targets.builds.source import Source
    from torchgauge.targets.target import TargetRequest
    from torchgauge.targets.training.named_training import NamedLoss

    named = current.source.target
    assert isinstance(named, TargetRequest)  # noqa: S101 - `request_build` made it
    weights = None if named.weights is None else Path(revision.file(str(named.weights)))
    spec = revision.target(named.spec)
    source = Source.of_request(dataclasses.replace(named, spec=spec, weights=weights))
    options = current.options
    if options.train is not None and isinstance(options.train.loss, NamedLoss):
        loss = NamedLoss(revision.target(options.train.loss.spec))
        options = dataclasses.replace(options, train=dataclasses.replace(options.train, loss=loss))
    return Build(source, options, revision.home, f"base ({revision.ref})", request.target)


def _current_home(revision: Revision) -> Any:
    from torchgauge.targets.builds.home import Home

    return Home.current(foreign=str(revision.tree))


@contextlib.contextmanager
def _revision(ref: str, target: str, environment: BaseEnvironment) -> Iterator[Revision]:
    from torchgauge.targets.builds.revision import checked_out

    with checked_out(ref, target) as revision:
        if environment == "build":
            from torchgauge.targets.builds.revision_environment import with_environment

            revision = with_environment(revision)
        yield revision


def _object_build(label: str, pair: tuple[Callable[..., Any], Any], train: Any) -> Build:
    from torchgauge.measure.processes.waiting_process import Build

    if len(pair) != PAIR:
        raise InputError(
            f"The {label} is a tuple of {len(pair)}.",
            id="gate-sides",
            remedy="Give (model, inputs).",
        )
    source, options = prepared(pair[0], pair[1], train=train)
    return Build(source, options, None, label)
