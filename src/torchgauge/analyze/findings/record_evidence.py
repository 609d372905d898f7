"""What findings are made from: the figures of a profile, a loop, generation or a trace's rank."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any, NamedTuple

import msgspec

from torchgauge import units
from torchgauge.analyze.communication.communication_kernels import collective_of
from torchgauge.analyze.work.categories import Category, category
from torchgauge.records.generation.cell import GenerationCell
from torchgauge.records.generation.generation import Generation
from torchgauge.records.profile import Profile
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.serving import Serving
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.node import Node, base_name
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.breakdown import DeviceTime, Kernel
from torchgauge.records.trace.trace import RankTrace, Trace

# Categories whose work is multiplications of matrices.
PRODUCTS: tuple[Category, ...] = ("matrix product", "convolution", "attention")


class KernelCalls(NamedTuple):
    """Calls of one kernel, copy or memory set by one node, with one launch configuration.

    Attributes:
        node: Its node of the tree.
        kernel: Its launch configuration and durations.
        time: Seconds of these calls in what the evidence is about.
    """

    node: Node
    kernel: Kernel
    time: float

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.node.name

    @property
    def computes(self) -> bool:
        """Whether it is a kernel that does not communicate."""
        communicates = self.kernel.collective is not None or collective_of(self.name) is not None
        return self.kernel.work == "kernel" and not communicates


class Execution(NamedTuple):
    """What a node of the tree ran itself: a kernel, or on a host alone an operator.

    Attributes:
        node: Its node: a kernel's, or an operator's.
        category: What it does.
        time: Seconds without what it calls.
    """

    node: Node
    category: Category
    time: float


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
    """The figures that findings are made from: of one record, and the others are None.

    Attributes:
        tree: Where the time went, None where no tree was made.
        time: Seconds that the shares of findings are of: a step, a trace's window, or a call of
            `generation_cell`. 0 is unknown.
        profile: The profile that they are of.
        loop: The loop that they are of.
        rank: The rank of a trace that they are of.
        job: The trace of several ranks that they are of; it has no tree of its own.
        generation: The generation that they are of; its trees are in none of them.
        serving: The record of load that they are of.
    """

    tree: Tree | None
    time: float
    profile: Profile | None = None
    loop: Loop | None = None
    rank: RankTrace | None = None
    job: Trace | None = None
    generation: Generation | None = None
    serving: Serving | None = None

    @classmethod
    def from_record(
        cls, record: Profile | Loop | RankTrace | Trace | Generation | Serving
    ) -> Evidence:
        """Return the evidence of a record."""
        if isinstance(record, Serving):
            return cls(None, 0.0, serving=record)
        if isinstance(record, Generation):
            longest = _longest_cell(record)
            call = None if longest is None else longest.end_to_end
            return cls(None, 0.0 if call is None else call.value, generation=record)
        if isinstance(record, Trace):
            return cls(None, max(rank.window for rank in record.ranks), job=record)
        if isinstance(record, RankTrace):
            return cls(record.tree, record.window, rank=record)
        time = None if record.tree is None else record.tree.root.time
        if isinstance(record, Loop):
            return cls(record.tree, time or 0.0, loop=record)
        return cls(record.tree, time or 0.0, profile=record)

    @functools.cached_property
    def generation_cell(self) -> GenerationCell | None:
        """The cell that findings about generation are of; None of other records, or without one."""
        return None if self.generation is None else _longest_cell(self.generation)

    @functools.cached_property
    def levels(self) -> tuple[tuple[str, Level], ...]:
        """The levels of load with what they are called; none of other records."""
        serving = self.serving
        return () if serving is None else serving.named_levels

    @property
    def has_launches(self) -> bool:
        """Whether device work without a launch was launched before the recording began.

        Not where the file has launches of none (JAX on a TPU) or of some alone (Proton).
        """
        if self.rank is None:
            return True
        if self.rank.contents.recorder == "JAX":
            return self.rank.contents.launches > 0
        return self.rank.contents.recorder != "Proton"

    @property
    def device_times(self) -> tuple[DeviceTime, ...]:
        """Where the time of each device of a trace went."""
        return () if self.rank is None else self.rank.times

    @property
    def by_jax(self) -> bool:
        """Whether JAX recorded the trace."""
        return self.rank is not None and self.rank.contents.recorder == "JAX"

    def called(self, device: int | None) -> str:
        """Return what a device is called: "GPU 0"."""
        return f"GPU {device or 0}" if self.rank is None else self.rank.called(device)

    @property
    def nodes(self) -> list[Node]:
        """The tree's nodes; none without a tree, or without its total time."""
        return self.tree.nodes if self.tree is not None and self.time else []

    @functools.cached_property
    def leaves(self) -> list[Node]:
        """The layers that call no other."""
        return [node for node in self.nodes if node.is_leaf]

    @functools.cached_property
    def operators(self) -> dict[str, list[Node]]:
        """The calls of operators, by name without the overload: "aten::mm"."""
        by_name: dict[str, list[Node]] = {}
        for node in self.nodes:
            if node.row.kind == "operator":
                by_name.setdefault(base_name(node.row.name), []).append(node)
        return by_name

    def calls_of(self, *operators: str) -> list[Node]:
        """Return the nodes of operators by their names without overloads."""
        return [node for name in operators for node in self.operators.get(name, ())]

    @functools.cached_property
    def kernels(self) -> list[KernelCalls]:
        """All kernels, copies and memory sets."""
        return [
            KernelCalls(node, node.row.kernel, (node.row.device or 0) * 1e-9)
            for node in self.nodes
            if node.row.kernel is not None
        ]

    @functools.cached_property
    def device_time(self) -> float:
        """Seconds of all device work; what ran at once counts as often as it ran."""
        return sum(calls.time for calls in self.kernels)

    @functools.cached_property
    def runs_on_host(self) -> bool:
        """Whether the host computes itself, and does not launch what a device does unrecorded."""
        has_device = self.rank is not None and (self.rank.devices or self.rank.contents.launches)
        on_gpu = self.profile is not None and self.profile.target.device.partition(":")[0] != "cpu"
        return not self.kernels and not has_device and not on_gpu

    @functools.cached_property
    def executions(self) -> list[Execution]:
        """All kernels; where the host computes, all operators."""
        if self.runs_on_host:
            return [
                Execution(node, category(base_name(node.row.name)), (node.row.host or 0) * 1e-9)
                for node in self.nodes
                if node.row.kind == "operator"
            ]
        return [Execution(calls.node, category(calls.name), calls.time) for calls in self.kernels]

    def executed(self, *categories: Category) -> list[Execution]:
        """Return the executions of these categories."""
        return [
            execution
            for name in categories
            for execution in self._executions_by_category.get(name, ())
        ]

    @functools.cached_property
    def _executions_by_category(self) -> dict[Category, list[Execution]]:
        by_category: dict[Category, list[Execution]] = {}
        for execution in self.executions:
            by_category.setdefault(execution.category, []).append(execution)
        return by_category

    def self_time(self, node: Node) -> float:
        """Return the seconds that a node takes without what it calls, where the work is done."""
        return (node.host_time_self if self.runs_on_host else node.device_time_self) or 0.0

    def total_time(self, node: Node) -> float:
        """Return the seconds that a node takes, where the work is done."""
        return (node.host_time if self.runs_on_host else node.device_time) or 0.0

    def part(self, time: float) -> str:
        """Return the share that seconds have: "12 % of the time"."""
        return f"{units.percent(time / self.time)} of the time"

    @staticmethod
    def longest_layer(executions: list[Execution]) -> tuple[str, float]:
        """Return the layer in which most of their time is, and the seconds in it."""
        by_layer: dict[str, float] = {}
        for execution in executions:
            by_layer[execution.node.path] = by_layer.get(execution.node.path, 0.0) + execution.time
        return max(by_layer.items(), key=lambda entry: entry[1])

    def within(self, time: float) -> float:
        """Return the seconds, at most all there are: what ran at once counts but once."""
        return min(time, self.time)

    def product_time(self, dtype: str) -> float:
        """Return the seconds of products in layers that a profile counted in this type."""
        cost = None if self.profile is None else self.profile.cost
        if cost is None:
            return 0.0
        paths = {
            cost.nodes[row.node].path
            for row in cost.rows
            if row.matmul_flops and row.dtype == dtype
        }
        times = (
            execution.time for execution in self.executed(*PRODUCTS) if execution.node.path in paths
        )
        return self.within(sum(times))


def _longest_cell(generation: Generation) -> GenerationCell | None:
    """Return the cell whose calls took longest in all, with a cache where any has one.

    A program's own calls without a cache count; a grid compares them with those that have one.
    """
    done = [cell for cell in generation.done if cell.end_to_end is not None]
    cached = [cell for cell in done if cell.cache_kind != "none"]
    chosen = done if generation.watched else cached or done
    return max(chosen, key=_total_time, default=None)


def _total_time(cell: GenerationCell) -> float:
    return 0.0 if cell.end_to_end is None else cell.end_to_end.value * cell.end_to_end.calls


def operators_above(node: Node) -> list[Node]:
    """Return the operators around a node, the innermost first."""
    above, around = node.parent, []
    while above is not None and above.kind == "operator":
        around.append(above)
        above = above.parent
    return around


def calls_further(node: Node) -> bool:
    """Whether an operator leaves its work to one like it, as `aten::relu` to `aten::clamp_min`."""
    own = category(base_name(node.name))
    return any(
        child.kind == "operator" and category(base_name(child.name)) == own
        for child in node.children
    )


def shapes_of(node: Node) -> list[Any]:
    """Return the recorded shapes of an operator's inputs; [] of other and of unknown ones."""
    return list(_decoded_shapes(node.row.shapes or "[]"))


@functools.lru_cache(4096)  # layers that are alike have the same shapes
def _decoded_shapes(text: str) -> tuple[Any, ...]:
    try:
        shapes = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return ()
    return tuple(shapes) if isinstance(shapes, list) else ()


def short_name(kernel: str) -> str:
    """Return a kernel's name without what every name of its kind has."""
    library = re.search(r"cutlass_\d\w+", kernel)
    own_name = kernel.removeprefix("void ").replace("(anonymous namespace)::", "").partition("(")[0]
    return (library[0] if library else own_name)[:60]


def layer_name(layer: Node) -> str:
    """Return a layer's path; one that is a number says nothing, so its class stands behind it."""
    last = layer.path.rpartition(".")[2]
    return f"{layer.path} ({layer.row.type})" if last.isdecimal() else layer.path
