"""What a gate is to hold: tolerances, limits, and how many blocks it may take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from torchgauge.analyze.limits import parse_limit
from torchgauge.analyze.tolerances import USUAL_METRICS, default_tolerance, parse_tolerance
from torchgauge.errors import InputError
from torchgauge.model.metric import METRICS, metric
from torchgauge.model.verdict import Limit, Tolerance

MOST_BLOCKS = 40
LEAST_BLOCKS = 3


@dataclasses.dataclass(frozen=True)
class GateOptions:
    """What is gated: a tolerance for each metric, absolute limits, and how many blocks at most.

    One of the `usual` metrics, for which nobody asked, is left out where no build has it.
    `blocks` None plans them by the host's calibration. `everything` times even where an exact
    metric has failed. Raises InputError `option-invalid`.
    """

    tolerances: tuple[Tolerance, ...]
    limits: tuple[Limit, ...] = ()
    blocks: int | None = None
    most: int = MOST_BLOCKS
    everything: bool = False
    usual: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if min(self.most, self.blocks or self.most) < LEAST_BLOCKS:
            raise InputError(
                f"Fewer than {LEAST_BLOCKS} blocks say nothing.",
                id="option-invalid",
                cause="A spread is needed, and two values hardly have one.",
                remedy=f"Give --blocks and --max-blocks as {LEAST_BLOCKS} or more.",
            )
        if self.blocks is not None and self.blocks > self.most:
            raise InputError(
                f"{self.blocks} blocks are more than the most of {self.most}.",
                id="option-conflict",
                remedy="Give a larger --max-blocks as well.",
            )

    def of_kind(self, *, timing: bool) -> tuple[Tolerance, ...]:
        """Return the tolerances of timing metrics, or those of exact ones."""
        return tuple(
            one for one in self.tolerances if (METRICS[one.metric].kind == "timing") == timing
        )

    @staticmethod
    def parsed(
        metrics: Sequence[str] = (),
        tolerances: Sequence[str] = (),
        thresholds: Sequence[str] = (),
        *,
        blocks: int | None = None,
        most: int = MOST_BLOCKS,
        everything: bool = False,
    ) -> GateOptions:
        """Return the options from texts as users write them.

        Without `metrics` the usual ones are gated: parameters, FLOPs, memory, latency; and those
        that a tolerance names. Raises InputError `metric-unknown`, `threshold-invalid`.
        """
        said = {one.metric: one for one in map(parse_tolerance, tolerances)}
        names = dict.fromkeys([metric(name).name for name in metrics or USUAL_METRICS] + [*said])
        return GateOptions(
            tolerances=tuple(said.get(name, default_tolerance(name)) for name in names),
            limits=tuple(map(parse_limit, thresholds)),
            blocks=blocks,
            most=most,
            everything=everything,
            usual=frozenset(() if metrics else USUAL_METRICS) - set(said),
        )
