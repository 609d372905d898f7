"""Judge whether records of load got worse: against another record, or the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchgauge.analyze.compare.levels import LevelPair, level_pairs
from torchgauge.analyze.gate.load_gate import gate_levels

if TYPE_CHECKING:
    from torchgauge.gates.gate_options import GateOptions
    from torchgauge.history.baseline import HistoryBaseline
    from torchgauge.records.serving.serving import Serving
    from torchgauge.records.verdict import Verdict


def gate_servings(
    baseline: Serving, current: Serving, options: GateOptions, labels: tuple[str, str]
) -> Verdict:
    """Judge whether the capacity, or any load of both records, got worse."""
    return gate_levels(
        level_pairs(baseline, current),
        options.tolerances,
        limits=options.limits,
        usual=options.usual,
        labels=labels,
    )


def gate_with_history(
    baseline: HistoryBaseline, current: Serving, options: GateOptions, label: str
) -> Verdict:
    """Judge the loads of a record against earlier ones of the history.

    Raises what `HistoryBaseline.profile` raises.
    """
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
