"""The work of one rank over a training step: its operators, its collectives, and their time."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchgauge.records.parallel.rank_memory import StepPhase
from torchgauge.records.record import How, Record

CollectiveKind = Literal[
    "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "send", "recv", "other"
]
Exposure = Literal["exposed", "overlappable"]


class CollectiveRow(Record, frozen=True, kw_only=True):
    """The collectives of one kind, group, dtype and phase, in one step of one rank.

    Attributes:
        kind: What they do.
        group: The dimensions of the mesh that take part, such as "fsdp"; empty where the group is
            none of the mesh's.
        ranks: How many ranks take part.
        phase: When they start.
        dtype: Of their elements.
        calls: How many there are.
        bytes: Of the whole tensors: what an all-gather gives each rank, what a reduce-scatter or an
            all-reduce takes from it.
        exposure: "exposed" where the next operator needs the result at once; "overlappable" where
            the framework starts them ahead, or on a stream of their own, beside other work.
    """

    kind: CollectiveKind
    group: str
    ranks: int
    phase: StepPhase
    dtype: str
    calls: int
    bytes: int
    exposure: Exposure

    @property
    def sent(self) -> float:
        """Bytes that a rank must send at least, by any algorithm without help from the network."""
        share = (self.ranks - 1) / self.ranks
        if self.kind == "all_reduce":
            return 2 * share * self.bytes
        if self.kind in ("all_gather", "reduce_scatter", "all_to_all"):
            return share * self.bytes
        return float(self.bytes)


class WorkRow(Record, frozen=True, kw_only=True):
    """The operators of one phase and dtype on one rank, from the shapes of its own tensors.

    FLOPs and bytes as in a count; `recompute` is what activation checkpointing runs again. Calls of
    operators without formula are in `unknown_calls` and in no other figure.
    """

    phase: StepPhase | Literal["recompute"]
    dtype: str
    calls: int
    matmul_flops: int = 0
    vector_flops: int = 0
    bytes: int = 0
    unknown_calls: int = 0


class LinkBound(Record, frozen=True, kw_only=True):
    """The least time that one group's collectives take on the links that join its ranks.

    `link` names them: "NVLink" within a machine, "InfiniBand" between machines.
    `bytes_per_second` is what one device sends at most, `source` the document that says so.
    """

    group: str
    ranks: int
    link: str
    bytes_per_second: float
    sent: float
    exposed_seconds: float
    overlappable_seconds: float
    source: str


class StepBound(Record, frozen=True, kw_only=True):
    """The least time of a step under a device's roofs and links: a lower bound, not a prediction.

    No step is faster; how much slower it is, this does not say.

    Attributes:
        device: Whose roofs these are.
        compute: Seconds of operators, each at its roof of arithmetic or memory.
        exposed: Seconds of collectives that nothing can hide, each at its link's rate.
        overlappable: Seconds of collectives that may run beside operators.
        seconds: The longer of `compute` plus `exposed` and of all collectives.
        links: Collectives by group.
        at_least: Whether work without formula or a link of unknown rate is missing.
        sources: The document of each figure of the device.
    """

    device: str
    seconds: float
    compute: float
    exposed: float
    overlappable: float
    links: tuple[LinkBound, ...] = ()
    at_least: bool = False
    sources: dict[str, str] = msgspec.field(default_factory=dict)
    how: How = "estimated"
