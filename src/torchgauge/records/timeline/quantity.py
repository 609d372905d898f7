"""What a column of a flat table holds, and how it is shown."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Literal, NamedTuple

from torchgauge import units
from torchgauge.records.timeline.node import Node, own_nodes, sum_of

_NUMBERED = re.compile(r"(.*?)(\d+)")


class RepeatedLayers(NamedTuple):
    """A layer, or consecutive ones of one kind that are shown as one; `root` is their tree's."""

    name: str
    nodes: tuple[Node, ...]
    root: Node

    def sum(self, figure: str) -> Any:
        """Return the sum of a figure of all of them; None where none is known."""
        if len(self.nodes) == 1:  # as most are, in tables of many thousands
            return getattr(self.nodes[0], figure)
        return known_sum(getattr(node, figure) for node in self.nodes)

    def own(self, figure: Literal["host", "device"]) -> float | None:
        """Return the seconds of what they do outside of the layers that they call."""
        time: float | None = known_sum(sum_of(own_nodes(node), figure) for node in self.nodes)
        return time

    @property
    def clock(self) -> Literal["host", "device"]:
        """Whose time the tree is about: the device's where it has any."""
        return "host" if self.root.device_time is None else "device"

    @property
    def children(self) -> list[RepeatedLayers]:
        """The layers that each of them calls, folded where they repeat."""
        shapes: dict[Hashable, int] = {}
        signatures = [_signature(layer, shapes) for layer in self.nodes[0].layers]
        columns = list(zip(*(node.layers for node in self.nodes), strict=True))
        runs = itertools.groupby(range(len(columns)), key=lambda place: signatures[place])
        groups = []
        for _, group in runs:
            indices = list(group)
            first, last = columns[indices[0]][0].name, columns[indices[-1]][0].name
            name = first if len(indices) == 1 else f"{first}–{_number(last)} ×{len(indices)}"
            nodes = tuple(node for place in indices for node in columns[place])
            if len(self.nodes) > 1 and _is_instance(columns[indices[0]][0]):
                name = nodes[0].row.type  # each of them has numbers of its own
            groups.append(RepeatedLayers(name, nodes, self.root))
        return groups


def single_layers(root: Node) -> list[RepeatedLayers]:
    """Return each layer by itself in calling order, the model first."""
    nodes = (node for node in root.walk() if node.row.kind in ("model", "layer"))
    return [RepeatedLayers(node.name, (node,), root) for node in nodes]


def known_sum(values: Iterable[Any]) -> Any:
    """Return the sum of the values that are not None; None of none."""
    known_values = [value for value in values if value is not None]
    return sum(known_values) if known_values else None


def _signature(node: Node, shapes: dict[Hashable, int]) -> Hashable:
    """Return a key that is equal for layers of one run: the name without its number, and shape."""
    named = _NUMBERED.fullmatch(node.name)
    return (named[1] if named else node.name, _shape(node, shapes))


def _shape(root: Node, shapes: dict[Hashable, int]) -> int:
    """Return the number of a layer's shape, new ones noted; layers may be nested thousands deep."""
    shape_ids: dict[int, int] = {}
    pending = [root]
    while pending:
        node = pending[-1]
        layers = node.layers
        if layers and layers[-1].index not in shape_ids:
            pending += layers
            continue
        pending.pop()
        inside = tuple((_name(child), shape_ids[child.index]) for child in layers)
        shape = (node.row.type, node.calls, node.flops, inside)
        shape_ids[node.index] = shapes.setdefault(shape, len(shapes))
    return shape_ids[root.index]


def _name(node: Node) -> str:
    return node.row.type if _is_instance(node) else node.name


def _is_instance(node: Node) -> bool:
    """Whether it is named by its class and a number, as traces recorded elsewhere do."""
    stem, _, number = node.name.rpartition("_")
    return number.isdecimal() and stem == node.row.type


def _number(name: str) -> str:
    named = _NUMBERED.fullmatch(name)
    return named[2] if named else name


Quantity = Literal[
    "text",
    "time",
    "bytes",
    "count",
    "elements",
    "percent",
    "share",
    "flop/s",
    "bytes/s",
    "flop/byte",
]

FORMATS: dict[Quantity, Callable[[Any], str]] = {
    "text": lambda value: "×".join(map(str, value)) if isinstance(value, tuple) else str(value),
    "time": lambda value: units.time(value, 3),
    "bytes": lambda value: units.size(value, 3),
    "count": lambda value: units.count(value, 3),
    "elements": lambda value: units.elements(value, 3),
    "percent": lambda value: f"{value:.1f}",
    "share": units.share,
    "flop/s": lambda value: units.count(value, 3),
    "bytes/s": lambda value: units.count(value, 3),
    "flop/byte": units.significant,
}


Get = Callable[[RepeatedLayers], Any]


class LayerColumn(NamedTuple):
    """A column of the table of layers.

    Attributes:
        key: Its name in Python and CSV; empty: it is in reports alone.
        title: Its header in reports; empty: it is in Python and CSV alone.
        unit: What its values are; seconds of times.
        get: The value of a layer, or of several that are one line; None where it is unknown.
        priority: When a report leaves it out for room: the highest first; None: never.
        work: Whether it is at least so much where an operator without formula took part.
    """

    key: str
    title: str
    unit: Quantity
    get: Get
    priority: int | None = None
    work: bool = False


def _total(figure: str) -> Get:
    return lambda layers: layers.sum(figure)


def _per(amount: str, divisor: str) -> Get:
    """Return how much of a figure there is in a unit of another."""

    def ratio(layers: RepeatedLayers) -> float | None:
        above, below = layers.sum(amount), layers.sum(divisor)
        return above / below if above is not None and below else None

    return ratio


def _time(layers: RepeatedLayers) -> float | None:
    time: float | None = layers.sum(f"{layers.clock}_time")
    return time


def _share(layers: RepeatedLayers) -> float | None:
    time, step_time = _time(layers), layers.root.time
    return time / step_time if time is not None and step_time else None


def _bound(layers: RepeatedLayers) -> str | None:
    return Counter(node.bound for node in layers.nodes).most_common(1)[0][0]


def _peak(layers: RepeatedLayers) -> int | None:
    return max((node.peak for node in layers.nodes if node.peak is not None), default=None)


def _host_beside_device(layers: RepeatedLayers) -> float | None:
    time: float | None = layers.sum("host_time") if layers.clock == "device" else None
    return time


LAYER_COLUMNS = (
    LayerColumn("path", "layer", "text", lambda layers: layers.nodes[0].row.path),
    LayerColumn("type", "type", "text", lambda layers: layers.nodes[0].row.type, 9),
    LayerColumn("calls", "calls", "count", _total("calls"), 6),
    LayerColumn("host_time", "", "time", _total("host_time")),
    LayerColumn("host_time_self", "", "time", lambda layers: layers.own("host")),
    LayerColumn("device_time", "", "time", _total("device_time")),
    LayerColumn("device_time_self", "", "time", lambda layers: layers.own("device")),
    LayerColumn("", "time", "time", _time),
    LayerColumn("", "self", "time", lambda layers: layers.own(layers.clock), 5),
    LayerColumn("", "share", "share", _share),
    LayerColumn("", "host", "time", _host_beside_device, 7),
    LayerColumn("flops", "FLOPs", "count", _total("flops"), 1, work=True),
    LayerColumn("bytes", "bytes", "bytes", _total("bytes"), 11, work=True),
    LayerColumn("flops_per_second", "FLOP/s", "flop/s", _per("flops", "time"), 3, work=True),
    LayerColumn("bytes_per_second", "B/s", "bytes/s", _per("bytes", "time"), 8, work=True),
    LayerColumn("intensity", "FLOP/B", "flop/byte", _per("flops", "bytes"), 12),
    LayerColumn("bound", "bound", "text", _bound, 4),
    LayerColumn("efficiency", "efficiency", "share", _per("least_time", "time"), 13),
    LayerColumn("allocated", "", "bytes", _total("memory")),
    LayerColumn("allocations", "allocated", "bytes", _total("allocations"), 14),
    LayerColumn("peak", "peak", "bytes", _peak, 4),
    LayerColumn("retained_for_backward", "kept", "bytes", _total("retained_for_backward"), 6),
    LayerColumn("parameters", "parameters", "elements", _total("parameters"), 10),
)
PYTHON_COLUMNS = [column for column in LAYER_COLUMNS if column.key]
REPORT_COLUMNS = [column for column in LAYER_COLUMNS if column.title]


_BY_NAME: dict[Quantity, tuple[str, ...]] = {
    "time": ("time", "avg", "min", "median", "max", "flops_time", "bytes_time"),
    "bytes": ("shared_memory",),
    "count": ("# of Calls", "registers"),
    "share": ("share", "occupancy", "compute_share", "memory_share", "tensor_cores"),
    "bytes/s": ("bandwidth",),
}
# torch.profiler's names hold the clock or the allocator: "Self CUDA %", "CPU Mem".
_BY_ENDING: dict[str, Quantity] = {
    "%": "percent",
    " Mem": "bytes",
    " total": "time",
    " time avg": "time",
    "Self CPU": "time",
    "Self CUDA": "time",
}
_QUANTITY_BY_NAME = {column.key: column.unit for column in PYTHON_COLUMNS} | {
    name: quantity for quantity, names in _BY_NAME.items() for name in names
}


def quantity_of(column: str) -> Quantity:
    """Return what a column holds: seconds, bytes, percent, a share of 1; text where not known."""
    if column in _QUANTITY_BY_NAME:
        return _QUANTITY_BY_NAME[column]
    endings = (quantity for ending, quantity in _BY_ENDING.items() if column.endswith(ending))
    return next(endings, "text")
