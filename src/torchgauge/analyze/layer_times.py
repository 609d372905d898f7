"""From stamps to times: how long each layer ran itself, outside of the layers it called."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from torchgauge.analyze.call_tree import Call, CallTree, place


@dataclasses.dataclass(frozen=True)
class LayerTimes:
    """By step, each layer's own time in ns and its calls; layers that did not run are absent.

    Recomputation (activation checkpointing) is left out: it is part of the backward pass.
    """

    steps: list[dict[int, int]]
    calls: list[dict[int, int]]


def layer_times(steps: Sequence[Sequence[Call]], tree: CallTree) -> LayerTimes:
    """Return the times of stamped steps; the tree grows by the layers that are new in them."""
    times, counts = [], []
    for calls in steps:
        own: dict[int, int] = {}
        count: dict[int, int] = {}
        placed = place(calls, tree)
        for call, where in zip(calls, placed, strict=True):
            if call.again:
                continue
            length = call.end - call.start
            own[where.layer] = own.get(where.layer, 0) + length
            count[where.layer] = count.get(where.layer, 0) + 1
            if where.around >= 0:
                around = placed[where.around].layer
                own[around] = own.get(around, 0) - length
        times.append(own)
        counts.append(count)
    return LayerTimes(times, counts)
