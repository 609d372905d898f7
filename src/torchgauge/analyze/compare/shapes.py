"""Compare two generations shape by shape: equal shapes are compared, others named on their side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from torchgauge.analyze.compare.compare import compare
from torchgauge.analyze.compare.compare_locations import compare_locations, not_recorded
from torchgauge.analyze.gate.stored import uncalibrated
from torchgauge.records.comparison import Change, ComparedStage, Comparison
from torchgauge.records.generation.cell import GenerationCell
from torchgauge.records.generation.generation import Generation, StageTree
from torchgauge.records.metric import METRICS
from torchgauge.records.profile import Profile
from torchgauge.records.record import MeasurementWarning

ONCE = "of one recording each, not tested"


class ShapePair(NamedTuple):
    """One shape on both sides, by what it is called beside the others."""

    name: str
    baseline: Profile
    current: Profile

    @property
    def is_judged(self) -> bool:
        """Whether both sides tried it, and it did not end on both."""
        sides = self.baseline, self.current
        return all(map(was_tried, sides)) and any(
            side.generation is not None and side.generation.done for side in sides
        )


def was_tried(profile: Profile) -> bool:
    """Return whether the shape of a profile was tried."""
    return profile.generation is None or profile.generation.status != "skipped"


def shape_pairs(baseline: Generation, current: Generation) -> list[ShapePair]:
    """Return the shapes of both records; a side that has none has a profile without figures."""
    sides = [
        {tuple(cell.shape.items()): cell for cell in side.cells} for side in (baseline, current)
    ]
    either = {**sides[1], **sides[0]}
    names = shape_names(either.values())
    return [
        ShapePair(
            name,
            baseline.profile(sides[0].get(key) or _without_figures(either[key])),
            current.profile(sides[1].get(key) or _without_figures(either[key])),
        )
        for name, key in zip(names, either, strict=True)
    ]


def shape_names(cells: Iterable[GenerationCell]) -> list[str]:
    """Return what shapes are called: with cache and beams where these differ."""
    listed = list(cells)
    has_kinds = len({(cell.kind, cell.new_tokens) for cell in listed}) > 1
    return [
        f"{cell.label}, {cell.new_tokens} new" if has_kinds else cell.size_label for cell in listed
    ]


def _without_figures(cell: GenerationCell) -> GenerationCell:
    return GenerationCell(
        batch=cell.batch,
        prompt=cell.prompt,
        new_tokens=cell.new_tokens,
        beams=cell.beams,
        cache_kind=cell.cache_kind,
        status="skipped",
    )


def compare_generations(
    baseline: Generation, current: Generation, *, labels: tuple[str, str] = ("baseline", "current")
) -> Comparison:
    """Return what changed: of the model, then of every shape.

    The calls of a side ran in one process, and no calibration tells by how much processes that
    generate differ, so that a change counts beyond the floor that is assumed of any host.
    """
    pairs = shape_pairs(baseline, current)
    model = compare(baseline.profile(), current.profile(), labels=labels)
    by_shape = {pair.name: compare(pair.baseline, pair.current) for pair in pairs}
    stages, warnings = compared_stages(baseline, current, model)
    return merged(model, by_shape, stages, warnings)


def compared_stages(
    baseline: Generation, current: Generation, model: Comparison
) -> tuple[tuple[ComparedStage, ...], tuple[MeasurementWarning, ...]]:
    """Return the trees of prefill and decode step side by side, and what only one side recorded.

    Only trees of the same shape with the same cache are compared; a side recorded each once, so
    that no change of a place is tested.
    """
    if any(difference.part == "target" and difference.timing for difference in model.differences):
        return (), ()
    trees = [{_forward(side, tree): tree for tree in side.trees} for side in (baseline, current)]
    noise = uncalibrated() if model.timing_comparable else None
    names = shape_names(baseline.cells)
    stages = []
    for forward, old in trees[0].items():
        new = trees[1].get(forward)
        if new is None:
            continue
        sides = [Profile(target=r.target, environment=r.environment, tree=t.tree)
                 for r, t in ((baseline, old), (current, new))]  # fmt: skip
        places = compare_locations(sides[0], sides[1], noise)
        stages.append(
            ComparedStage(
                stage=old.stage, shape=names[old.cell], layers=places.layers,
                operators=places.operators, kernels=places.kernels,
                step_change=places.step_change, remainder=places.remaining_change,
                places_tested=ONCE if noise else places.places_tested,
            )
        )  # fmt: skip
    recorded = bool(trees[0]), bool(trees[1])
    return tuple(stages), not_recorded("the layers of prefill and decode step", recorded)


def _forward(record: Generation, tree: StageTree) -> tuple[object, ...]:
    """Return what a forward must share with another to be compared with it."""
    return (tree.stage, tree.cached, *record.cells[tree.cell].shape.items())


def merged(
    model: Comparison,
    by_shape: dict[str, Comparison],
    stages: tuple[ComparedStage, ...] = (),
    warnings: tuple[MeasurementWarning, ...] = (),
) -> Comparison:
    """Return the model's comparison with the changes of all shapes, exact ones first."""
    changes = [
        *model.changes,
        *(
            msgspec.structs.replace(change, shape=name)
            for name, comparison in by_shape.items()
            for change in comparison.changes
            if METRICS[change.metric].kind != "size"
        ),
    ]
    sides = [msgspec.structs.replace(side, processes=1) for side in (model.baseline, model.current)]
    return msgspec.structs.replace(
        model, baseline=sides[0], current=sides[1], changes=tuple(sorted(changes, key=_is_timed)),
        stages=stages, warnings=(*model.warnings, *warnings),
    )  # fmt: skip


def _is_timed(change: Change) -> bool:
    return not change.exact
