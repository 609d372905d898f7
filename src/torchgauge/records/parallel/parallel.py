"""The record of `torchgauge count --mesh`: one rank of a job on many devices, without them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, get_args

import msgspec

from torchgauge.records.exported import Exported
from torchgauge.records.parallel import rank_memory
from torchgauge.records.record import How, MeasurementWarning, Record
from torchgauge.records.target import TargetDescription

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
    phase: rank_memory.StepPhase
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

    phase: rank_memory.StepPhase | Literal["recompute"]
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


SCHEMA = "torchgauge.parallel/1"


class MeshDim(Record, frozen=True, kw_only=True):
    """One dimension of a mesh of devices: its name, and how many devices lie along it."""

    name: str
    size: int


class RankKind(Record, frozen=True, kw_only=True):
    """One rank that was counted, and the ranks that are like it.

    Attributes:
        name: "rank", or the stage of a pipeline: "stage 0".
        rank: The rank that was counted.
        ranks: How many ranks are like it.
        parameters: Elements of the parameters that it holds.
        memory: What is alive on it over a step.
        work: Its operators, by phase and dtype.
        collectives: What it sends and receives.
        fits: Whether it fits, for each device asked for.
        bounds: The least time of a step, for each device asked for.
    """

    name: str
    rank: int
    ranks: int
    parameters: int
    memory: rank_memory.RankMemory
    work: tuple[WorkRow, ...] = ()
    collectives: tuple[CollectiveRow, ...] = ()
    fits: tuple[rank_memory.DeviceFit, ...] = ()
    bounds: tuple[StepBound, ...] = ()

    @property
    def flops(self) -> int:
        """FLOPs of forward and backward pass and optimizer."""
        return sum(
            row.matmul_flops + row.vector_flops for row in self.work if row.phase != "recompute"
        )

    @property
    def executed_flops(self) -> int:
        """FLOPs with those that activation checkpointing repeats."""
        return sum(row.matmul_flops + row.vector_flops for row in self.work)

    @property
    def sent(self) -> float:
        """Bytes that the rank sends at least in a step."""
        return sum(row.sent for row in self.collectives)

    @property
    def at_least(self) -> bool:
        """Whether operators without formula ran, so that FLOPs are lower bounds."""
        return any(row.unknown_calls for row in self.work)

    def disagreements(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the message of each inconsistency of this rank."""
        memory = self.memory
        if sum(alive.bytes for alive in memory.at_peak) != memory.peak:
            yield "memory.at_peak", "it does not add up to the peak"
        if any(len(moment.parts) != len(get_args(rank_memory.Part)) for moment in memory.timeline):
            yield "memory.timeline", "a moment does not have all parts"
        if memory.reserved < memory.peak:
            yield "memory.reserved", "it is less than the peak"
        for index, collective in enumerate(self.collectives):
            if collective.ranks < 1:
                yield f"collectives[{index}].ranks", "it has no rank"


class Parallel(Exported, frozen=True, kw_only=True):
    """A training step of a job on many devices, counted for one rank of each kind.

    Attributes:
        target: The model, and the inputs of one rank.
        mesh: The dimensions of the mesh, outermost first.
        sharding: Who shards: the target's own function, or a named recipe.
        optimizer: Its class; what each recipe makes, or the target's own.
        precision: "fp32", "bf16" (mixed: bf16 parameters gathered, gradients reduced in float32),
            or "native" where the target's function decides.
        checkpoint: Which activations are made again: "full", "op", "none", or "own".
        parameters: Elements of the parameters of the whole model.
        kinds: One rank of each kind; all are alike but for pipelines.
        smallest: The smallest mesh that fits, where it was asked for.
        alternatives: The same step with one setting changed, where they were asked for.
        seconds: Of the counting.
    """

    schema: str = SCHEMA
    target: TargetDescription
    mesh: tuple[MeshDim, ...]
    sharding: str
    optimizer: str
    precision: str
    checkpoint: Literal["full", "op", "none", "own"]
    parameters: int
    kinds: tuple[RankKind, ...]
    smallest: rank_memory.SmallestMesh | None = None
    alternatives: tuple[rank_memory.Alternative, ...] = ()
    seconds: float | None = None
    torch: str = ""
    warnings: tuple[MeasurementWarning, ...] = ()

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return math.prod(dim.size for dim in self.mesh)

    @property
    def largest(self) -> RankKind:
        """The kind of rank that reserves the most memory."""
        return max(self.kinds, key=lambda kind: kind.memory.reserved)

    def disagreements(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the message of each inconsistency of the record."""
        for name in ("mesh", "kinds"):
            if not getattr(self, name):
                yield name, "it is empty"
        for index, dim in enumerate(self.mesh):
            if dim.size < 1:
                yield f"mesh[{index}].size", f"{dim.size} is not a number of devices"
        for index, kind in enumerate(self.kinds):
            for path, message in kind.disagreements():
                yield f"kinds[{index}].{path}", message
