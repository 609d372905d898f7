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
        """Bytes that a rank sends by the algorithm of a ring, without help from the network."""
        factor = 2 if self.kind == "all_reduce" else 1
        return factor * self.moved

    @property
    def moved(self) -> float:
        """Bytes that must leave or reach a rank at least, by any algorithm and any network."""
        if self.kind in ("all_gather", "reduce_scatter", "all_to_all", "all_reduce"):
            return self.bytes * (self.ranks - 1) / self.ranks
        return float(self.bytes)


class WorkRow(Record, frozen=True, kw_only=True):
    """The calls of one operator in one phase and dtype on one rank, from its own tensors' shapes.

    FLOPs and bytes as in a count; `recompute` is what activation checkpointing runs again. Calls
    of an operator without formula are in `unknown_calls` and in no FLOPs.
    """

    phase: StepPhase | Literal["recompute"]
    operator: str
    dtype: str
    calls: int
    matmul_flops: int = 0
    causal_matmul_flops: int = 0
    vector_flops: int = 0
    bytes: int = 0
    unknown_calls: int = 0


class Link(Record, frozen=True, kw_only=True):
    """A link of a device by its datasheet: bytes per second that one device sends at most.

    Attributes:
        name: Such as "NVLink", within a machine, or "InfiniBand", between machines.
        bytes_per_second: In one direction.
        source: The document that says so.
    """

    name: str
    bytes_per_second: float
    source: str


class Links(Record, frozen=True, kw_only=True):
    """How devices are joined: `devices` to a machine by `within`, machines by `between`."""

    devices: int
    within: Link
    between: Link | None = None


class LinkBound(Record, frozen=True, kw_only=True):
    """The least time that one group's collectives take on the link that bounds them.

    `moved` is bytes that must leave or reach a rank at least, `machines` on how many machines the
    group's ranks are, where ranks are numbered machine by machine.
    """

    group: str
    ranks: int
    machines: int
    link: Link
    moved: float
    exposed_seconds: float
    overlappable_seconds: float


class StepBound(Record, frozen=True, kw_only=True):
    """The least time of a step under a device's roofs and links: a lower bound, not a prediction.

    Arithmetic counts for products alone, with causal attention at its exact triangle, and traffic
    for the optimizer alone, which reads and writes what it owns: fusion can save none of it.

    Attributes:
        device: Whose roofs these are.
        compute: Seconds of products and of the optimizer.
        exposed: Seconds of collectives that nothing can hide.
        overlappable: Seconds of collectives that may run beside operators.
        seconds: The longer of `compute` plus `exposed`, and of all collectives on a link.
        links: Collectives by group.
        at_least: Whether work without formula, a peak or a link's rate is missing.
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
