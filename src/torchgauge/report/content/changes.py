"""What comparisons share: changes in words, the places that changed, what differs around runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgauge import units
from torchgauge.records.comparison import Change, Difference, Place, Side
from torchgauge.records.verdict import Ruling
from torchgauge.report.content.document import Block, Column, Detailed, Facts, Note
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


def _before_and_after(old: int | None, new: int | None) -> str:
    if old == new:
        return ""
    return " → ".join(units.amounts(old, new, "")).replace("unknown", "–")


PLACES = (
    Column(
        "class", priority=4, get=lambda place: place.type, left_aligned=True, tone="faint",
        max_width=24,
    ),
    Column(
        "baseline", priority=2,
        get=lambda place: "absent" if place.appeared else units.time(place.baseline),
    ),
    Column(
        "current", priority=1,
        get=lambda place: "absent" if place.vanished else units.time(place.current),
    ),
    Column("adds", get=lambda place: signed(place.contribution)),
    Column("change", priority=0, get=lambda place: relative(place.change)),
    Column("95 %", priority=3, get=interval),
    Column(
        "calls", priority=5,
        get=lambda place: _before_and_after(place.baseline_calls, place.current_calls),
    ),
    Column(
        "FLOPs", priority=6,
        get=lambda place: _before_and_after(place.baseline_flops, place.current_flops),
    ),
)  # fmt: skip


def sides(compared: tuple[Any, Any], details: Callable[[Any], str]) -> Facts:
    """Return the names of both sides of a comparison, with their details."""
    pairs = [
        (name, Detailed(one_line(side.label), f"  {one_line(details(side))}"))
        for name, side in zip(("baseline", "current"), compared, strict=True)
    ]
    return Facts(pairs, label=0, recorded=True)


def side_details(side: Side) -> str:
    """Return a side's commit, date, number of processes and machine."""
    number = side.processes
    runs = f"{number} process{'es' if number != 1 else ''}" if number else "not timed"
    parts = [side.commit[:10], side.created[:16].replace("T", " "), runs, side.machine]
    return ", ".join(part for part in parts if part)


def differences(around: Sequence[Difference]) -> list[Block]:
    """Return whether the sides compare, what differs around them, and what that forbids."""
    pairs = []
    for difference in around:
        text = one_line(f"{difference.baseline} → {difference.current}")
        forbids = "  times cannot be compared" if difference.timing else ""
        forbids += ", nor counts" if difference.work else ""
        label = f"{difference.part}: {one_line(difference.name)}"
        pairs.append((label, Detailed(text, forbids)))
    notice = not_comparable(around)
    blocks: list[Block] = [Note(notice, "doubtful")] if notice else []
    if pairs:
        blocks.append(Facts(pairs, "Differences between the two runs", label=0, recorded=True))
    return blocks
