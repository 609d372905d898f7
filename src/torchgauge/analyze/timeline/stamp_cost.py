"""Overhead of a stamp, from calls that were stamped twice, and a layer's share of it."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from torchgauge.analyze.timeline.call_tree import Call, CallTree, place


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
