"""The memory of one rank over a training step, by part, layer and stream."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from torchgauge.records.record import How, Record

Part = Literal[
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "gathered",
    "buffers",
    "inputs",
    "workspace",
]
PARTS: tuple[Part, ...] = get_args(Part)
StepPhase = Literal["forward", "backward", "optimizer"]
Verdict = Literal["fits", "may fit", "does not fit"]


class AliveBytes(Record, frozen=True, kw_only=True):
    """Bytes of one part that belong to one layer, alive at the peak.

    `layer` is the module path of the layer that made the tensors, or that owns them; empty for the
    model itself and for what no layer made.
    """

    part: Part
    layer: str
    bytes: int


class StepMoment(Record, frozen=True, kw_only=True, array_like=True):
    """Bytes alive at one moment of a step.

    Attributes:
        changes: How many allocations and frees of the step came before.
        phase: The phase that it is in.
        parts: Bytes of each part, in the order of `PARTS`.
    """

    changes: int
    phase: StepPhase
    parts: tuple[int, ...]


class StreamPool(Record, frozen=True, kw_only=True):
    """The most bytes alive at once of what one stream allocated.

    The caching allocator of a device keeps a pool for each stream and gives no block of one to
    another: `stream` is "compute", "all_gather", "reduce_scatter" or "all_reduce".
    """

    stream: str
    peak: int


class RankMemory(Record, frozen=True, kw_only=True):
    """Bytes alive on one rank over a step that follows the first, whose optimizer made its states.

    Attributes:
        resting: By part, what is alive between steps.
        largest: By part, the most that is alive at any time; the parts are not at their largest
            together. "gathered" is parameters that other ranks hold, gathered for a layer, and
            gradients before they are reduced; "workspace" is what a phase makes and drops.
        peak: The most that is alive at once: a lower bound of what the device must have.
        peak_phase: When that is.
        phases: The most in each phase.
        at_peak: What is alive at the peak, by part and layer; adds up to `peak`.
        pools: The peak of each stream's pool.
        reserved: The sum over pools, which a caching allocator reserves; estimated, without
            fragmentation and the driver's own memory.
        timeline: What is alive over the step: of equal stretches the highest moment, so that the
            peak is among them; at most some hundred.
    """

    resting: dict[Part, int]
    largest: dict[Part, int]
    peak: int
    peak_phase: StepPhase
    phases: dict[StepPhase, int]
    at_peak: tuple[AliveBytes, ...]
    pools: tuple[StreamPool, ...]
    reserved: int
    timeline: tuple[StepMoment, ...] = ()
    how: How = "counted"
    reserved_how: How = "estimated"

    @property
    def parts_at_peak(self) -> dict[Part, int]:
        """Bytes alive at the peak, by part."""
        totals: dict[Part, int] = {}
        for alive in self.at_peak:
            totals[alive.part] = totals.get(alive.part, 0) + alive.bytes
        return totals

    @property
    def layers_at_peak(self) -> dict[str, int]:
        """Bytes alive at the peak, by layer, most first."""
        totals: dict[str, int] = {}
        for alive in self.at_peak:
            totals[alive.layer] = totals.get(alive.layer, 0) + alive.bytes
        return dict(sorted(totals.items(), key=lambda item: -item[1]))


class DeviceFit(Record, frozen=True, kw_only=True):
    """Whether a rank fits into one device's memory.

    It does not if the bytes alive exceed the memory, taken at its largest: a printed GB may mean
    2³⁰ bytes. It does if what is reserved leaves `needed_margin` bytes. Otherwise it may.

    Attributes:
        device: Its name.
        memory: Its bytes.
        verdict: What can be said.
        margin: The memory less what is reserved; negative where that is more.
        needed_margin: Bytes for what is not counted: fragmentation, the driver, NCCL's buffers,
            libraries' workspaces.
        source: The document that gives the memory.
    """

    device: str
    memory: int
    verdict: Verdict
    margin: int
    needed_margin: int
    source: str = ""
    how: How = "estimated"


class SmallestMesh(Record, frozen=True, kw_only=True):
    """The smallest mesh on which a rank fits, its data-parallel dimension varied.

    Attributes:
        device: The device that it was to fit.
        dim: The dimension that was varied.
        size: Its smallest size with the verdict `fits`; None where none of those tried has it.
        verdicts: The verdict at each size that was tried.
        reserved: The bytes reserved at each size that was tried.
        early_end: Why the search ended before its end; empty where it did not.
    """

    device: str
    dim: str
    size: int | None
    verdicts: dict[int, Verdict] = msgspec.field(default_factory=dict)
    reserved: dict[int, int] = msgspec.field(default_factory=dict)
    early_end: str = ""
    how: How = "estimated"


class Alternative(Record, frozen=True, kw_only=True):
    """The same step with one setting changed, counted again.

    Attributes:
        name: What is changed, such as "checkpoint every layer".
        option: The option that changes it, or what to write in the target's function.
        peak: Bytes alive at the peak of the rank that reserves most; None where it failed.
        reserved: Bytes that it reserves; None where it failed.
        executed_flops: FLOPs of the rank, with recomputation.
        sent: Bytes that the rank sends at least.
        host: Bytes that it keeps in the host's memory instead of the device's.
        verdicts: Whether it fits, by device.
        failed: Why it could not be counted; empty where it was.
    """

    name: str
    option: str
    peak: int | None = None
    reserved: int | None = None
    executed_flops: int | None = None
    sent: float | None = None
    host: int | None = None
    verdicts: dict[str, Verdict] = msgspec.field(default_factory=dict)
    failed: str = ""
    how: How = "estimated"
