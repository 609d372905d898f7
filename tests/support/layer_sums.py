"""The costs of recorded spans, summed up by layer and phase."""

from typing import NamedTuple

import numpy as np

from torchgauge.analyze.timeline.attribution import PHASES
from torchgauge.analyze.work.event_costs import ABSENT


class LayerSum(NamedTuple):
    """Sums over the operators of one layer in one phase; `unknown` is how many are in no sum."""

    matmul: int
    vector: int
    calls: int
    unknown: int


def by_layer(costs, spans):
    """The sums by layer (NONE outside of all) and phase, as numbered in `Spans`."""
    keys, inverse = np.unique(
        (spans.layer * len(PHASES) + spans.phase)[costs.counts], return_inverse=True
    )
    matmul, vector = costs.matmul[costs.counts], costs.vector[costs.counts]
    has_work = matmul != ABSENT
    columns = np.zeros((4, len(keys)), np.int64)
    for row, values in enumerate((matmul * has_work, vector * has_work, 1, ~has_work)):
        np.add.at(columns[row], inverse, values)
    return {
        divmod(key, len(PHASES)): LayerSum(*sums)
        for key, sums in zip(keys.tolist(), columns.T.tolist(), strict=True)
    }
