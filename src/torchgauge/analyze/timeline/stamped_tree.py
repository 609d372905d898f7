"""The tree of layers alone, from stamps without a recording."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Literal

from torchgauge.analyze.timeline.call_tree import CallTree
from torchgauge.analyze.timeline.layer_times import LayerTimes
from torchgauge.analyze.timeline.residual import residual_warnings
from torchgauge.analyze.timeline.tree import OUTSIDE_MODEL
from torchgauge.records.timeline.tree import Pass, Tree
from torchgauge.records.timeline.tree_row import TreeRow

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
            type=calls.type(number),
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
