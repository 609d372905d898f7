"""Gate generations shape by shape, and hold every shape to limits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from torchgauge.analyze.compare.compare import compare
from torchgauge.analyze.compare.shapes import (
    ShapePair,
    compared_stages,
    merged,
    shape_names,
    was_tried,
)
from torchgauge.analyze.gate.limits import judge_limit
from torchgauge.analyze.gate.regressed_layers import regressed_stages
from torchgauge.analyze.gate.stored_gate import ALPHA, gate
from torchgauge.analyze.gate.tolerances import GENERATION_METRICS, default_tolerance
from torchgauge.records.generation.generation import Generation
from torchgauge.records.metric import METRICS
from torchgauge.records.profile import Profile
from torchgauge.records.verdict import Limit, Ruling, Tolerance, Verdict, overall


def gate_shapes(
    model_sides: tuple[Profile, Profile],
    pairs: Sequence[ShapePair],
    tolerances: Sequence[Tolerance],
    *,
    limits: Sequence[Limit] = (),
    usual: Collection[str] = (),
    labels: tuple[str, str] = ("baseline", "current"),
    earlier: Sequence[Generation] = (),
    records: tuple[Generation, Generation] | None = None,
    doubt: str = "",
) -> Verdict:
    """Return the verdict on the model (`model_sides`) and on each shape; it fails where any fails.

    Where nobody asked for metrics, the `usual` ones have first token, later ones and rate with
    them. A shape that only one side tried has no ruling by tolerance. The error is divided by the
    shapes, so that many of them do not fail by chance. `earlier` are several runs of the baseline,
    `records` both sides whole, whose trees name layers that got slower; `doubt` is why a worse time
    would not prove anything.
    """
    if usual:
        named = {tolerance.metric for tolerance in tolerances}
        added = [name for name in GENERATION_METRICS if name not in named]
        tolerances = [*tolerances, *map(default_tolerance, added)]
        usual = {*usual, *added}
    of_model = _gated(model_sides, _parts(tolerances, limits, of_model=True), usual, ALPHA, labels)
    by_shape = {
        pair.name: _gated(
            (pair.baseline, pair.current),
            _parts(
                tolerances if pair.is_judged else (),
                limits if was_tried(pair.current) else (),
                of_model=False,
            ),
            usual,
            ALPHA / len(pairs),
            labels,
            _runs_of(pair.current, earlier),
            doubt,
        )
        for pair in pairs
    }
    rulings = of_model.rulings + tuple(
        msgspec.structs.replace(ruling, shape=name)
        for name, verdict in by_shape.items()
        for ruling in verdict.rulings
    )
    compared = {
        name: verdict.comparison for name, verdict in by_shape.items() if verdict.comparison
    }
    model, comparison = of_model.comparison, None
    regressed: tuple[str, ...] = ()
    if model is not None:
        stages = ((), ()) if records is None else compared_stages(*records, model)
        comparison = merged(model, compared, *stages)
        regressed = regressed_stages(comparison.stages, rulings)
    return Verdict(
        outcome=overall(rulings), rulings=rulings, comparison=comparison, regressed_layers=regressed
    )


class _Parts(NamedTuple):
    """The tolerances and limits of the model, or those of each shape."""

    tolerances: list[Tolerance]
    limits: list[Limit]


def _parts(tolerances: Sequence[Tolerance], limits: Sequence[Limit], *, of_model: bool) -> _Parts:
    def fits(metric: str) -> bool:
        return (METRICS[metric].kind == "size") == of_model

    return _Parts(
        [tolerance for tolerance in tolerances if fits(tolerance.metric)],
        [limit for limit in limits if fits(limit.metric)],
    )


def _gated(
    sides: tuple[Profile, Profile],
    parts: _Parts,
    usual: Collection[str],
    alpha: float,
    labels: tuple[str, str],
    runs: Sequence[Profile] = (),
    doubt: str = "",
) -> Verdict:
    return gate(
        *sides,
        parts.tolerances,
        limits=parts.limits,
        usual=usual,
        labels=labels,
        alpha=alpha,
        runs=runs,
        doubt=doubt,
    )


def _runs_of(current: Profile, earlier: Sequence[Generation]) -> list[Profile]:
    """Return a shape of each of several runs, where it was measured there on the same machine."""
    cell = current.generation
    shapes = (
        run.profile(own)
        for run in earlier
        for own in run.done
        if cell is not None and own.shape == cell.shape
    )
    return [shape for shape in shapes if compare(shape, current).timing_comparable]


def judged_shapes(limits: Sequence[Limit], generation: Generation) -> Verdict:
    """Return the verdict on a record under limits alone: those of the model once, of each shape."""
    rulings: list[Ruling] = []
    names = shape_names(generation.cells)
    for limit in limits:
        if METRICS[limit.metric].kind == "size" or not generation.cells:
            rulings.append(judge_limit(limit, generation.profile()))
            continue
        for name, cell in zip(names, generation.cells, strict=True):
            ruling = judge_limit(limit, generation.profile(cell))
            rulings.append(msgspec.structs.replace(ruling, shape=name))
    return Verdict(outcome=overall(tuple(rulings)), rulings=tuple(rulings))
