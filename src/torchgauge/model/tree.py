"""The tree of a run: model, layers, operators, kernels and what belongs to none of them."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterator
from typing import Literal, get_args

from torchgauge.errors import InputError
from torchgauge.model.device_use import DeviceUse
from torchgauge.model.kernel import Kernel
from torchgauge.model.line_time import LineTime
from torchgauge.model.record import How, Interval, MeasurementWarning, Record, UnfitError
from torchgauge.model.roofline import Bound
from torchgauge.model.totals import Totals

Kind = Literal["model", "layer", "operator", "kernel", "bucket"]
Detail = Literal["summary", "layers", "operators", "kernels"]
DETAIL: Detail = "kernels"
Phase = Literal["", "forward", "backward", "recompute", "optimizer", "zero_grad", "outside"]


class TreeRow(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One node's own figures, without its children's: `parent` is its row, −1 for the root's.

    `path` is a layer's qualified name, `type` its class; `shapes` are an operator's input shapes.
    `host` and `device` are integer ns; `flops`, `bytes` and the bytes of memory are those of what
    the node did itself; `unknown` counts its calls without a formula, `unsaid` those whose bytes a
    recording does not tell, which then has none for the node. `allocations` are bytes
    allocated, `allocated` is that less bytes freed (torch's "Self CPU Mem"), `retained` what of it
    the forward pass left for the backward pass; `peak` the most that a call of a layer with all
    below it held at once beyond what was there, which does not add up. `parameters` are elements.
    `lower_bound` is the ns that a layer with its operators takes at least under the device's roofs,
    `bound` what it waits for with all below it. None is unknown. All are of one step, but in the
    tree of a trace that was recorded elsewhere: there of all its `Tree.steps`.
    """

    name: str
    kind: Kind
    parent: int
    calls: int
    path: str = ""
    type: str = ""
    phase: Phase = ""
    shapes: str = ""
    host: int | None = None
    device: int | None = None
    flops: int | None = None
    bytes: int | None = None
    allocated: int | None = None
    allocations: int | None = None
    peak: int | None = None
    retained: int | None = None
    parameters: int | None = None
    unknown: int = 0
    unsaid: int = 0
    lower_bound: int | None = None
    bound: Bound | None = None
    kernel: Kernel | None = None

    def __post_init__(self) -> None:
        """Check names alone: thousands of rows hold whole numbers."""
        if not (self.name.isascii() and self.path.isascii() and self.type.isascii()):
            super().__post_init__()


class Pass(Record, frozen=True, kw_only=True):
    """One instrumented run: `steps`, and `duration` of a step in seconds, beside the bare one's.

    `bare` is a median, `bare_interval` what is known of it.
    """

    name: str
    steps: int
    duration: float
    bare: float | None = None
    bare_interval: Interval | None = None

    @property
    def overhead(self) -> float | None:
        """Instrumented ÷ bare; None where the bare duration is not known well enough to tell.

        Instruments make nothing faster: below 1 it was the bare steps that were disturbed.
        """
        if not self.bare:
            return None
        most = self.bare if self.bare_interval is None else self.bare_interval.high
        return self.duration / self.bare if self.duration > max(most, self.bare) else None


class Node:
    """A node of the tree with its children: every figure is its own plus theirs.

    Times are seconds; `host_time_self` and the like are without children. None is unknown, and
    counts as nothing in a sum.
    """

    __slots__ = ("at", "children", "parent", "row", "totals")

    def __init__(self, row: TreeRow, at: int, parent: Node | None, totals: Totals) -> None:
        self.row = row
        self.at = at  # the row's number
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
        known = [time for time in (self.row.device, *kernels) if time is not None]
        return _seconds(sum(known)) if known else None

    @property
    def flops(self) -> int | None:
        """FLOP, children included; None where no part of them is known."""
        return self.total("flops") or (None if self.at_least else self.total("flops"))

    @property
    def bytes(self) -> int | None:
        """Compulsory traffic in bytes, children included; None where a part of it is not known."""
        if self.total("unsaid"):
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
    def efficiency(self) -> float | None:
        """The time that it takes at least under the device's roofs, as a share of `time`."""
        return _per(_seconds(self.total("lower_bound")), self.time)

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
        return self.totals[figure][self.at]

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below, a parent before its children."""
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending += reversed(node.children)

    @property
    def layers(self) -> list[Node]:
        """The children that are layers."""
        return [child for child in self.children if child.kind == "layer"]

    def __repr__(self) -> str:
        return f"<{self.kind} {self.path if self.kind == 'layer' else self.name!r}>"


class Tree(Record, frozen=True, kw_only=True, dict=True):
    """Where a step's time, work and memory go; a parent's row comes before its children's.

    `passes` are the runs that the figures come from, `residual` the seconds by which the tree's sum
    is above (or, negative, below) the time of the bare step; None where that was not measured.
    `headline_ratio` is the tree's sum ÷ the profile's `latency.median`, which was measured at
    another time; None where that is no latency of these steps. `allocator` is whose bytes the
    memory is: "CPU" or "CUDA". The rows' figures are of `steps` steps; `devices` says how busy each
    was in that time. `lines` are there where asked for.
    """

    rows: tuple[TreeRow, ...]
    step: Literal["inference", "training", "loop"] = "inference"
    passes: tuple[Pass, ...] = ()
    residual: float | None = None
    headline_ratio: float | None = None
    steps: int = 1
    devices: tuple[DeviceUse, ...] = ()
    allocator: str = "CPU"
    lines: tuple[LineTime, ...] = ()
    warnings: tuple[MeasurementWarning, ...] = ()
    how: How = "measured"

    def __post_init__(self) -> None:
        super().__post_init__()
        above = [row.parent for row in self.rows]
        if not above or above[0] >= 0 or any(not 0 <= n < at for at, n in enumerate(above) if at):
            raise UnfitError(
                "Tree.rows would be no tree.",
                id="tree-malformed",
                cause="The first row is the model, and a parent's row comes before its children's.",
                remedy="The file was edited by hand or damaged: copy it again, or repeat the run.",
            )

    @functools.cached_property
    def nodes(self) -> list[Node]:
        """One node for each row; the first is the model with all below it."""
        nodes: list[Node] = []
        totals = Totals(self.rows)
        for at, row in enumerate(self.rows):
            parent = nodes[row.parent] if row.parent >= 0 else None
            node = Node(row, at, parent, totals)
            nodes.append(node)
            if parent is not None:
                parent.children.append(node)
        return nodes

    @property
    def root(self) -> Node:
        """The model with all below it, as nodes."""
        return self.nodes[0]

    def find(self, path: str) -> Node:
        """Return the layer of this qualified name, the first that was called of several.

        Raises KeyError with the names most like it.
        """
        names = []
        for node in self.root.walk():
            if node.kind in ("layer", "model"):
                if node.row.path == path:
                    return node
                names.append(node.row.path)
        import difflib

        near = difflib.get_close_matches(path, names, 3, 0.4)
        raise KeyError(f"no layer {path!r}" + (f"; is it {', '.join(near)}?" if near else ""))

    def match(self, pattern: str) -> list[Node]:
        """Return the layers whose qualified name fits a pattern like `*.attention*`."""
        return [
            node
            for node in self.root.walk()
            if node.kind in ("layer", "model") and fnmatch.fnmatchcase(node.row.path, pattern)
        ]


def check_detail(detail: str) -> None:
    """Raise InputError `detail-unknown` for what is no `Detail`."""
    if detail not in get_args(Detail):
        raise InputError(
            f"'{detail}' is no level of detail.",
            id="detail-unknown",
            remedy=f"Give one of {', '.join(get_args(Detail))}.",
        )


@functools.lru_cache(4096)  # a tree has thousands of operators, and few names
def base_name(name: str) -> str:
    """Return an operator's name without its overload: "aten::add" of "aten::add.Tensor"."""
    namespace, separator, rest = name.partition("::")
    return namespace + separator + rest.partition(".")[0] if separator else name


def _per(amount: float | None, of: float | None) -> float | None:
    return amount / of if amount is not None and of else None


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds * 1e-9
