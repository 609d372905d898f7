"""Lengths of backward pass and optimizer in bare steps, to scale the recorded ones by."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

import numpy as np

from torchgauge.analyze.timeline.attribution import BACKWARD, OPTIMIZER, RECOMPUTE, ZERO_GRAD
from torchgauge.analyze.timeline.tree import ENGINE, OPTIMIZING, NodeTable

_GROUPS = (
    (("backward",), (BACKWARD, RECOMPUTE), ENGINE),
    (("zero_grad", "optimizer"), (ZERO_GRAD, OPTIMIZER), OPTIMIZING),
)


@dataclasses.dataclass(frozen=True)
class PhaseTimes:
    """The length of each phase in ns, by step: of `bare` steps and of those that were `recorded`.

    A phase is named as in a training step: "zero_grad", "forward", "loss", "backward", "optimizer".
    """

    bare: Sequence[dict[str, int]]
    recorded: Sequence[dict[str, int]]

    def scaled(self, host: np.ndarray, table: NodeTable) -> np.ndarray:
        """Return the nodes' times `host` with those of both phases as long as in the bare steps.

        Recording can make a phase twice as long: what the profiler allocates between the tensors
        keeps the allocator from using memory again, and fresh memory costs a page fault each 4 kB.
        These meet another operator in each step, so that the operators' medians are also too short
        together: their sum is brought to the median of the phase.
        """
        scaled = host.copy()
        for names, phases, bucket in _GROUPS:
            bare, recorded = _median(self.bare, names), _median(self.recorded, names)
            group = [
                number
                for number, node in enumerate(table.nodes)
                if node.phase in phases or (node.kind == "bucket" and node.name == bucket)
            ]
            group_time = int(host[group].sum())
            if bare and recorded and group_time:
                recorded_time = float(np.median(table.host[group].sum(axis=0)))
                ratio = bare / recorded * recorded_time / group_time
                scaled[group] = np.rint(host[group] * ratio).astype(np.int64)
        return scaled


def _median(steps: Sequence[dict[str, int]], names: tuple[str, ...]) -> float:
    return statistics.median([sum(step.get(name, 0) for name in names) for step in steps] or [0])
