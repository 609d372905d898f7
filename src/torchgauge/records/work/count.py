"""The record of `torchgauge count`: what a model is and does, without a measurement."""

from __future__ import annotations

import msgspec

from torchgauge.records.exported import Exported
from torchgauge.records.memory.training_memory import TrainingMemory
from torchgauge.records.onnx.graph import GraphFacts
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.target import TargetDescription
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import OtherDevice
from torchgauge.records.work.size import Size

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
