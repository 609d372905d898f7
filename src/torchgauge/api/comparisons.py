"""Compare two runs, saved or given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from torchgauge.api.records import generation_of, labels_of, loaded, serving_of
from torchgauge.records.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torchgauge.records.comparison import Comparison, Regressions
    from torchgauge.records.generation.generation import Generation
    from torchgauge.records.serving.serving import Serving
    from torchgauge.records.snapshot import Growth, Snapshot
    from torchgauge.records.trace.trace import Trace
    from torchgauge.records.trace.trace_diff import TraceDiff
    from torchgauge.targets.training.training import Training

    Model = tuple[Callable[..., Any], Any]
    Compared = Generation | Profile | Serving | Trace | Snapshot | str | Path | Model


def compare(
    baseline: Compared,
    current: Compared,
    *,
    train: Training | bool | None = None,
    blocks: int | None = None,
    progress: bool | None = None,
) -> Comparison | TraceDiff | Growth:
    """Compare two records, or the files that hold them: every metric, layers, operators, kernels.

    Times are judged only on the same machine, software and settings, with six or more processes on
    each side (`processes=10`); exact figures always if the inputs are the same. Two pairs (model,
    inputs) are run in turn, in `blocks` of four fresh processes that get them by value; with
    `train` a training step of them. Two generations are compared shape by shape, two records of
    load level by level. For two traces,
    or folders with the ranks' files, the result is what got slower, for two memory snapshots what
    grew.

    Raises InputError `file-missing`, `not-a-profile`, `gate-sides`; RecordError as `load`; for
    models what running raises; for traces and snapshots as `read_trace` and `read_snapshot`.

    Examples:
        >>> import torch, torchgauge as tg
        >>> model, x = torch.nn.Linear(4, 2), torch.ones(8, 4)
        >>> baseline = tg.profile(model, x, effort="quick", detail="summary")
        >>> changes = tg.compare(baseline, baseline).changes
        >>> [change.judgement for change in changes if change.metric == "flops"]
        ['same']
    """
    if isinstance(baseline, tuple) and isinstance(current, tuple):
        from torchgauge.api.gates import compare_models

        return compare_models(baseline, current, train=train, blocks=blocks, progress=progress)
    if isinstance(baseline, tuple) or isinstance(current, tuple):
        from torchgauge.gates.gate_options import model_and_record

        raise model_and_record("A model cannot be compared with a record.")
    if comparison := _compared_recordings(baseline, current):
        return comparison
    old, new = generation_of(baseline), generation_of(current)
    if old is not None and new is not None:
        from torchgauge.analyze.compare.shapes import compare_generations

        return compare_generations(old, new, labels=labels_of(baseline, current))
    loads = serving_of(baseline), serving_of(current)
    if loads[0] is not None and loads[1] is not None:
        from torchgauge.analyze.compare.compared_levels import compare_servings

        return compare_servings(loads[0], loads[1], labels=labels_of(baseline, current))
    from torchgauge.analyze.compare.compare import compare as compared
    from torchgauge.gates.host_noise import host_noise

    sides = [loaded(cast("Profile | str | Path", side)) for side in (baseline, current)]
    noise = host_noise(*sides)
    return compared(sides[0], sides[1], labels=labels_of(baseline, current), noise=noise)


def _compared_recordings(baseline: Any, current: Any) -> TraceDiff | Growth | None:
    """Return the comparison of two traces or snapshots, None where the sides are neither."""
    from torchgauge.api.records import compare_snapshots
    from torchgauge.api.traces import compare_traces
    from torchgauge.readers.tables import evidence

    kind = evidence(baseline, current)
    if kind is None:
        return None
    compared: Any = {"trace": compare_traces, "snapshot": compare_snapshots}[kind]
    return cast("TraceDiff | Growth", compared(baseline, current))


def detect_regressions(
    baseline: Generation | Profile | str | Path, current: Generation | Profile | str | Path
) -> Regressions:
    """Return the metrics that got worse: falsy if none did; printed by metric and change.

    With fewer than six processes on a side, latency counts only beyond the host's noise floor (20 %
    where it was never calibrated), and is inconclusive below it. Of two generations the metrics of
    each shape count beyond 20 %.

    Raises as `compare`.

    Examples:
        >>> import torch, torchgauge as tg
        >>> model, x = torch.nn.Linear(4, 2), torch.ones(8, 4)
        >>> baseline = tg.profile(model, x, effort="quick", detail="summary")
        >>> bool(tg.detect_regressions(baseline, baseline))
        False
    """
    from torchgauge.analyze.compare.regressions import generation_regressions, regressions
    from torchgauge.gates.host_noise import host_noise

    sides = generation_of(baseline), generation_of(current)
    if sides[0] is not None and sides[1] is not None:
        return generation_regressions(sides[0], sides[1])
    old, new = (loaded(cast("Profile | str | Path", side)) for side in (baseline, current))
    return regressions(old, new, noise=host_noise(old, new))
