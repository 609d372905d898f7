"""The record of one profiled target: everything that reports, comparisons and gates read."""

from __future__ import annotations

from typing import Any, Literal

from torchgauge.records import rendering
from torchgauge.records.environment import Environment
from torchgauge.records.exported import Exported
from torchgauge.records.finding import Finding
from torchgauge.records.generation.cell import GenerationCell
from torchgauge.records.latency.latency import Latency, Throughput, TrainingTime
from torchgauge.records.memory.memory import Memory
from torchgauge.records.onnx.graph import GraphFacts
from torchgauge.records.record import MeasurementWarning, Record
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import Capacity
from torchgauge.records.system import System
from torchgauge.records.target import TargetDescription
from torchgauge.records.timeline.compilation import Compilation
from torchgauge.records.timeline.table import Table
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.energy import Energy
from torchgauge.records.work.roofline import Bottleneck, Roofline
from torchgauge.records.work.size import Size
from torchgauge.records.work.utilization import Utilization

SCHEMA = "torchgauge.profile/1"


class ProbeRun(Record, frozen=True, kw_only=True):
    """One probe's run: `duration` in seconds, and the process it ran in."""

    probe: str
    duration: float
    process: Literal["this", "fresh"] = "this"


class Profile(Exported, frozen=True, kw_only=True):
    """All that was learned about one target; a part that was not or could not be measured is None.

    Immutable. What failed, a probe or one of its processes, left a warning with `failed=True`, and
    `complete` is False.

    Attributes:
        target: What was measured, and on what inputs, device and precision.
        environment: The machine, its software and settings, and what makes timings lie there.
        size: Parameters and bytes; None of a plain callable.
        cost: FLOPs and bytes of a call, by layer and operator.
        latency: Time of a call, with its interval and raw samples.
        throughput: Work per second at that latency.
        memory: The peak of a step, and what it consists of.
        training: How a training step's time is divided; None in inference.
        utilization: MFU and HFU of a training step; None in inference.
        system: Use of cores, GPUs, disk and network meanwhile.
        energy: Joules of a call, by hardware counters; None where it was not asked for.
        roofline: The call beside the roofs of its device.
        bottleneck: What the call waits for.
        tree: Where time, work and memory go: layers, operators, kernels.
        compilation: What torch.compile made of the model.
        graph: What an ONNX file says of its graph, and how the layers of its nodes were found.
        generation: The calls of one shape, in a profile that is a part of a `Generation`.
        serving: A level of load, in a profile that is a part of a `Serving`.
        capacity: The highest rate within goals, in a profile that is a part of a `Serving`.
        passes: The probes that ran, with their durations.
        findings: What costs time or memory, what is worth most first.
        interrupted: Whether Ctrl-C ended it.
        warnings: Reasons to doubt a figure, beside those of the parts.
    """

    schema: str = SCHEMA
    target: TargetDescription
    environment: Environment
    size: Size | None = None
    cost: Cost | None = None
    latency: Latency | None = None
    throughput: Throughput | None = None
    memory: Memory | None = None
    training: TrainingTime | None = None
    utilization: Utilization | None = None
    system: System | None = None
    energy: Energy | None = None
    roofline: Roofline | None = None
    bottleneck: Bottleneck | None = None
    tree: Tree | None = None
    compilation: Compilation | None = None
    graph: GraphFacts | None = None
    generation: GenerationCell | None = None
    serving: Level | None = None
    capacity: Capacity | None = None
    passes: tuple[ProbeRun, ...] = ()
    findings: tuple[Finding, ...] = ()
    interrupted: bool = False
    warnings: tuple[MeasurementWarning, ...] = ()

    @property
    def all_warnings(self) -> tuple[MeasurementWarning, ...]:
        """The record's own warnings and those of its parts.

        Memory and tree both record allocations: what the first cannot see is said once. So are
        layers that are not registered, which cost and memory both see.
        """
        parts = (self.cost, self.latency, self.memory, self.system, self.energy, self.tree)
        memory_ids = {w.id for w in self.memory.warnings} if self.memory is not None else set()
        cost_ids = {"layers-unregistered"} if self.cost is not None else set()
        return self.warnings + tuple(
            w
            for part in parts
            if part is not None
            for w in part.warnings
            if (part is not self.tree or w.id not in memory_ids)
            and (part is not self.memory or w.id not in cost_ids)
        )

    def table(
        self, kind: Literal["layers", "operators", "kernels", "categories"], **options: Any
    ) -> Table:
        """Return the tree's nodes of one kind as named columns; see `records/timeline/tables.py`.

        `by_shape=True` tells operators on inputs of other shapes apart; "categories" sums them by
        what they do, and has no options. Raises InputError `no-tree` where the profile was made
        without one.
        """
        from torchgauge.records.timeline import tables

        if kind == "categories" and self.tree is not None:
            by_category: Table = rendering.categories(self)
            return by_category
        return tables.table(self.tree, kind, **options)

    def to_pandas(
        self,
        kind: Literal["layers", "operators", "kernels", "categories"] = "layers",
        **options: Any,
    ) -> Any:
        """Return a table of the tree as a DataFrame; raises as `table`, MissingExtra `pandas`."""
        return self.table(kind, **options).to_pandas()
