"""Measure how a language model generates, and gate records of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchgauge.api.preparation import measuring, require_torch

if TYPE_CHECKING:
    from torchgauge.gates.gate_options import GateOptions
    from torchgauge.history.baseline import HistoryBaseline
    from torchgauge.measure.generation.generation_options import GenerationOptions
    from torchgauge.records.generation.generation import Generation
    from torchgauge.records.verdict import Verdict
    from torchgauge.targets.target import TargetRequest


def generation_request(
    request: TargetRequest,
    options: GenerationOptions,
    assistant: TargetRequest | None = None,
    *,
    progress: bool | None = None,
) -> Generation:
    """Measure the generation of a target named as on the command line, with a draft model if given.

    Raises what loading raises, and InputError `no-generation` for a model that makes no tokens.
    """
    require_torch()
    from torchgauge.measure.generation.generation import measure
    from torchgauge.targets.builds.source import Source

    with measuring(progress) as display:
        draft = None if assistant is None else Source.of_request(assistant)
        return measure(Source.of_request(request), options, display, assistant=draft)


def gate_generations(
    baseline: Generation, current: Generation, options: GateOptions, labels: tuple[str, str]
) -> Verdict:
    """Judge whether any shape of a generation, or its model, got worse."""
    from torchgauge.analyze.compare.shapes import shape_pairs
    from torchgauge.analyze.gate.shapes import gate_shapes

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
    import msgspec

    from torchgauge.analyze.compare.shapes import ShapePair, shape_names
    from torchgauge.analyze.gate.shapes import gate_shapes

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
