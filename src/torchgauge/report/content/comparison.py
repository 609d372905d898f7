"""A comparison: what differs around the runs, the figures, and where."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from torchgauge.records.advice import OutputCheck
from torchgauge.records.comparison import Change, ComparedStage, Comparison, Place
from torchgauge.report.content.advice_words import output
from torchgauge.report.content.changes import (
    PLACES,
    corrected_change,
    differences,
    interval,
    of_process_means,
    relative,
    side_amount,
    side_details,
    sides,
    signed,
    verdict,
)
from torchgauge.report.content.document import (
    Block,
    Column,
    Detailed,
    Document,
    Options,
    Row,
    Table,
    Tone,
    Warnings,
    cells,
)
from torchgauge.visible import one_line

# Places with unchanged work and a smaller share of the step's change are left out.
SMALLEST_SHARE = 0.01
TONES: dict[str, Tone] = {
    "better": "good",
    "worse": "bad",
    "same": "faint",
    "inconclusive": "doubtful",
    "unknown": "faint",
}
TITLES = {"layer": "Layers", "operator": "Operators", "kernel": "Kernels"}
FIGURES = (
    Column("baseline", get=lambda change: side_amount(change.baseline, change)),
    Column("current", get=lambda change: side_amount(change.current, change), tone="strong"),
    Column("change", get=lambda change: relative(change.change)),
    Column("95 %", priority=1, get=interval),
    Column("verdict", get=verdict, left_aligned=True, judging=True),
    Column("how", priority=2, left_aligned=True),
)


def title(comparison: Comparison) -> str:
    """Return the name of the model, or of both."""
    old, new = comparison.baseline.target.name, comparison.current.target.name
    return new if old == new else f"{old} → {new}"


def document(comparison: Comparison, options: Options) -> Document:
    """Return the figures with their changes, and the places that changed."""
    blocks: list[Block] = differences(comparison.differences)
    blocks.append(figures(comparison.changes))
    blocks += _tree_blocks(comparison, options.top)
    for stage in comparison.stages:
        blocks += stage_blocks(stage, options.top)
    blocks += [Warnings(comparison.all_warnings)] if comparison.all_warnings else []
    names = tuple(dict.fromkeys((comparison.baseline.target.name, comparison.current.target.name)))
    how = "compared, measured in turn" if comparison.paired else "compared"
    facts = sides((comparison.baseline, comparison.current), side_details)
    if comparison.outputs is not None:
        name, agreement, details = outputs_fact(comparison.outputs)
        added = name, Detailed(agreement, f"  {one_line(details)}")
        facts = dataclasses.replace(facts, pairs=[*facts.pairs, added])
    return Document(one_line(title(comparison)), how, facts=facts, blocks=blocks, names=names)


def outputs_fact(check: OutputCheck) -> tuple[str, str, str]:
    """Return whether the outputs of the two agree, and how far they lie apart."""
    return "outputs", "agree" if check.passed else "differ", output(check)


def stage_blocks(stage: ComparedStage, top: int) -> list[Block]:
    """Return the places of a prefill or a decode step that changed, under its name."""
    return _tree_blocks(stage, top, f", {one_line(stage.label)}")


def _tree_blocks(compared: Comparison | ComparedStage, top: int, of_stage: str = "") -> list[Block]:
    return [
        _places(compared, notable, top, len(places), of_stage)
        for places in (compared.layers, compared.operators, compared.kernels)
        if (notable := notable_places(places, compared, len(places)))
    ]


def figures(changes: Sequence[Change]) -> Table:
    """Return every figure with its change, and why some have no verdict."""
    rows = []
    for shape in dict.fromkeys(change.shape for change in changes):
        of_shape = [change for change in changes if change.shape == shape]
        is_headed = shape != "" and len(of_shape) > 1
        rows += [Row(one_line(shape), {}, 1, "strong")] * is_headed
        rows += [
            Row(
                change.metric if is_headed else change.label,
                cells(FIGURES, change),
                1 + is_headed,
                TONES[change.judgement],
            )
            for change in of_shape
        ]
    return Table(
        title="Figures", how="exact ones first", columns=FIGURES, rows=rows, layout="fitted",
        notes=tuple(_reasons(changes)),
    )  # fmt: skip


def _reasons(changes: Sequence[Change]) -> Iterator[str]:
    """Yield corrected changes, then each reason for a missing judgement with its metrics."""
    for change in changes:
        if correction_text := corrected_change(change):
            yield f"{change.label}: {correction_text}."
    if means := of_process_means(changes):
        yield f"{means[0].upper()}{means[1:]}."
    reasons: dict[str, dict[str, None]] = {}
    for change in changes:
        if change.reason:
            reasons.setdefault(change.reason, {})[change.metric] = None
    for reason, metrics in reasons.items():
        yield f"{', '.join(metrics)}: {one_line(reason)}."


def notable_places(
    places: Sequence[Place], comparison: Comparison | ComparedStage, top: int
) -> list[Place]:
    """Return the places worth listing: significant, with changed work, or a share of the change."""
    step = abs(comparison.step_change or 0.0)
    selected = [
        place
        for place in places
        if place.significant
        or place.work_changed
        or (place.significant is None and abs(place.contribution) > SMALLEST_SHARE * step > 0)
    ]
    selected.sort(key=lambda place: (not place.significant, -abs(place.contribution)))
    return selected[:top]


def _places(
    comparison: Comparison | ComparedStage,
    notable: list[Place],
    top: int,
    total: int,
    of_stage: str,
) -> Table:
    rows = [
        Row(place.name or "(the model itself)", cells(PLACES, place), 1, _tone(place))
        for place in notable[:top]
    ]
    kind, step = notable[0].kind, comparison.step_change
    tested = comparison.places_tested if kind == "layer" else "of one recording each, not tested"
    note = f"{len(rows)} of {total}, by their own time"
    if step is not None:
        note += f"; the step of both trees differs by {signed(step)}"
    return Table(
        title=TITLES[kind] + of_stage, how=tested, columns=PLACES, rows=rows, recorded=True,
        notes=(note,), layout="fitted",
    )  # fmt: skip


def _tone(place: Place) -> Tone:
    if place.significant:
        return "bad" if place.contribution > 0 else "good"
    return "" if place.significant is None else "faint"
