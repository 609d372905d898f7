"""What a stamp itself costs, from calls that were stamped twice, and a layer's share of it."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from torchgauge.analyze.call_tree import Call, CallTree, place


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
        return self.inside * self.by_layer.get(layer, self.median)

    def around(self, layer: int) -> float:
        """Return the ns that one call of a layer adds to the layer that makes it."""
        return (1 - self.inside) * self.by_layer.get(layer, self.median)


FREE = StampCost(by_layer={}, median=0.0, inside=0.0)

# In whole steps of four models stamps cost 1.0 to 2.8 times what lies between two readings.
EXPECTED_SPREAD = 0.5
MOST = 4.0


def stamp_cost(
    inner: Sequence[Sequence[Call]],
    outer: Sequence[Sequence[Call]],
    tree: CallTree,
    calibrated: StampCost,
    differences: Sequence[float] = (),
) -> StampCost:
    """Return what a stamp costs from steps with two stamps at each call, one around the other.

    Between the readings of the outer and the inner one lies what one stamp takes: the second half
    of the one's begin with the first half of the other's, and at the end likewise. Both readings
    are of the same call, so that nothing else is in their difference, and so short a time that
    other work on the machine seldom falls into it. What part of it is inside is as `calibrated`,
    which also stands where nothing was stamped twice.

    What the first of two stamps meets in cold caches the second does not: `differences`, the ns by
    which stamped steps are longer than the bare ones beside them, scale the costs as far as they
    are known well enough.
    """
    costs: dict[int, list[int]] = defaultdict(list)
    layers: list[list[int]] = []
    for step_inner, step_outer in zip(inner, outer, strict=True):
        placed = place(step_inner, tree)
        layers.append([])
        for number, cost in _pairs(step_inner, step_outer):
            if not step_inner[number].again:
                costs[placed[number].layer].append(cost)
                layers[-1].append(placed[number].layer)
    every = [cost for found in costs.values() for cost in found]
    if not every:
        return calibrated
    by_layer = {layer: max(0.0, statistics.median(found)) for layer, found in costs.items()}
    step = statistics.median(sum(by_layer[layer] for layer in step) for step in layers)
    scale = _scale(step, differences)
    return StampCost(
        {layer: cost * scale for layer, cost in by_layer.items()},
        max(0.0, statistics.median(every)) * scale,
        calibrated.inside,
    )


def _scale(step: float, differences: Sequence[float]) -> float:
    """Return by how much more than `step` ns the stamps of a step cost, 1 where that is not known.

    The median difference counts by its precision, beside what is expected without it; a stamp
    takes no less than what lies between two readings.
    """
    if step <= 0 or len(differences) < 3:
        return 1.0
    median = statistics.median(differences)
    spread = statistics.median(abs(one - median) for one in differences)
    # Of a normal distribution: the deviation by the median one, the median's error by that.
    error = 1.4826 * spread * math.sqrt(math.pi / 2 / len(differences)) / step
    weight = EXPECTED_SPREAD**2 / (EXPECTED_SPREAD**2 + error**2)
    return min(MOST, max(1.0, 1 + weight * (median / step - 1)))


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
