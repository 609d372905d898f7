"""Options of a gate: what it is against, tolerances, limits, and how many blocks it may take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from torchgauge.analyze.gate.limits import parse_limit
from torchgauge.analyze.gate.tolerances import USUAL_METRICS, default_tolerance, parse_tolerance
from torchgauge.errors import InputError, option_conflict, option_invalid
from torchgauge.records.metric import METRICS, metric
from torchgauge.records.verdict import Limit, Tolerance

USUAL_BLOCKS = 8
MOST_BLOCKS = 40
LEAST_BLOCKS = 3
BaseEnvironment = Literal["this", "build"]


@dataclasses.dataclass(frozen=True)
class BaseRequest:
    """The build that a target is gated against: a git revision of it, or another target.

    `environment` "build" installs what the revision requires into an environment of its own.
    Raises InputError `option-conflict` where it names neither.
    """

    ref: str | None = None
    target: str | None = None
    environment: BaseEnvironment = "this"

    def __post_init__(self) -> None:
        if self.ref is None and self.target is None:
            raise option_conflict(
                "There is nothing to gate against.",
                "Give --base-ref REF, --base-target TARGET or --baseline run.json.",
            )


def model_and_record(message: str) -> InputError:
    """Return the error that one side is a model and the other a record."""
    return InputError(
        message,
        id="gate-sides",
        cause="Both models are run in turn, or both records are read.",
        remedy="Give two pairs (model, inputs), or profile the model with processes=10 first.",
    )


@dataclasses.dataclass(frozen=True)
class GateOptions:
    """What is gated: a tolerance for each metric, absolute limits, and how many blocks at most.

    One of the `usual` metrics, for which nobody asked, is left out where no build has it.
    `blocks` None plans them by the host's calibration. `time_always` times even where an exact
    metric has failed. Raises InputError `option-invalid`.
    """

    tolerances: tuple[Tolerance, ...]
    limits: tuple[Limit, ...] = ()
    blocks: int | None = None
    max_blocks: int = MOST_BLOCKS
    time_always: bool = False
    usual: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if min(self.max_blocks, self.blocks or self.max_blocks) < LEAST_BLOCKS:
            raise option_invalid(
                f"Fewer than {LEAST_BLOCKS} blocks say nothing.",
                f"Give --blocks and --max-blocks as {LEAST_BLOCKS} or more.",
                cause="A spread is needed, and two values hardly have one.",
            )
        if self.blocks is not None and self.blocks > self.max_blocks:
            raise option_conflict(
                f"{self.blocks} blocks are more than the most of {self.max_blocks}.",
                "Give a larger --max-blocks as well.",
            )

    def of_kind(self, *, timing: bool) -> tuple[Tolerance, ...]:
        """Return the tolerances of timing metrics, or those of exact ones."""
        return tuple(
            tolerance
            for tolerance in self.tolerances
            if (METRICS[tolerance.metric].kind == "timing") == timing
        )

    @staticmethod
    def of_comparison(blocks: int | None = None) -> GateOptions:
        """Return what a comparison asks for: all metrics, and no more blocks than these."""
        count = USUAL_BLOCKS if blocks is None else blocks
        metrics = (*USUAL_METRICS, "throughput")
        return GateOptions.parsed(metrics, blocks=count, max_blocks=count, time_always=True)

    @staticmethod
    def parsed(
        metrics: Sequence[str] = (),
        tolerances: Sequence[str] = (),
        thresholds: Sequence[str] = (),
        *,
        blocks: int | None = None,
        max_blocks: int = MOST_BLOCKS,
        time_always: bool = False,
    ) -> GateOptions:
        """Return the options from texts as users write them.

        Without `metrics` the usual ones are gated: parameters, FLOPs, memory, latency; and those
        that a tolerance names. Raises InputError `metric-unknown`, `threshold-invalid`.
        """
        explicit = {tolerance.metric: tolerance for tolerance in map(parse_tolerance, tolerances)}
        names = dict.fromkeys(
            [metric(name).name for name in metrics or USUAL_METRICS] + [*explicit]
        )
        return GateOptions(
            tolerances=tuple(explicit.get(name, default_tolerance(name)) for name in names),
            limits=tuple(map(parse_limit, thresholds)),
            blocks=blocks,
            max_blocks=max_blocks,
            time_always=time_always,
            usual=frozenset(() if metrics else USUAL_METRICS) - set(explicit),
        )
