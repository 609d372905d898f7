"""From stamps to times: how long each layer ran itself, outside of the layers it called.

A layer's time is that of its call as its caller sees it: forward, hooks, and what
`nn.Module.__call__` takes around them, which would be gone with the layer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from torchgauge.analyze.timeline.call_tree import Call, CallTree, place
from torchgauge.analyze.timeline.stamp_cost import FREE, StampCost


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
