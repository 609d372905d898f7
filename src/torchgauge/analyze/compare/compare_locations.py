"""The layers, operators and kernels of two runs side by side, most contribution first."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from torchgauge.analyze.gate.stored import MIN_PROCESSES, HostNoise, Welch, welch
from torchgauge.imports import imported
from torchgauge.records.comparison import Place
from torchgauge.records.latency.latency import LatencyRun
from torchgauge.records.profile import Profile
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.node import TreeRow, base_name
from torchgauge.records.timeline.tree import Tree


@dataclasses.dataclass
class Figures:
    """The own figures of a layer, operator or kernel: ns, FLOP, bytes; None is unknown."""

    type: str = ""
    time: int | None = None
    flops: int | None = None
    bytes: int | None = None
    calls: int = 0

    def add(self, row: TreeRow, time: int | None) -> None:
        """Add a row's own figures."""
        self.time = _sum(self.time, time)
        self.flops = _sum(self.flops, row.flops)
        self.bytes = _sum(self.bytes, row.bytes)


@dataclasses.dataclass(frozen=True)
class TreeFigures:
    """Figures by layer path, by operator and by kernel; `buckets` is the ns of what is in no layer.

    The times of all layers and `buckets` add up to the step. `shapes` are operators on one shape.
    """

    layers: dict[str, Figures]
    operators: dict[str, Figures]
    shapes: dict[str, Figures]
    kernels: dict[str, Figures]
    buckets: int


def tree_figures(tree: Tree, *, device: bool, steps: int | None = None) -> TreeFigures:
    """Return a tree's figures; times are those of the device, or the host's.

    They are divided by `steps`, those of the tree unless said otherwise.
    """
    layers: dict[str, Figures] = {}
    operators: dict[str, Figures] = {}
    shapes: dict[str, Figures] = {}
    kernels: dict[str, Figures] = {}
    buckets = 0
    homes: list[str | None] = []  # the layer of each row; None in a bucket
    steps = max(1, tree.steps if steps is None else steps)
    for row in tree.rows:
        home = _home(row, homes)
        homes.append(home)
        own = row.device if device else row.host
        time = None if own is None else round(own / steps)
        if home is None:
            buckets += time or 0
        else:
            layers.setdefault(home, Figures()).add(row, time)
        if row.kind in ("model", "layer") and home is not None:
            layers[home].calls += row.calls
            layers[home].type = row.type
        elif row.kind == "operator":
            for figures in _of_operator(row, operators, shapes):
                figures.add(row, time)
                figures.calls += row.calls
        elif row.kind == "kernel":
            figures = kernels.setdefault(row.name, Figures())
            figures.add(row, None if row.device is None else round(row.device / steps))
            figures.calls += row.calls
            if device and row.parent >= 0 and tree.rows[row.parent].kind == "operator":
                for launcher in _of_operator(tree.rows[row.parent], operators, shapes):
                    launcher.time = _sum(launcher.time, time)
    for figures in (*layers.values(), *operators.values(), *shapes.values(), *kernels.values()):
        figures.calls = round(figures.calls / steps)
    return TreeFigures(layers, operators, shapes, kernels, buckets)


def _of_operator(
    row: TreeRow, operators: dict[str, Figures], shapes: dict[str, Figures]
) -> Iterator[Figures]:
    """Yield the operator of a row by name, and by name and shape."""
    name = base_name(row.name)
    yield operators.setdefault(name, Figures())
    yield shapes.setdefault(f"{name} {row.shapes}".rstrip(), Figures())


def _home(row: TreeRow, homes: list[str | None]) -> str | None:
    if row.kind == "bucket":
        return None
    return row.path if row.kind in ("model", "layer") else homes[row.parent]


def _sum(total: int | None, added: int | None) -> int | None:
    return added if total is None else total + (added or 0)


FALSE_DISCOVERIES = 0.05
# The largest of each kind are kept, and further ones that are significant or did other work.
MAX_ENTRIES = 200
_NO_FIGURES = Figures()
_Kind = Literal["layer", "operator", "kernel"]
_RECORDED_KINDS: tuple[_Kind, ...] = ("operator", "kernel")


class ComparedLocations(NamedTuple):
    """The places of a Comparison; see there."""

    layers: tuple[Place, ...] = ()
    operators: tuple[Place, ...] = ()
    kernels: tuple[Place, ...] = ()
    step_change: float | None = None
    remaining_change: float | None = None
    places_tested: str = ""
    warnings: tuple[MeasurementWarning, ...] = ()


def compare_locations(
    baseline: Profile, current: Profile, noise: HostNoise | None = None
) -> ComparedLocations:
    """Return the places of both trees; nothing of what a side did not record, with a warning.

    Times are the device's where it worked on both sides, else the host's. Layers are tested where
    both runs timed them in at least six processes and `noise` says how sessions differ; operators
    and kernels are of one recording each and are not.
    """
    if baseline.tree is None or current.tree is None:
        trees = (baseline.tree is not None, current.tree is not None)
        return ComparedLocations(warnings=not_recorded("layers, operators and kernels", trees))
    device = None not in (baseline.tree.root.device_time, current.tree.root.device_time)
    old, new = (tree_figures(tree, device=device) for tree in (baseline.tree, current.tree))
    layers = paired(old.layers, new.layers, "layer")
    tests = {} if noise is None else _tests(baseline, current, noise)
    layers = with_significance(layers, tests)
    listed_layers = _shortened(layers, noise)
    is_recorded = {
        kind: (bool(getattr(old, kind)), bool(getattr(new, kind)))
        for kind in ("operators", "kernels")
    }
    operators, kernels = (
        paired(getattr(old, f"{kind}s"), getattr(new, f"{kind}s"), kind)
        if all(is_recorded[f"{kind}s"])
        else []
        for kind in _RECORDED_KINDS
    )
    step = (_step_time(new) - _step_time(old)) * 1e-9
    return ComparedLocations(
        layers=listed_layers,
        operators=_shortened(operators, noise),
        kernels=_shortened(kernels, noise),
        step_change=step,
        remaining_change=step - math.fsum(place.contribution for place in listed_layers),
        places_tested=_tested(tests, noise),
        warnings=tuple(
            warning for kind, sides in is_recorded.items() for warning in not_recorded(kind, sides)
        ),
    )


def not_recorded(recorded_part: str, sides: tuple[bool, bool]) -> tuple[MeasurementWarning, ...]:
    """Return the warning that only one of two sides recorded something; none where both agree."""
    if sides[0] == sides[1]:
        return ()
    side = "current run" if sides[0] else "baseline"
    message = f"The {side} did not record {recorded_part}: they are not compared."
    return (MeasurementWarning(id="not-recorded", message=message, probe="compare"),)


def _shortened(places: list[Place], noise: HostNoise | None) -> tuple[Place, ...]:
    """Return the places worth listing; without relative changes where times do not compare."""
    listed = shortened(places)
    if noise is not None:
        return listed
    return tuple(msgspec.structs.replace(place, change=None) for place in listed)


def _tested(tests: Mapping[str, Welch], noise: HostNoise | None) -> str:
    if tests:
        return "Welch's t over processes, false discoveries at 5 % (Benjamini–Hochberg)"
    if noise is None:
        return "not tested: the runs are not comparable"
    return "not tested: re-record both with --processes 10"


def _step_time(side: TreeFigures) -> int:
    return side.buckets + sum(figures.time or 0 for figures in side.layers.values())


def paired(old: Mapping[str, Figures], new: Mapping[str, Figures], kind: _Kind) -> list[Place]:
    """Return the places of both sides, matched by name."""
    return [place(name, kind, old.get(name), new.get(name)) for name in {**old, **new}]


def place(name: str, kind: _Kind, old: Figures | None, new: Figures | None) -> Place:
    """Return one place of two sides; a side without it counts as no time."""
    before, after = old or _NO_FIGURES, new or _NO_FIGURES
    times = _seconds(before.time), _seconds(after.time)
    change = times[1] / times[0] - 1 if times[0] and times[1] is not None else None
    return Place(
        kind=kind,
        name=name,
        type=(new or before).type,
        baseline=times[0],
        current=times[1],
        contribution=(times[1] or 0.0) - (times[0] or 0.0),
        change=change,
        baseline_flops=before.flops,
        current_flops=after.flops,
        baseline_bytes=before.bytes,
        current_bytes=after.bytes,
        baseline_calls=None if old is None else old.calls,
        current_calls=None if new is None else new.calls,
    )


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds * 1e-9


def _tests(baseline: Profile, current: Profile, noise: HostNoise) -> dict[str, Welch]:
    """Return the test of each layer that both runs timed in each of enough processes."""
    sides = [
        _by_layer(profile.latency.processes if profile.latency else ())
        for profile in (baseline, current)
    ]
    tests = {}
    for path, old in sides[0].items():
        new = sides[1].get(path, [])
        if (
            min(len(old), len(new)) >= MIN_PROCESSES
            and (test := welch(old, new, noise)) is not None
        ):
            tests[path] = test
    return tests


def _by_layer(runs: Iterable[LatencyRun]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    for run in runs:
        for path, seconds in run.layer_times.items():
            times.setdefault(path, []).append(seconds)
    return times


def with_significance(
    layers: list[Place], tests: Mapping[str, Any], false_discoveries: float = FALSE_DISCOVERIES
) -> list[Place]:
    """Return the layers with their intervals, false discoveries among all tests kept at a share.

    A test has a `change`, an `interval()` and a `p`.

    Source: Benjamini and Hochberg (1995).
    """
    if not tests:
        return layers
    false_discovery_control = imported("scipy.stats").false_discovery_control

    adjusted = dict(
        zip(tests, false_discovery_control([test.p for test in tests.values()]), strict=True)
    )
    return [
        msgspec.structs.replace(
            layer,
            change=tests[layer.name].change,
            interval=tests[layer.name].interval(),
            significant=bool(adjusted[layer.name] <= false_discoveries),
        )
        if layer.name in tests
        else layer
        for layer in layers
    ]


def shortened(compared: Iterable[Place]) -> tuple[Place, ...]:
    """Return the places by contribution: the largest, and others that changed significantly."""
    ordered = sorted(compared, key=lambda place: -abs(place.contribution))
    first, remainder = ordered[:MAX_ENTRIES], ordered[MAX_ENTRIES:]
    changed = [place for place in remainder if place.significant or place.work_changed]
    return (*first, *changed[:MAX_ENTRIES])
