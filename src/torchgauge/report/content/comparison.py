"""A comparison: what differs around the runs, the figures, and where."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torchgauge import units
from torchgauge.records.advice import OutputCheck
from torchgauge.records.comparison import Change, ComparedStage, Comparison, Difference, Place, Side
from torchgauge.records.verdict import Ruling
from torchgauge.report.content import document as doc
from torchgauge.report.content.advice import output
from torchgauge.visible import one_line

LONGEST_NAME = 60  # of a difference in a sentence
# A change this far from the ratio of the two figures was estimated from something else.
ROUNDING = 5e-4


def relative(change: float | None) -> str:
    """Format a relative change with its sign: 0.0312 → '+3.1 %'."""
    if change is None:
        return ""
    if change == 0:
        return "0 %"
    if change > 9:
        return f"×{units.significant(1 + change, 3)}"
    text = f"{100 * change:+.1f}" if abs(change) >= 0.001 else f"{100 * change:+.2g}"
    return f"{units.with_minus(text)} %"


def interval(change: Change | Place) -> str:
    """Format the interval of a change: '+1.2 … +4.0 %'."""
    if change.interval is None:
        return ""
    low, high = relative(change.interval.low), relative(change.interval.high)
    return f"{low.removesuffix(' %')} … {high}"


def corrected_change(change: Change | Ruling) -> str:
    """Format the change at the machine's usual speed, or say that it is of undisturbed calls."""
    if change.undisturbed:
        return "estimated of calls that no other process disturbed, as the machine was busy"
    corrected_interval = change.corrected_interval
    if change.corrected is None or corrected_interval is None:
        return ""
    low = relative(corrected_interval.low).removesuffix(" %")
    high = relative(corrected_interval.high)
    inside = f"{100 * corrected_interval.confidence:.0f} % in {low} … {high}"
    return f"{relative(change.corrected)} ({inside}) at the machine's usual speed, estimated"


def signed(seconds: float) -> str:
    """Format a difference of times with its sign."""
    if seconds == 0:
        return "0 s"
    return ("+" if seconds > 0 else "−") + units.time(abs(seconds), 3)


def of_process_means(changes: Sequence[Change | Ruling]) -> str:
    """Return which changes are not those of their figures, and what they are of; "" if none.

    A figure is the median of all calls; a test by processes estimates the change of the geometric
    mean of their medians.
    """
    names = [*{one_line(change.metric): 0 for change in changes if _is_of_means(change)}]
    if not names:
        return ""
    verb = "is" if len(names) == 1 else "are"
    return (
        f"the change of {', '.join(names)} {verb} that of the geometric mean over processes, "
        "the figures are medians of all calls"
    )


def _is_of_means(change: Change | Ruling) -> bool:
    old, new = change.baseline, change.current
    if change.change is None or change.interval is None or not old or not new:
        return False
    ratios = new / old - 1, old / new - 1  # of a throughput a ruling has the change for the worse
    return min(abs(change.change - ratio) for ratio in ratios) > ROUNDING


def side_amount(value: float | None, change: Change) -> str:
    """Format one side of a change; "not recorded" where it has none."""
    return "not recorded" if value is None else units.amount(value, change.unit, change.metric)


def verdict(change: Change) -> str:
    """Return the judgement of a change, or why there is none."""
    if change.baseline is None or change.current is None:
        return "not recorded"
    if change.judgement == "unknown" and change.reason.startswith("not comparable"):
        return "not comparable"
    return change.judgement


def not_comparable(differing: Sequence[Difference]) -> str:
    """Return what makes two records not comparable in time; "" where nothing does."""
    names = [one_line(f"{d.part}: {d.name}")[:LONGEST_NAME] for d in differing if d.timing]
    if not names:
        return ""
    parts = ["times", *["counts"] * any(d.work for d in differing)]
    listed_names = ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
    judged = " or ".join(parts)
    return f"Not comparable: the sides differ in {listed_names}. No change of {judged} is judged."


def _before_and_after(name: str) -> Callable[[Place], str]:
    """Return what says a number of both sides; nothing where they are equal."""

    def text(place: Place) -> str:
        old, new = getattr(place, f"baseline_{name}"), getattr(place, f"current_{name}")
        if old == new:
            return ""
        return " → ".join(units.amounts(old, new, "")).replace("unknown", "–")

    return text


PLACES = (
    doc.Column(
        "class", priority=4, get=lambda place: place.type, left_aligned=True, tone="faint",
        max_width=24,
    ),
    doc.Column(
        "baseline", priority=2,
        get=lambda place: "absent" if place.appeared else units.time(place.baseline),
    ),
    doc.Column(
        "current", priority=1,
        get=lambda place: "absent" if place.vanished else units.time(place.current),
    ),
    doc.Column("adds", get=lambda place: signed(place.contribution)),
    doc.Column("change", priority=0, get=lambda place: relative(place.change)),
    doc.Column("95 %", priority=3, get=interval),
    doc.Column("calls", get=_before_and_after("calls"), priority=5),
    doc.Column("FLOPs", get=_before_and_after("flops"), priority=6),
)  # fmt: skip


def sides(compared: tuple[Any, Any], details: Callable[[Any], str]) -> doc.Facts:
    """Return the names of both sides of a comparison, with their details."""
    pairs = [
        (name, doc.Detailed(one_line(side.label), f"  {one_line(details(side))}"))
        for name, side in zip(("baseline", "current"), compared, strict=True)
    ]
    return doc.Facts(pairs, label=0, recorded=True)


def side_details(side: Side) -> str:
    """Return a side's commit, date, number of processes and machine."""
    number = side.processes
    runs = f"{number} process{'es' if number != 1 else ''}" if number else "not timed"
    parts = [side.commit[:10], side.created[:16].replace("T", " "), runs, side.machine]
    return ", ".join(part for part in parts if part)


def differences(around: Sequence[Difference]) -> list[doc.Block]:
    """Return whether the sides compare, what differs around them, and what that forbids."""
    pairs = []
    for difference in around:
        text = one_line(f"{difference.baseline} → {difference.current}")
        forbids = "  times cannot be compared" if difference.timing else ""
        forbids += ", nor counts" if difference.work else ""
        label = f"{difference.part}: {one_line(difference.name)}"
        pairs.append((label, doc.Detailed(text, forbids)))
    notice = not_comparable(around)
    blocks: list[doc.Block] = [doc.Note(notice, "doubtful")] if notice else []
    if pairs:
        blocks.append(doc.Facts(pairs, "Differences between the two runs", label=0, recorded=True))
    return blocks


# Places with unchanged work and a smaller share of the step's change are left out.
SMALLEST_SHARE = 0.01
TONES: dict[str, doc.Tone] = {
    "better": "good",
    "worse": "bad",
    "same": "faint",
    "inconclusive": "doubtful",
    "unknown": "faint",
}
TITLES = {"layer": "Layers", "operator": "Operators", "kernel": "Kernels"}
FIGURES = (
    doc.Column("baseline", get=lambda change: side_amount(change.baseline, change)),
    doc.Column("current", get=lambda change: side_amount(change.current, change), tone="strong"),
    doc.Column("change", get=lambda change: relative(change.change)),
    doc.Column("95 %", priority=1, get=interval),
    doc.Column("verdict", get=verdict, left_aligned=True, judging=True),
    doc.Column("how", priority=2, left_aligned=True),
)


def title(comparison: Comparison) -> str:
    """Return the name of the model, or of both."""
    old, new = comparison.baseline.target.name, comparison.current.target.name
    return new if old == new else f"{old} → {new}"


def document(comparison: Comparison, options: doc.Options) -> doc.Document:
    """Return the figures with their changes, and the places that changed."""
    blocks: list[doc.Block] = differences(comparison.differences)
    blocks.append(figures(comparison.changes))
    blocks += _tree_blocks(comparison, options.top)
    for stage in comparison.stages:
        blocks += stage_blocks(stage, options.top)
    blocks += [doc.Warnings(comparison.all_warnings)] if comparison.all_warnings else []
    names = tuple(dict.fromkeys((comparison.baseline.target.name, comparison.current.target.name)))
    how = "compared, measured in turn" if comparison.paired else "compared"
    facts = sides((comparison.baseline, comparison.current), side_details)
    if comparison.outputs is not None:
        name, agreement, details = outputs_fact(comparison.outputs)
        added = name, doc.Detailed(agreement, f"  {one_line(details)}")
        facts = dataclasses.replace(facts, pairs=[*facts.pairs, added])
    return doc.Document(one_line(title(comparison)), how, facts=facts, blocks=blocks, names=names)


def outputs_fact(check: OutputCheck) -> tuple[str, str, str]:
    """Return whether the outputs of the two agree, and how far they lie apart."""
    return "outputs", "agree" if check.passed else "differ", output(check)


def stage_blocks(stage: ComparedStage, top: int) -> list[doc.Block]:
    """Return the places of a prefill or a decode step that changed, under its name."""
    return _tree_blocks(stage, top, f", {one_line(stage.label)}")


def _tree_blocks(
    compared: Comparison | ComparedStage, top: int, of_stage: str = ""
) -> list[doc.Block]:
    return [
        _places(compared, notable, top, len(places), of_stage)
        for places in (compared.layers, compared.operators, compared.kernels)
        if (notable := notable_places(places, compared, len(places)))
    ]


def figures(changes: Sequence[Change]) -> doc.Table:
    """Return every figure with its change, and why some have no verdict."""
    rows = rows_by_shape(
        changes,
        lambda change, label: doc.Row(
            label, doc.cells(FIGURES, change), 1, TONES[change.judgement]
        ),
    )
    return doc.Table(
        title="Figures", how="exact ones first", columns=FIGURES, rows=rows, layout="fitted",
        notes=tuple(_reasons(changes)),
    )  # fmt: skip


def rows_by_shape(judged: Sequence[Any], row: Callable[[Any, str], doc.Row]) -> list[doc.Row]:
    """Return a row for each by its label, those of one shape below its name."""
    rows: list[doc.Row] = []
    for shape in dict.fromkeys(metric.shape for metric in judged):
        of_shape = [metric for metric in judged if metric.shape == shape]
        if not shape or len(of_shape) == 1:
            rows += [row(metric, metric.label) for metric in of_shape]
            continue
        listed = [row(metric, metric.metric) for metric in of_shape]
        rows.append(doc.Row(one_line(shape), {}, listed[0].level, "strong"))
        rows += [metric._replace(level=metric.level + 1) for metric in listed]
    return rows


def by_reason(reasons: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield each reason with the metrics that share it, given as pairs of reason and metric."""
    metrics: dict[str, dict[str, None]] = {}
    for reason, metric in reasons:
        if reason:
            metrics.setdefault(reason, {})[metric] = None
    for reason, names in metrics.items():
        yield f"{', '.join(names)}: {reason}."


def _reasons(changes: Sequence[Change]) -> Iterator[str]:
    """Yield corrected changes, then each reason for a missing judgement with its metrics."""
    for change in changes:
        if correction_text := corrected_change(change):
            yield f"{change.label}: {correction_text}."
    if means := of_process_means(changes):
        yield f"{means[0].upper()}{means[1:]}."
    yield from by_reason((one_line(change.reason), change.metric) for change in changes)


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
) -> doc.Table:
    rows = [
        doc.Row(place.name or "(the model itself)", doc.cells(PLACES, place), 1, _tone(place))
        for place in notable[:top]
    ]
    kind, step = notable[0].kind, comparison.step_change
    tested = comparison.places_tested if kind == "layer" else "of one recording each, not tested"
    note = f"{len(rows)} of {total}, by their own time"
    if step is not None:
        note += f"; the step of both trees differs by {signed(step)}"
    return doc.Table(
        title=TITLES[kind] + of_stage, how=tested, columns=PLACES, rows=rows, recorded=True,
        notes=(note,), layout="fitted",
    )  # fmt: skip


def _tone(place: Place) -> doc.Tone:
    if place.significant:
        return "bad" if place.contribution > 0 else "good"
    return "" if place.significant is None else "faint"
