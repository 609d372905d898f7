"""Gates of records that have several parts: the shapes of a generation, the levels of a load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from torchgauge.analyze.compare.compared_levels import LevelPair, level_pairs
from torchgauge.analyze.compare.shapes import ShapePair, shape_names, shape_pairs
from torchgauge.analyze.gate.load_gate import gate_levels
from torchgauge.analyze.gate.repeated_runs import loaded
from torchgauge.analyze.gate.shape_gate import gate_shapes
from torchgauge.errors import InputError
from torchgauge.records.generation.generation import Generation
from torchgauge.records.serving.serving import Serving

if TYPE_CHECKING:
    from torchgauge.gates.gate_options import GateOptions
    from torchgauge.history.baseline import HistoryBaseline
    from torchgauge.records.verdict import Verdict


def gate_generations(
    baseline: Generation,
    current: Generation,
    options: GateOptions,
    labels: tuple[str, str],
    earlier: Sequence[Generation] = (),
) -> Verdict:
    """Judge whether any shape of a generation, or its model, got worse."""
    return gate_shapes(
        (baseline.profile(), current.profile()),
        shape_pairs(baseline, current),
        options.tolerances,
        limits=options.limits,
        usual=options.usual,
        labels=labels,
        earlier=earlier,
        records=(baseline, current),
        doubt=loaded(current, earlier or [baseline]),
    )


def gate_repeated(
    earlier: Sequence[object], current: object, options: GateOptions, labels: tuple[str, str]
) -> Verdict:
    """Judge a record against several runs of the baseline; the last one is shown beside it.

    Raises InputError `baseline-runs`.
    """
    all_runs = [*earlier, current]
    if any(record in all_runs[:index] for index, record in enumerate(all_runs)):
        raise InputError(
            "A run is given twice.",
            id="baseline-runs",
            cause="Runs tell how far runs differ where each is another one.",
            remedy="Record the baseline several times, each to a file of its own.",
        )
    generations = [run for run in earlier if isinstance(run, Generation)]
    if isinstance(current, Generation) and len(generations) == len(earlier):
        return gate_generations(generations[-1], current, options, labels, generations)
    servings = [run for run in earlier if isinstance(run, Serving)]
    if isinstance(current, Serving) and len(servings) == len(earlier):
        return gate_servings(servings[-1], current, options, labels, servings)
    raise no_repeated_runs(labels[1])


def no_repeated_runs(current: str) -> InputError:
    """Return the error of several runs as the baseline of another record."""
    return InputError(
        f"Several runs cannot be the baseline of {current}.",
        id="baseline-runs",
        cause="Only generations and loads are gated against several runs, by such a run's file.",
        remedy="Give files of `torchgauge generate` or of `torchgauge load`, or a single baseline.",
    )


def gate_with_history(
    baseline: HistoryBaseline, current: Generation | Serving, options: GateOptions, label: str
) -> Verdict:
    """Judge the parts of a record against earlier ones of the history.

    Raises what `HistoryBaseline.profile` raises.
    """
    if isinstance(current, Serving):
        return _serving_with_history(baseline, current, options, label)
    return _generation_with_history(baseline, current, options, label)


def _generation_with_history(
    baseline: HistoryBaseline, current: Generation, options: GateOptions, label: str
) -> Verdict:
    profiles, names = current.profiles, shape_names(current.done)
    stored = [baseline.profile(profile) for profile in profiles or (current.profile(),)]
    old_label, old = stored[0]
    stored_model = msgspec.structs.replace(
        current.profile(), environment=old.environment, size=old.size
    )
    pairs = zip(names, (run for _, run in stored), profiles, strict=False)
    return gate_shapes(
        (stored_model, current.profile()),
        [ShapePair(*pair) for pair in pairs],
        options.tolerances,
        limits=options.limits,
        usual=options.usual,
        labels=(old_label, label),
    )


def gate_servings(
    baseline: Serving,
    current: Serving,
    options: GateOptions,
    labels: tuple[str, str],
    earlier: Sequence[Serving] = (),
) -> Verdict:
    """Judge whether the capacity, or any load of both records, got worse."""
    return gate_levels(
        level_pairs(baseline, current),
        options.tolerances,
        limits=options.limits,
        usual=options.usual,
        labels=labels,
        earlier=earlier,
    )


def _serving_with_history(
    baseline: HistoryBaseline, current: Serving, options: GateOptions, label: str
) -> Verdict:
    pairs = []
    old_label = ""
    for profile in current.profiles or (current.profile(),):
        old_label, stored = baseline.profile(profile)
        level = profile.serving
        levels = () if stored.serving is None else (stored.serving,)
        name = "" if level is None else level.label
        pairs.append(LevelPair(name, stored, profile, (levels, current.levels)))
    return gate_levels(
        pairs,
        options.tolerances,
        limits=options.limits,
        usual=options.usual,
        labels=(old_label, label),
    )
