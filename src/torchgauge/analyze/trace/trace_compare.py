"""Two recorded traces side by side, matched by layer, operator, shape and kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from torchgauge.analyze.compare.compare_locations import (
    Figures,
    not_recorded,
    paired,
    shortened,
    tree_figures,
)
from torchgauge.records.comparison import Difference, Place
from torchgauge.records.trace.breakdown import WINDOW_PARTS, Part
from torchgauge.records.trace.host_delay import Cause, HostDelay
from torchgauge.records.trace.trace import RankTrace
from torchgauge.records.trace.trace_diff import (
    Changes,
    DelayChange,
    PartChange,
    TraceDiff,
    TraceSide,
)

_KINDS = {"layers": "layer", "operators": "operator", "shapes": "operator", "kernels": "kernel"}


def compare_traces(baseline: RankTrace, current: RankTrace, labels: tuple[str, str]) -> TraceDiff:
    """Return what differs between two ranks' traces; times are divided by the steps of each."""
    sides = (baseline, current)
    marked = all(map(_marks_steps, sides))
    steps = [trace.tree.steps if marked else 1 for trace in sides]
    differences = tuple(_differences(baseline, current))
    comparable = not any(difference.timing for difference in differences)
    devices = bool(baseline.times), bool(current.times)
    parts = tuple(_parts(sides, steps)) if all(devices) else ()
    recorded = {kind: (_records(baseline, kind), _records(current, kind)) for kind in _KINDS}
    lacking = not_recorded("device work", devices) + tuple(
        warning
        for kind in ("layers", "operators")
        for warning in not_recorded(kind, recorded[kind])
    )
    return TraceDiff(
        baseline=_side(baseline, labels[0], steps[0]),
        current=_side(current, labels[1], steps[1]),
        differences=differences,
        window=math.fsum(change.contribution for change in parts),
        parts=parts,
        delays=_delay_changes(sides, steps),
        tables=tuple(
            changes if comparable else _without_relative_changes(changes)
            for changes in _tables(sides, steps)
            if recorded[changes.kind][0] == recorded[changes.kind][1]
        ),
        warnings=tuple(dict.fromkeys((*baseline.warnings, *current.warnings, *lacking))),
    )


def _records(trace: RankTrace, kind: str) -> bool:
    """Return whether the file has what the places of a kind are made from."""
    contents = trace.contents
    has_operators = contents.operators > 0
    return {
        "layers": contents.layers is not None,
        "operators": has_operators,
        "shapes": has_operators and contents.shapes,
        "kernels": bool(trace.times),
    }[kind]


def _marks_steps(trace: RankTrace) -> bool:
    return trace.contents.steps > 0 or trace.tree.steps > 1  # older records lack the count


def _side(trace: RankTrace, label: str, steps: int) -> TraceSide:
    return TraceSide(
        label=label,
        device=device_name(trace),
        rank=trace.rank,
        world=trace.world,
        steps=steps,
        window=sum(device.breakdown.window for device in trace.times) / steps,
        timeline=trace.tree.timeline,
    )


def device_name(trace: RankTrace) -> str:
    """Return the name of the devices that worked, "" where the file does not say."""
    used = {times.device for times in trace.times}
    return ", ".join(
        dict.fromkeys(device.name for device in trace.devices if device.number in used)
    )


def _differences(old: RankTrace, new: RankTrace) -> Iterator[Difference]:
    """Yield differences of machine, software and settings, those that forbid timing first."""
    hardware = (("device", device_name), ("devices at work", lambda trace: str(len(trace.times))))
    for name, describe in hardware:
        if describe(old) != describe(new):
            yield Difference(
                part="machine", name=name, baseline=describe(old), current=describe(new)
            )
    for name in dict.fromkeys((*old.versions, *new.versions)):
        was, now = old.versions.get(name), new.versions.get(name)
        if was != now:
            yield Difference(
                part="software",
                name=name,
                baseline=was or "not said",
                current=now or "not said",
                timing=None not in (was, now),
            )
    if old.world != new.world:
        yield Difference(
            part="settings", name="ranks", baseline=str(old.world), current=str(new.world)
        )
    if _marks_steps(old) != _marks_steps(new):
        before, after = (
            f"{trace.tree.steps}" if _marks_steps(trace) else "not marked" for trace in (old, new)
        )
        yield Difference(part="settings", name="steps", baseline=before, current=after)
    for name in ("shapes", "layers", "memory"):
        in_old, in_new = bool(getattr(old.contents, name)), bool(getattr(new.contents, name))
        if in_old != in_new:
            states = {True: "recorded", False: "not recorded"}
            yield Difference(
                part="settings",
                name=name,
                baseline=states[in_old],
                current=states[in_new],
                timing=False,
            )


def _parts(sides: tuple[RankTrace, RankTrace], steps: list[int]) -> Iterator[PartChange]:
    sums = [_sums(trace, number) for trace, number in zip(sides, steps, strict=True)]
    for part in sums[0]:
        if sums[0][part] or sums[1][part]:
            yield PartChange(part=part, baseline=sums[0][part], current=sums[1][part])


def _sums(trace: RankTrace, steps: int) -> dict[Part, float]:
    sums = dict.fromkeys(WINDOW_PARTS, 0.0)
    for device in trace.times:
        for part, seconds in device.breakdown.parts.items():
            sums[part] += seconds / steps
    return sums


def _tables(sides: tuple[RankTrace, RankTrace], steps: list[int]) -> Iterator[Changes]:
    device = all(trace.tree.root.device_time is not None for trace in sides)
    old, new = (
        tree_figures(trace.tree, device=device, steps=number)
        for trace, number in zip(sides, steps, strict=True)
    )
    for kind in ("layers", "operators", "shapes", "kernels"):
        before, after = getattr(old, kind), getattr(new, kind)
        if kind == "shapes" and not all(trace.contents.shapes for trace in sides):
            continue
        if before or after:
            yield _changes(kind, before, after)


def _changes(kind: str, old: Mapping[str, Figures], new: Mapping[str, Figures]) -> Changes:
    entries = paired(old, new, _KINDS[kind])  # type: ignore[arg-type]
    total = math.fsum(entry.contribution for entry in entries)
    listed_entries: tuple[Place, ...] = shortened(entries)
    return Changes(
        kind=kind,  # type: ignore[arg-type]
        places=listed_entries,
        total=total,
        remainder=total - math.fsum(entry.contribution for entry in listed_entries),
    )


def _without_relative_changes(changes: Changes) -> Changes:
    places = tuple(msgspec.structs.replace(place, change=None) for place in changes.places)
    return msgspec.structs.replace(changes, places=places)


def _delay_changes(
    sides: tuple[RankTrace, RankTrace], steps: Sequence[int]
) -> tuple[DelayChange, ...]:
    """Return what delays cost on both sides by cause, what changed most first.

    Seconds of a step, of `steps` in all on each side.
    """
    device = all(side.times for side in sides)
    delays = [_by_cause(side) for side in sides]
    changes = []
    for cause in dict.fromkeys((*delays[0], *delays[1])):
        costs, names = [], []
        for side, count in zip(delays, steps, strict=True):
            of_cause = sorted(side.get(cause, []), key=lambda delay: -_cost(delay, device=device))
            costs.append(sum(_cost(delay, device=device) for delay in of_cause) / count)
            names.append(of_cause[0].name if of_cause else "")
        changes.append(
            DelayChange(
                cause=cause,
                baseline=costs[0],
                current=costs[1],
                baseline_name=names[0],
                current_name=names[1],
            )
        )
    return tuple(sorted(changes, key=lambda change: -abs(change.contribution)))


def _by_cause(side: RankTrace) -> dict[Cause, list[HostDelay]]:
    delays: dict[Cause, list[HostDelay]] = {}
    for delay in side.host_delays:
        delays.setdefault(delay.cause, []).append(delay)
    return delays


def _cost(delay: HostDelay, *, device: bool) -> float:
    return delay.cost if device else delay.time
