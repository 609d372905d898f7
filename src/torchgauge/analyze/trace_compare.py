"""Two recorded traces side by side, matched by layer, operator, shape and kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from torchgauge.analyze.compare_places import paired, shortened
from torchgauge.analyze.places import Figures, places
from torchgauge.model.breakdown import Breakdown
from torchgauge.model.comparison import Difference, Place
from torchgauge.model.trace import RankTrace
from torchgauge.model.trace_diff import Changes, Part, PartChange, TraceDiff, TraceSide

_KINDS = {"layers": "layer", "operators": "operator", "shapes": "operator", "kernels": "kernel"}


def compare_traces(baseline: RankTrace, current: RankTrace, labels: tuple[str, str]) -> TraceDiff:
    """Return what differs between two ranks' traces; times are divided by the steps of each."""
    sides = (baseline, current)
    marked = all(map(_marks_steps, sides))
    steps = [one.tree.steps if marked else 1 for one in sides]
    parts = tuple(_parts(sides, steps))
    return TraceDiff(
        baseline=_side(baseline, labels[0], steps[0]),
        current=_side(current, labels[1], steps[1]),
        differences=tuple(_differences(baseline, current)),
        window=math.fsum(one.contribution for one in parts),
        parts=parts,
        tables=tuple(_tables(sides, steps)),
        warnings=tuple(dict.fromkeys((*baseline.warnings, *current.warnings))),
    )


def _marks_steps(one: RankTrace) -> bool:
    return one.contents.steps > 0 or one.tree.steps > 1  # records of before do not say


def _side(one: RankTrace, label: str, steps: int) -> TraceSide:
    return TraceSide(
        label=label,
        device=device_name(one),
        rank=one.rank,
        world=one.world,
        steps=steps,
        window=sum(each.breakdown.window for each in one.times) / steps,
    )


def device_name(one: RankTrace) -> str:
    """Return the name of the devices that worked, "" where the file does not say."""
    used = {each.device for each in one.times}
    return ", ".join(dict.fromkeys(each.name for each in one.devices if each.number in used))


def _differences(old: RankTrace, new: RankTrace) -> Iterator[Difference]:
    """Yield what differs around the recordings, what forbids comparing times first."""
    hardware = (("device", device_name), ("devices at work", lambda one: str(len(one.times))))
    for name, of in hardware:
        if of(old) != of(new):
            yield Difference(part="machine", name=name, baseline=of(old), current=of(new))
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
            f"{one.tree.steps}" if _marks_steps(one) else "not marked" for one in (old, new)
        )
        yield Difference(part="settings", name="steps", baseline=before, current=after)
    for name in ("shapes", "layers", "memory"):
        had, has = bool(getattr(old.contents, name)), bool(getattr(new.contents, name))
        if had != has:
            said = {True: "recorded", False: "not recorded"}
            yield Difference(
                part="settings", name=name, baseline=said[had], current=said[has], timing=False
            )


def _parts(sides: tuple[RankTrace, RankTrace], steps: list[int]) -> Iterator[PartChange]:
    sums = [_sums(one, number) for one, number in zip(sides, steps, strict=True)]
    for part in sums[0]:
        if sums[0][part] or sums[1][part]:
            yield PartChange(part=part, baseline=sums[0][part], current=sums[1][part])


def _sums(one: RankTrace, steps: int) -> dict[Part, float]:
    found: dict[Part, float] = {}
    for device in one.times:
        for part, seconds in _of(device.breakdown).items():
            found[part] = found.get(part, 0.0) + seconds / steps
    return found or dict.fromkeys(_of(None), 0.0)


def _of(one: Breakdown | None) -> dict[Part, float]:
    if one is None:
        names: tuple[Part, ...] = (
            "compute", "communication", "copies", "idle: host", "idle: device", "idle: other",
        )  # fmt: skip
        return dict.fromkeys(names, 0.0)
    return {
        "compute": one.compute,
        "communication": one.exposed_communication,
        "copies": one.exposed_copies,
        "idle: host": one.idle.host_wait,
        "idle: device": one.idle.kernel_wait,
        "idle: other": one.idle.other + one.idle.outside,
    }


def _tables(sides: tuple[RankTrace, RankTrace], steps: list[int]) -> Iterator[Changes]:
    device = all(one.tree.root.device_time is not None for one in sides)
    old, new = (
        places(one.tree, device=device, steps=number)
        for one, number in zip(sides, steps, strict=True)
    )
    for kind in ("layers", "operators", "shapes", "kernels"):
        before, after = getattr(old, kind), getattr(new, kind)
        if kind == "shapes" and not all(one.contents.shapes for one in sides):
            continue
        if before or after:
            yield _changes(kind, before, after)


def _changes(kind: str, old: Mapping[str, Figures], new: Mapping[str, Figures]) -> Changes:
    found = paired(old, new, _KINDS[kind])  # type: ignore[arg-type]
    total = math.fsum(one.contribution for one in found)
    shown: tuple[Place, ...] = shortened(found)
    return Changes(
        kind=kind,  # type: ignore[arg-type]
        places=shown,
        total=total,
        rest=total - math.fsum(one.contribution for one in shown),
    )
