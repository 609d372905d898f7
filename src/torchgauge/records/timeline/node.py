"""A node of the tree: every figure is its own plus its children's."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from torchgauge.records.record import Record
from torchgauge.records.trace.breakdown import Kernel
from torchgauge.records.work.roofline import Bound

Kind = Literal["model", "layer", "operator", "kernel", "bucket"]
Phase = Literal["", "forward", "backward", "recompute", "optimizer", "zero_grad", "outside"]


class TreeRow(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One node's own figures, without its children's: `parent` is its row, −1 for the root's.

    `path` is a layer's qualified name, `type` its class, `source` the file and line of its forward,
    empty where that is torch's own or not known; `shapes` are an operator's input shapes, `dtype`
    is the type of its floating-point inputs, empty where unknown or not always the same. `host` and
    `device` are integer ns; `shortest` is a layer's own host time in the forward pass, with that of
    its operators, of the stamped or recorded step in which it was shortest; `flops`, `bytes` and
    the bytes of memory are those of what the node did itself; `unknown` counts its calls without a
    formula, `calls_without_bytes` those whose bytes a recording does not tell, which then has none
    for the node. `allocations` are bytes allocated, `allocated` is that less bytes freed (torch's
    "Self CPU Mem"), `retained` what of it the forward pass left for the backward pass; `peak` the
    most that a call of a layer with all below it held at once beyond what was there, which does not
    add up. `parameters` are elements. `lower_bound` is the ns that a layer with its operators takes
    at least under the device's roofs, `bound` what it waits for with all below it. None is unknown.
    All are of one step, but in the tree of a trace that was recorded elsewhere: there of all its
    `Tree.steps`.
    """

    name: str
    kind: Kind
    parent: int
    calls: int
    path: str = ""
    type: str = ""
    source: str = ""
    phase: Phase = ""
    shapes: str = ""
    dtype: str = ""
    host: int | None = None
    shortest: int | None = None
    device: int | None = None
    flops: int | None = None
    bytes: int | None = None
    allocated: int | None = None
    allocations: int | None = None
    peak: int | None = None
    retained: int | None = None
    parameters: int | None = None
    unknown: int = 0
    calls_without_bytes: int = 0
    lower_bound: int | None = None
    bound: Bound | None = None
    kernel: Kernel | None = None

    def __post_init__(self) -> None:
        """Check names alone: thousands of rows hold whole numbers."""
        if not f"{self.name}{self.path}{self.type}{self.source}".isascii():
            super().__post_init__()


class Totals(dict[str, list[int | None]]):
    """A figure's totals by row, made when they are first asked for; None where none is known."""

    def __init__(self, rows: Sequence[TreeRow]) -> None:
        super().__init__()
        self._rows = rows

    def __missing__(self, figure: str) -> list[int | None]:
        totals: list[int | None] = [getattr(row, figure) for row in self._rows]
        for index in range(len(totals) - 1, 0, -1):  # a parent comes before its children
            total, parent = totals[index], self._rows[index].parent
            if total is not None and parent >= 0:
                above = totals[parent]
                totals[parent] = total if above is None else above + total
        self[figure] = totals
        return totals


class Node:
    """A node of the tree with its children: every figure is its own plus theirs.

    Times are seconds; `host_time_self` and the like are without children. None is unknown, and
    counts as nothing in a sum.
    """

    __slots__ = ("children", "index", "parent", "row", "totals")

    def __init__(self, row: TreeRow, index: int, parent: Node | None, totals: Totals) -> None:
        self.row = row
        self.index = index  # of the row
        self.parent = parent
        self.children: list[Node] = []
        self.totals = totals

    @property
    def name(self) -> str:
        """The layer's name in its parent, the operator's or kernel's name."""
        return self.row.name

    @property
    def path(self) -> str:
        """The qualified name of the layer that this is or belongs to."""
        node: Node | None = self
        while node is not None and node.row.kind not in ("model", "layer"):
            node = node.parent
        return "" if node is None else node.row.path

    @property
    def kind(self) -> Kind:
        """What it is."""
        return self.row.kind

    @property
    def calls(self) -> int:
        """How often it ran in a step."""
        return self.row.calls

    @property
    def host_time(self) -> float | None:
        """Seconds on the host, children included."""
        return _seconds(self.total("host"))

    @property
    def host_time_self(self) -> float | None:
        """Seconds on the host outside of its children."""
        return _seconds(self.row.host)

    @property
    def device_time(self) -> float | None:
        """Seconds on the device, children included."""
        return _seconds(self.total("device"))

    @property
    def device_time_self(self) -> float | None:
        """Seconds on the device of the kernels that it launched outside of its other children."""
        kernels = [child.row.device for child in self.children if child.kind == "kernel"]
        times = [time for time in (self.row.device, *kernels) if time is not None]
        return _seconds(sum(times)) if times else None

    @property
    def flops(self) -> int | None:
        """FLOP, children included; None where no part of them is known."""
        return self.total("flops") or (None if self.at_least else self.total("flops"))

    @property
    def bytes(self) -> int | None:
        """Compulsory traffic in bytes, children included; None where a part of it is not known."""
        if self.total("calls_without_bytes"):
            return None
        return self.total("bytes") or (None if self.at_least else self.total("bytes"))

    @property
    def at_least(self) -> bool:
        """True where an operator without a formula took part, so that FLOPs and bytes are more."""
        return bool(self.total("unknown"))

    @property
    def time(self) -> float | None:
        """Seconds on the device where it has one of its own, else on the host."""
        device = self.device_time
        return self.host_time if device is None else device

    @property
    def flops_per_second(self) -> float | None:
        """FLOP per second of `time`; a lower bound where `at_least`."""
        return _per(self.flops, self.time)

    @property
    def bytes_per_second(self) -> float | None:
        """Compulsory traffic per second of `time`."""
        return _per(self.bytes, self.time)

    @property
    def intensity(self) -> float | None:
        """FLOP per byte of compulsory traffic."""
        return _per(self.flops, self.bytes)

    @property
    def least_time(self) -> float | None:
        """Seconds that it takes at least under the device's roofs."""
        return _seconds(self.total("lower_bound"))

    @property
    def efficiency(self) -> float | None:
        """The time that it takes at least under the device's roofs, as a share of `time`."""
        return _per(self.least_time, self.time)

    @property
    def bound(self) -> Bound | None:
        """What a layer waits for: arithmetic, memory, or neither."""
        return self.row.bound

    @property
    def memory(self) -> int | None:
        """Bytes allocated less bytes freed, children included: torch's "CPU Mem"."""
        return self.total("allocated")

    @property
    def memory_self(self) -> int | None:
        """Bytes allocated less bytes freed outside of its children: torch's "Self CPU Mem"."""
        return self.row.allocated

    @property
    def allocations(self) -> int | None:
        """Bytes allocated, children included, whether freed since or not."""
        return self.total("allocations")

    @property
    def peak(self) -> int | None:
        """The most bytes alive during one call of a layer beyond those when it began."""
        return self.row.peak

    @property
    def retained_for_backward(self) -> int | None:
        """Bytes that the forward pass left for the backward pass, children included."""
        return self.total("retained")

    @property
    def parameters(self) -> int | None:
        """Elements of parameters, children included; a shared tensor is the first layer's."""
        return self.total("parameters")

    def total(self, figure: str) -> int | None:
        """Return the sum of a row's figure over the node and all below; None if none is known."""
        return self.totals[figure][self.index]

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below, a parent before its children."""
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending += reversed(node.children)

    @property
    def is_leaf(self) -> bool:
        """Whether it is a layer that calls no other."""
        return self.kind == "layer" and not self.layers

    @property
    def layers(self) -> list[Node]:
        """The children that are layers."""
        return [child for child in self.children if child.kind == "layer"]

    def __repr__(self) -> str:
        return f"<{self.kind} {self.path if self.kind == 'layer' else self.name!r}>"


def own_nodes(layer: Node) -> list[Node]:
    """Return the layer and all below it that is in no layer that it calls."""
    owned, pending = [], [layer]
    while pending:
        node = pending.pop()
        owned.append(node)
        pending += [child for child in node.children if child.kind not in ("layer", "bucket")]
    return owned


def sum_of(nodes: Iterable[Node], figure: str) -> float | int | None:
    """Return the sum of the nodes' own figures; seconds of times. None where none is known."""
    values = [value for node in nodes if (value := getattr(node.row, figure)) is not None]
    if not values:
        return None
    total: int = sum(values)
    return total * 1e-9 if figure in ("host", "device") else total


@functools.lru_cache(4096)  # a tree has thousands of operators, and few names
def base_name(name: str) -> str:
    """Return an operator's name without its overload: "aten::add" of "aten::add.Tensor"."""
    namespace, separator, operator = name.partition("::")
    return namespace + separator + operator.partition(".")[0] if separator else name


def _per(amount: float | None, divisor: float | None) -> float | None:
    return amount / divisor if amount is not None and divisor else None


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds * 1e-9
