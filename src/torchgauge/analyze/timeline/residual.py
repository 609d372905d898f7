"""Residual of a tree, against the undisturbed step and the headline latency; cost of stamps.

The tree of layers alone, from stamps without a recording.

From stamps to times: how long each layer ran itself, outside of the layers it called.

A layer's time is that of its call as its caller sees it: forward, hooks, and what
`nn.Module.__call__` takes around them, which would be gone with the layer.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from torchgauge import units
from torchgauge.analyze.timeline.call_tree import Call, CallTree, place
from torchgauge.analyze.timeline.tree import OUTSIDE_MODEL
from torchgauge.records.latency.latency import Latency
from torchgauge.records.record import Interval, MeasurementWarning
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Pass, Tree

# Between runs of one model on a quiet machine it is 1–3 %.
TOLERATED = 0.1
# A tree is no nearer to its own bare steps than some 3 %.
TOLERATED_HEADLINE = 0.05


@dataclasses.dataclass(frozen=True)
class StampCost:
    """Nanoseconds that a stamp adds to a call: part of them inside of what it reads.

    A call's reading holds `inside`, a share from 0 to 1, of its own stamp's cost; the rest falls
    between the readings, into the time of the layer that makes the call. The cost differs by place,
    as caches are warm or not: `by_layer` has its median per call at each layer of the call tree,
    `median` that of all calls, for the other layers.
    """

    by_layer: Mapping[int, float]
    median: float
    inside: float

    def within(self, layer: int) -> float:
        """Return the ns by which the reading of one call of a layer is too long."""
        return self.inside * self.per_call(layer)

    def around(self, layer: int) -> float:
        """Return the ns that one call of a layer adds to the layer that makes it."""
        return (1 - self.inside) * self.per_call(layer)

    def per_call(self, layer: int) -> float:
        """Return the ns that one call of a layer costs."""
        return self.by_layer.get(layer, self.median)


FREE = StampCost(by_layer={}, median=0.0, inside=0.0)
# Pairs of stamps show too little of the cost and whole steps too much: it lies halfway.
HALFWAY = 0.5
# By how much the cost that pairs show is usually off, as a share of it.
USUALLY_OFF = 1.0
FEWEST_STEPS = 8


def stamp_cost(
    inner: Sequence[Sequence[Call]],
    outer: Sequence[Sequence[Call]],
    tree: CallTree,
    calibrated: StampCost,
) -> StampCost:
    """Return the cost of a stamp from steps with two stamps at each call, one around the other.

    Between the readings of the outer and the inner one lies what one stamp takes: the second half
    of the one's begin with the first half of the other's, and at the end likewise. Both readings
    are of the same call, so that nothing else is in their difference, and so short a time that
    other work on the machine seldom falls into it. What part of it is inside is as `calibrated`,
    which also stands where nothing was stamped twice.
    """
    costs: dict[int, list[int]] = defaultdict(list)
    for step_inner, step_outer in zip(inner, outer, strict=True):
        placed = place(step_inner, tree)
        for number, cost in _pairs(step_inner, step_outer):
            if not step_inner[number].recomputed:
                costs[placed[number].layer].append(cost)
    by_layer = {
        layer: max(0.0, statistics.median(layer_costs)) for layer, layer_costs in costs.items()
    }
    all_costs = [cost for layer_costs in costs.values() for cost in layer_costs]
    if not all_costs:
        return calibrated
    return StampCost(by_layer, max(0.0, statistics.median(all_costs)), calibrated.inside)


def scaled_to_steps(
    cost: StampCost,
    steps: Sequence[Sequence[Call]],
    tree: CallTree,
    bare: Sequence[float],
    stamped: Sequence[float],
) -> StampCost:
    """Return the cost scaled halfway to the difference of stamped and bare forward passes.

    Of two stamps the second finds its code in the caches and the first does not: between layers of
    10 µs it costs twice as much. Whole forwards show that, and what else the stamps disturb, which
    is not of their place. The less surely they show it, since they vary, the less is it followed.
    `steps` are the calls of the stamped ones, `bare` and `stamped` lengths of forwards in ns.
    """
    explained = statistics.median(
        sum(
            cost.per_call(placement.layer)
            for call, placement in zip(calls, place(calls, tree), strict=True)
            if not call.recomputed  # recomputed in the backward pass
        )
        for calls in steps
    )
    if explained <= 0 or min(len(bare), len(stamped)) < FEWEST_STEPS:
        return cost
    observed = (statistics.median(stamped) - statistics.median(bare)) / explained
    error = math.hypot(_error(bare), _error(stamped)) / explained
    followed = HALFWAY * USUALLY_OFF**2 / (USUALLY_OFF**2 + error**2)
    factor = max(0.0, 1 + followed * (observed - 1))
    by_layer = {layer: factor * layer_cost for layer, layer_cost in cost.by_layer.items()}
    return StampCost(by_layer, factor * cost.median, cost.inside)


def _error(steps: Sequence[float]) -> float:
    """Return the standard error of a median, from the quartiles."""
    low, _, high = statistics.quantiles(steps)
    return 1.25 * (high - low) / 1.35 / math.sqrt(len(steps))


def _pairs(inner: Sequence[Call], outer: Sequence[Call]) -> Iterator[tuple[int, int]]:
    """Yield the number of each inner reading, and how much longer its outer one is, in ns.

    On each thread both kinds end in the same order.
    """
    waiting: dict[int, list[Call]] = defaultdict(list)
    for call in reversed(outer):
        waiting[call.thread].append(call)
    for number, call in enumerate(inner):
        if waiting[call.thread]:
            around = waiting[call.thread].pop()
            if around.module == call.module:
                yield number, (around.end - around.start) - (call.end - call.start)


def residual_warnings(residual: float | None, bare: float | None) -> tuple[MeasurementWarning, ...]:
    """Return a warning where the parts' sum is far from the bare step (both in s)."""
    if residual is None or not bare or abs(residual) <= TOLERATED * bare:
        return ()
    side = "above" if residual > 0 else "below"
    return (
        MeasurementWarning(
            id="tree-residual",
            message=f"The tree's times add up to {units.percent(abs(residual) / bare)} {side} the "
            "step without instruments.",
            probe="timeline",
            cause="Threads of the model ran in parallel, something else ran on the machine "
            "meanwhile, or the instruments cost that much.",
            remedy="Read the tree's shares, not its times; repeat it on a quiet machine.",
        ),
    )


def with_headline_ratio(tree: Tree, latency: Latency | None) -> Tree:
    """Return the tree with its sum as a ratio to the headline latency, and a warning if it is off.

    Unknown where latency was measured of other calls (cold caches, stages), and where the time is
    a device's: the host's part of a step is then no latency.
    """
    total = tree.root.host_time
    if latency is None or latency.cold_cache or latency.stages or not latency.median:
        return tree
    if not total or tree.root.device_time is not None:
        return tree
    return msgspec.structs.replace(
        tree,
        headline_ratio=total / latency.median,
        warnings=(*tree.warnings, *_headline_warnings(tree, total, latency)),
    )


def _headline_warnings(tree: Tree, total: float, latency: Latency) -> list[MeasurementWarning]:
    ratio = total / latency.median
    if abs(ratio - 1) <= TOLERATED_HEADLINE or _overlap(
        _tree_interval(tree, total), _latency_interval(latency)
    ):
        return []
    bare = next((measured_pass.bare for measured_pass in tree.passes if measured_pass.bare), None)
    bare_text = "" if bare is None else f", calls without instruments {bare / latency.median:.2f}×"
    return [
        MeasurementWarning(
            id="tree-headline",
            message=f"The tree's calls took {ratio:.2f}× the headline latency: its times "
            f"add up to {units.time(total, 3)}, the headline is {units.time(latency.median, 3)}.",
            probe="timeline",
            cause=f"While the tree was measured a step took that long{bare_text}: the machine or "
            "the process ran at a different speed during the latency measurement.",
            remedy=f"Read the tree's shares, or divide its times by {ratio:.2f}; repeat it on a "
            "quiet machine.",
        )
    ]


def _latency_interval(latency: Latency) -> Interval:
    """Return the interval of the headline, else the range of the processes' medians."""
    medians = latency.process_medians or (latency.median,)
    return latency.interval or Interval(low=min(medians), high=max(medians))


def _tree_interval(tree: Tree, total: float) -> Interval:
    """Return the interval of the bare steps beside the tree's, brought to the tree's sum."""
    for measured_pass in tree.passes:
        if measured_pass.bare and measured_pass.bare_interval is not None:
            scale = total / measured_pass.bare
            return Interval(
                low=measured_pass.bare_interval.low * scale,
                high=measured_pass.bare_interval.high * scale,
            )
    return Interval(low=total, high=total)


def _overlap(first: Interval, second: Interval) -> bool:
    return first.low <= second.high and second.low <= first.high


@dataclasses.dataclass(frozen=True)
class LayerTimes:
    """By step, each layer's own time in ns and its calls; layers that did not run are absent.

    Without what the stamps cost, as far as that is known: in a single step it may leave a time
    below zero. Recomputation (activation checkpointing) is left out: it is part of the backward
    pass.
    """

    steps: list[dict[int, float]]
    calls: list[dict[int, int]]


def layer_times(
    steps: Sequence[Sequence[Call]], tree: CallTree, cost: StampCost = FREE
) -> LayerTimes:
    """Return the times of stamped steps, less what the stamps `cost`.

    The tree grows by the layers that are new in them.
    """
    times, counts = [], []
    for calls in steps:
        own: dict[int, float] = {}
        count: dict[int, int] = {}
        placed = place(calls, tree)
        for call, placement in zip(calls, placed, strict=True):
            if call.recomputed:
                continue
            layer, length = placement.layer, call.end - call.start
            own[layer] = own.get(layer, 0) + length - cost.within(layer)
            count[layer] = count.get(layer, 0) + 1
            if placement.around >= 0:
                around = placed[placement.around].layer
                own[around] = own.get(around, 0) - length - cost.around(layer)
        times.append(own)
        counts.append(count)
    return LayerTimes(times, counts)


BEYOND_FORWARD = "loss, backward and optimizer"


def stamped_tree(
    stamped: LayerTimes,
    calls: CallTree,
    *,
    step: Literal["inference", "training"],
    passes: tuple[Pass, ...],
) -> Tree:
    """Return the layers with their own forward time, the median over the steps.

    What the bare step takes longer than all of them is a bucket: of a training step, what comes
    after the forward pass. `passes` begins with the stamps.
    """
    own = [
        max(0, int(statistics.median(times.get(layer, 0) for times in stamped.steps)))
        for layer in range(len(calls.layers))
    ]
    count = Counter[tuple[int, int]](
        (layer, times) for counts in stamped.calls for layer, times in counts.items()
    )
    often = {layer: times for (layer, times), _ in reversed(count.most_common())}
    rows = [
        TreeRow(
            name=layer.name,
            kind="layer" if number else "model",
            parent=layer.parent,
            calls=often.get(number, 0),
            path=layer.path,
            type=calls.module(number).kind,
            source=calls.module(number).source,
            host=own[number],
        )
        for number, layer in enumerate(calls.layers)
    ]
    bare = passes[0].bare
    if bare is not None:
        name = OUTSIDE_MODEL if step == "inference" else BEYOND_FORWARD
        remainder = max(0, round(bare * 1e9) - sum(own))
        rows.append(TreeRow(name=name, kind="bucket", parent=0, calls=0, host=remainder))
    total = sum(row.host or 0 for row in rows) * 1e-9
    residual = None if bare is None else total - bare
    return Tree(
        rows=tuple(rows),
        step=step,
        passes=passes,
        residual=residual,
        warnings=residual_warnings(residual, bare),
    )
