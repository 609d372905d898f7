"""Judge whether a model got worse: targets named on the command line, or objects in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from torchgauge.api.preparation import measuring, require_torch
from torchgauge.files import is_file
from torchgauge.gates.gate_options import MOST_BLOCKS, BaseRequest, GateOptions, model_and_record
from torchgauge.gates.paired_gate import warnings_of

if TYPE_CHECKING:
    from torchgauge.history.baseline import HistoryBaseline
    from torchgauge.records.comparison import Comparison
    from torchgauge.records.doctor import Noise
    from torchgauge.records.generation.generation import Generation
    from torchgauge.records.profile import Profile
    from torchgauge.records.serving.serving import Serving
    from torchgauge.records.verdict import Verdict
    from torchgauge.targets.target import TargetRequest
    from torchgauge.targets.training.training import Training

STORED_PROCESSES = 10
CALIBRATION_BLOCKS = 10


def gate(
    baseline: Generation
    | Profile
    | Serving
    | str
    | Path
    | list[Generation | Serving | str | Path]
    | tuple[Callable[..., Any], Any],
    current: Generation | Profile | Serving | str | Path | tuple[Callable[..., Any], Any],
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
    records, or the files that hold them, are compared as they are, records of load level by level,
    generations shape by shape; of both `baseline` may be a list of three or more runs, which show
    how far runs differ.
    `tolerance` is texts such as
    "latency:1%:3%": the accepted change, and the change that must be excluded.

    Raises InputError `gate-sides`, `metric-unknown`, `threshold-invalid`; and what running raises.

    Examples:
        >>> import torch, torchgauge as tg
        >>> model, x = torch.nn.Linear(4, 2), torch.ones(8, 4)
        >>> baseline = tg.profile(model, x, effort="quick", detail="summary")
        >>> tg.gate(baseline, baseline, metrics=["flops"]).outcome
        'pass'
    """
    texts = (tolerance,) if isinstance(tolerance, str) else tolerance
    options = GateOptions.parsed(metrics, texts, thresholds, blocks=blocks, max_blocks=max_blocks)
    if not isinstance(baseline, tuple) and not isinstance(current, tuple):
        return gate_records(baseline, current, options)
    if not isinstance(baseline, tuple) or not isinstance(current, tuple):
        raise model_and_record("A model cannot be gated against a record.")
    return _gate_models(baseline, current, train, options, progress)


def gate_records(
    baseline: Generation
    | Profile
    | Serving
    | str
    | Path
    | Sequence[Generation | Serving | str | Path],
    current: Generation | Profile | Serving | str | Path,
    options: GateOptions,
    labels: tuple[str, str] | None = None,
) -> Verdict:
    """Gate two records, or the files that hold them; nothing is run, torch is not needed.

    `labels` are what they are called, by default their paths or roles.

    Raises InputError `file-missing`, `not-a-profile`, `baseline-runs`; RecordError as `load`.
    """
    from torchgauge.analyze.gate.stored_gate import gate as gate_stored_run
    from torchgauge.api.records import generation_of, labels_of, loaded, record_of, serving_of
    from torchgauge.gates import record_gates
    from torchgauge.gates.host_noise import host_noise

    if isinstance(baseline, Sequence) and not isinstance(baseline, str):
        runs_label = labels or (f"{len(baseline)} runs", labels_of("", current)[1])
        runs = [record_of(run) for run in baseline]
        return record_gates.gate_repeated(runs, record_of(current), options, runs_label)
    sides = generation_of(baseline), generation_of(current)
    labels = labels or labels_of(baseline, current)
    if sides[0] is not None and sides[1] is not None:
        return record_gates.gate_generations(sides[0], sides[1], options, labels)
    loads = serving_of(baseline), serving_of(current)
    if loads[0] is not None and loads[1] is not None:
        return record_gates.gate_servings(loads[0], loads[1], options, labels)
    old, new = (loaded(cast("Profile | str | Path", side)) for side in (baseline, current))
    return gate_stored_run(
        old,
        new,
        options.tolerances,
        limits=options.limits,
        usual=options.usual,
        noise=host_noise(old, new),
        labels=labels,
    )


def gate_stored(
    baseline: str | Path | list[str] | HistoryBaseline, request: TargetRequest, options: GateOptions
) -> Verdict:
    """Gate a target, or a saved run of it, against a saved run: a file's, or one of the history.

    Raises what `gate_records` and `HistoryBaseline.profile` raise, and what running raises.
    """
    from torchgauge.api.records import generation_of, load_baseline, serving_of
    from torchgauge.gates import record_gates

    path = Path(request.spec)
    is_record = path.suffix == ".json" and is_file(path)
    parts = generation_of(path) or serving_of(path) if is_record else None
    if isinstance(baseline, list):
        if parts is None:
            raise record_gates.no_repeated_runs(request.spec)
        return gate_records(baseline, parts, options)
    if parts is not None:
        if isinstance(baseline, str | Path):
            return gate_records(baseline, parts, options, (str(baseline), request.spec))
        return record_gates.gate_with_history(baseline, parts, options, request.spec)
    saved = load_baseline(path) if is_record else None
    # A mistake shows now, not after minutes; and the target may change folders.
    stored_run = _stored_run(baseline, request.spec if saved is None else saved.target.spec)
    current = _measured(request) if saved is None else saved
    old_label, old = stored_run(current)
    run_labels = (old_label, "current" if saved is None else request.spec)
    verdict = gate_records(old, current, options, run_labels)
    run_warnings = warnings_of(current, "current") if saved is None else ()
    return msgspec.structs.replace(verdict, warnings=(*verdict.warnings, *run_warnings))


def _stored_run(
    baseline: str | Path | HistoryBaseline, target: str
) -> Callable[[Profile], tuple[str, Profile]]:
    """Return what gives the stored run, with its label, for the current one of `target`."""
    from torchgauge.api.records import load_baseline

    if isinstance(baseline, str | Path):
        labelled = str(baseline), load_baseline(baseline)
        return lambda _: labelled
    baseline.check(target)
    return baseline.profile


def _measured(request: TargetRequest) -> Profile:
    """Profile a target with as many processes as a judgement against a stored run asks for."""
    from torchgauge.api.profiles import profile_request
    from torchgauge.measure.latency.latency_options import LatencyOptions
    from torchgauge.measure.timeline.timeline_options import TimelineOptions

    latency, timeline = LatencyOptions(processes=STORED_PROCESSES), TimelineOptions(roofs=False)
    return profile_request(request, latency, timeline)


def gate_targets(
    request: TargetRequest, base: BaseRequest, options: GateOptions, *, progress: bool | None = None
) -> Verdict:
    """Gate a target against a git revision of it, or against another target.

    Raises what checking out, loading and running raise.
    """
    require_torch()
    from torchgauge.gates.builds import gate_targets as gated

    with measuring(progress) as display:
        return gated(request, base, options, display)


def compare_targets(
    request: TargetRequest,
    baseline: str,
    *,
    blocks: int | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Compare two targets on this machine, run in turn in `blocks` of four processes.

    Of ONNX files, and of a model beside its own, the outputs are compared as well. Raises what
    loading and running raise.
    """
    require_torch()
    from torchgauge.gates.builds import gate_targets as gated
    from torchgauge.gates.builds import with_outputs

    options, base = GateOptions.of_comparison(blocks), BaseRequest(target=baseline)
    with measuring(progress) as display:
        comparison = _compared(gated(request, base, options, display))
        return with_outputs(comparison, request, baseline, display)


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
    options = GateOptions.of_comparison(blocks)
    return _compared(_gate_models(baseline, current, train, options, progress))


def _gate_models(
    baseline: tuple[Callable[..., Any], Any],
    current: tuple[Callable[..., Any], Any],
    train: Training | bool | None,
    options: GateOptions,
    progress: bool | None,
) -> Verdict:
    require_torch()
    from torchgauge.gates.builds import object_build
    from torchgauge.gates.paired_gate import gate_builds

    sides = ("baseline", baseline), ("current", current)
    base, build = (object_build(name, pair, train) for name, pair in sides)
    with measuring(progress) as display:
        return gate_builds(base, build, options, display)


def _compared(verdict: Verdict) -> Comparison:
    assert verdict.comparison is not None  # noqa: S101 - a gate of two builds has one
    return msgspec.structs.replace(verdict.comparison, warnings=verdict.all_warnings)


def calibrate(
    request: TargetRequest, *, blocks: int = CALIBRATION_BLOCKS, progress: bool | None = None
) -> Noise:
    """Time a target against itself in ABBA blocks, and keep what they differ by for gates.

    Raises what loading and running raise; KeyboardInterrupt: half a calibration is none.
    InputError `option-invalid`, `output-unwritable`.
    """
    require_torch()
    from torchgauge.gates.builds import request_build
    from torchgauge.gates.host_calibration import calibrate as calibrated
    from torchgauge.gates.host_calibration import check_blocks

    check_blocks(blocks)
    build = request_build(request)
    with measuring(progress) as display:
        return calibrated(build, blocks, display)
