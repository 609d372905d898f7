"""Gate records of generation, shape by shape; nothing is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from torchgauge.analyze.compare.shapes import ShapePair, shape_names, shape_pairs
from torchgauge.analyze.gate.shapes import gate_shapes

if TYPE_CHECKING:
    from torchgauge.gates.gate_options import GateOptions
    from torchgauge.history.baseline import HistoryBaseline
    from torchgauge.records.generation.generation import Generation
    from torchgauge.records.verdict import Verdict


def gate_generations(
    baseline: Generation, current: Generation, options: GateOptions, labels: tuple[str, str]
) -> Verdict:
    """Judge whether any shape of a generation, or its model, got worse."""
    return gate_shapes(
        (baseline.profile(), current.profile()),
        shape_pairs(baseline, current),
        options.tolerances,
        limits=options.limits,
        usual=options.usual,
        labels=labels,
    )


def gate_generation_with_history(
    baseline: HistoryBaseline, current: Generation, options: GateOptions, label: str
) -> Verdict:
    """Judge the shapes of a generation against earlier ones of the history.

    Raises what `HistoryBaseline.profile` raises.
    """
    profiles, names = current.profiles, shape_names(current.done)
    stored = [baseline.profile(profile) for profile in profiles or (current.profile(),)]
    old_label, old = stored[0]
    whole = msgspec.structs.replace(current.profile(), environment=old.environment, size=old.size)
    pairs = zip(names, (run for _, run in stored), profiles, strict=False)
    return gate_shapes(
        (whole, current.profile()),
        [ShapePair(*pair) for pair in pairs],
        options.tolerances,
        limits=options.limits,
        usual=options.usual,
        labels=(old_label, label),
    )
