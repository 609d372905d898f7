"""How long backward pass and optimizer take in bare steps, beside what was recorded of them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

import numpy as np

from torchgauge.analyze.attribution import BACKWARD, OPTIMIZER, RECOMPUTE, ZERO_GRAD
from torchgauge.analyze.tree import ENGINE, OPTIMIZING, Growth

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

    def scaled(self, host: np.ndarray, growth: Growth) -> np.ndarray:
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
                for number, node in enumerate(growth.nodes)
                if node.phase in phases or (node.kind == "bucket" and node.name == bucket)
            ]
            together = int(host[group].sum())
            if bare and recorded and together:
                whole = float(np.median(growth.host[group].sum(axis=0)))
                ratio = bare / recorded * whole / together
                scaled[group] = np.rint(host[group] * ratio).astype(np.int64)
        return scaled


def _median(steps: Sequence[dict[str, int]], names: tuple[str, ...]) -> float:
    return statistics.median([sum(step.get(name, 0) for name in names) for step in steps] or [0])
