"""The layers, operators and kernels of two runs side by side, most contribution first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from torchgauge.analyze.compare.tree_figures import Figures, TreeFigures, tree_figures
from torchgauge.analyze.gate.stored import MIN_PROCESSES, HostNoise, Welch, welch
from torchgauge.imports import imported
from torchgauge.records.comparison import Place
from torchgauge.records.latency.latency import LatencyRun
from torchgauge.records.profile import Profile
from torchgauge.records.record import MeasurementWarning

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


def paired(
    old: Mapping[str, Figures],
    new: Mapping[str, Figures],
    kind: _Kind,
) -> list[Place]:
    """Return the places of both sides, matched by name."""
    return [place(name, kind, old.get(name), new.get(name)) for name in {**old, **new}]


def place(
    name: str,
    kind: _Kind,
    old: Figures | None,
    new: Figures | None,
) -> Place:
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
