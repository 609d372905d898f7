"""What a model holds, and what was counted of a call."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchgauge.records.exported import Exported
from torchgauge.records.memory.memory import TrainingMemory
from torchgauge.records.onnx.graph import GraphFacts
from torchgauge.records.record import How, MeasurementWarning, Record
from torchgauge.records.target import TargetDescription
from torchgauge.records.timeline.node import Node, base_name
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import OtherDevice


class DtypeSize(Record, frozen=True, kw_only=True):
    """Elements and bytes of the parameters and buffers of one dtype."""

    elements: int
    bytes: int


class Size(Record, frozen=True, kw_only=True):
    """Parameters and bytes of a model, each tensor counted once however often it is used.

    Attributes:
        parameters: Elements of parameters.
        trainable: Elements of parameters that need a gradient.
        buffers: Elements of buffers.
        parameter_bytes: Bytes of parameters in memory.
        buffer_bytes: Bytes of buffers in memory.
        by_dtype: Both by element type.
        disk_bytes: The size of `disk_source`.
        disk_source: The files that were loaded, or the model's state dict written out.
        uninitialized: Names of lazy parameters without a shape; with any, the totals are lower
            bounds.
    """

    parameters: int
    trainable: int
    buffers: int
    parameter_bytes: int
    buffer_bytes: int
    by_dtype: dict[str, DtypeSize]
    disk_bytes: int | None = None
    disk_source: str = ""
    uninitialized: tuple[str, ...] = ()
    how: How = "counted"

    @property
    def bytes(self) -> int:
        """Bytes of parameters and buffers together."""
        return self.parameter_bytes + self.buffer_bytes

    @property
    def frozen(self) -> int:
        """Elements of parameters that need no gradient."""
        return self.parameters - self.trainable


ITSELF = "itself"
BELOW = "what it calls"
NOWHERE = "nowhere"


def counted_at(chain: Sequence[Node]) -> str:
    """Return where the work of an operator is counted, given with those that it ran again as.

    `itself`; the name of an operator around it, whose figures hold its own; `what it calls`;
    `nowhere` where it is not known.
    """
    rows = [node.row for node in chain]
    if any(row.flops or row.bytes or row.calls_without_bytes for row in rows):
        return ITSELF
    if any(row.unknown for row in rows):
        return NOWHERE
    above = chain[0].parent
    while above is not None and above.kind == "operator":
        if above.row.flops or above.row.bytes or above.row.calls_without_bytes:
            return base_name(above.name)
        if above.row.unknown:
            return NOWHERE
        above = above.parent
    outermost = chain[0]
    if (
        outermost.flops
        or outermost.bytes
        or outermost.at_least
        or outermost.total("calls_without_bytes")
    ):
        return BELOW
    if outermost.flops is None and outermost.bytes is None:
        return NOWHERE
    # It made a view or memory, which is no work, or called nothing but such.
    return BELOW if all(row.flops is None and row.bytes is None for row in rows) else ITSELF


SCHEMA = "torchgauge.count/1"


class Count(Exported, frozen=True, kw_only=True):
    """Size and cost of one target, counted; `size` is None for a plain callable.

    `totals` is `cost.totals`, for readers of the file. `training` is the memory of a training step,
    where the backward pass was counted. `other_devices` estimates the call on those asked for.
    `graph` is what an ONNX file says of its graph.
    """

    schema: str = SCHEMA
    target: TargetDescription
    cost: Cost
    size: Size | None = None
    totals: dict[str, int | None] = msgspec.field(default_factory=dict)
    training: TrainingMemory | None = None
    other_devices: tuple[OtherDevice, ...] = ()
    graph: GraphFacts | None = None
    warnings: tuple[MeasurementWarning, ...] = ()

    @property
    def all_warnings(self) -> tuple[MeasurementWarning, ...]:
        """The record's own warnings and those of its cost."""
        return self.warnings + self.cost.warnings
