"""The columns of the table of layers, in Python, CSV, terminal, Markdown and page alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from torchgauge.records.timeline.quantity import Quantity
from torchgauge.records.timeline.repeated_layers import RepeatedLayers

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
