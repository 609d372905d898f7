"""The tree of a run: model, layers, operators, kernels and what belongs to none of them."""

from __future__ import annotations

import fnmatch
import functools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_args

from torchgauge.errors import InputError
from torchgauge.records.record import How, Interval, MeasurementWarning, Record, UnfitError
from torchgauge.records.timeline.node import Node, Totals, TreeRow
from torchgauge.records.timeline.table import Table
from torchgauge.similar import similar

_MOST_BYTES = 64_000_000  # of inflated columns: eight times those of a full page
_COLUMNS = 6
_CONTINUED = bytes(range(128, 256))  # bytes that another of the same number follows

# The kinds of what is drawn, by number.
Kind = Literal[
    "other", "step", "range", "layer", "operator", "call", "python", "compute", "communication",
    "copy", "idle: host", "idle: device", "idle: other", "idle: unknown", "host", "launch", "pause",
    "merged",
]  # fmt: skip
Group = Literal["path", "idle", "device", "ranges", "host"]


class Lane(Record, frozen=True, kw_only=True):
    """What is drawn below a heading: the path, idle time, a stream, ranges on it, or a thread.

    `rows` has the number of events in each row, the outermost first; no two events of a row
    overlap by more than the rounding of the file's times. `left_out` counts those nested so deep
    that they have no row.
    """

    name: str
    group: Group
    rows: tuple[int, ...]
    left_out: int = 0


class Timeline(Record, frozen=True, kw_only=True):
    """Events by lane, row and begin; times are whole nanoseconds after the window's begin.

    Attributes:
        duration: Nanoseconds of the window.
        names: The names of events.
        kinds: The kind of each name.
        places: Qualified name of a layer and phase, which events refer to.
        lanes: The lanes from top to bottom.
        events: How many there were, with those in blocks and without those left out.
        columns: Deflated (zlib) sequences of LEB128 numbers, of which `sizes` has the bytes.
        sizes: For each event: the gap after the one before in its row (zigzag), its duration, its
            name, its place (0 without one); for each event of a device's lane the index of its
            launch less that of the one before (zigzag, counted from 1, 0 without one); for each
            block of short events their count and the nanoseconds of all of them.
        version: Of this layout.
    """

    duration: int
    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    places: tuple[tuple[str, str], ...]
    lanes: tuple[Lane, ...]
    events: int
    columns: bytes
    sizes: tuple[int, ...]
    version: int = 1


def disagreements(timeline: Timeline) -> Iterator[str]:
    """Yield what does not fit together in a timeline that was read from a file."""
    if len(timeline.kinds) != len(timeline.names):
        yield "each name has a kind"
    if len(timeline.sizes) != _COLUMNS or min(timeline.sizes) < 0:
        yield f"there are {_COLUMNS} columns"
        return
    total = sum(timeline.sizes)
    try:
        columns = zlib.decompressobj().decompress(timeline.columns, min(total, _MOST_BYTES) + 1)
    except zlib.error:
        columns = b""
    if len(columns) != total:
        yield "the columns are not as long as `sizes` says"
        return
    events = sum(sum(lane.rows) for lane in timeline.lanes)
    on_device = sum(sum(lane.rows) for lane in timeline.lanes if lane.group == "device")
    begin = 0
    for size, count in zip(timeline.sizes, (*[events] * 4, on_device), strict=False):
        if len(columns[begin : begin + size].translate(None, _CONTINUED)) != count:
            yield "a column has another number of events than the lanes"
        begin += size


class TracedLine(Record, frozen=True, kw_only=True):
    """One line of a function.

    Attributes:
        line: Its number in the file, from 1.
        hits: How often it was begun.
        time: Seconds in it and in what it called, but for the function itself again.
        allocated: Bytes that were asked for meanwhile; None where they were not recorded.
        source: Its text.
    """

    line: int
    hits: int
    time: float
    allocated: int | None = None
    source: str = ""


class TracedFunction(Record, frozen=True, kw_only=True):
    """One function, in all threads together.

    Attributes:
        file: The path of its source.
        name: Its qualified name; "<module>" for what stands outside of functions.
        line: Where it begins.
        calls: How often it was called; a generator counts once.
        time: Seconds in it, the sum over its lines.
        allocated: Bytes, the sum over its lines; None where they were not recorded.
        lines: Those that ran, in order.
    """

    file: str
    name: str
    line: int
    calls: int
    time: float
    allocated: int | None = None
    lines: tuple[TracedLine, ...] = ()


class LineTime(Record, frozen=True, kw_only=True):
    """Host time between operators that a line took in one step, in the calls of one layer.

    `time` in seconds and its `share` of the step are estimated from `samples`. `layer` is the
    qualified name, that of the model for its own lines; `source` is the line's text.
    """

    file: str
    line: int
    layer: str
    time: float
    share: float
    samples: int
    source: str = ""


def traced(functions: Iterable[TracedFunction]) -> Table:
    """Return one row per line: seconds, its share of the function's, bytes."""
    rows = [(function, line) for function in functions for line in function.lines]
    return Table(
        {
            "file": [function.file for function, _ in rows],
            "function": [function.name for function, _ in rows],
            "line": [line.line for _, line in rows],
            "hits": [line.hits for _, line in rows],
            "time": [line.time for _, line in rows],
            "share": [
                line.time / function.time if function.time else None for function, line in rows
            ],
            "allocated": [line.allocated for _, line in rows],
            "source": [line.source for _, line in rows],
        }
    )


def sampled(lines: Sequence[LineTime]) -> Table:
    """Return one row per line and layer: seconds of Python between operators."""
    names = ("file", "line", "layer", "time", "share", "samples", "source")
    return Table({name: [getattr(line, name) for line in lines] for name in names})


class DeviceUse(Record, frozen=True, kw_only=True):
    """Seconds in which a device was `busy`, with any stream, and `idle`, with none.

    Together they are the time from the step's begin to its end on the host, or that of the whole
    recording. Kernels of several streams run at once: the sum of their times may be more than busy.
    """

    device: int | None
    busy: float
    idle: float


Detail = Literal["summary", "layers", "operators", "kernels"]
DETAIL: Detail = "kernels"


class Pass(Record, frozen=True, kw_only=True):
    """One instrumented run, compared with bare steps.

    Attributes:
        steps: How many steps it took.
        duration: Seconds of a step, the median.
        bare: Seconds of a bare step, the median.
        bare_interval: The interval of `bare`.
        per_node: Seconds by which recording prolongs a node of an ONNX graph, on average.
        per_tiny_node: The same of graphs of tiny nodes, measured beside it.
    """

    name: str
    steps: int
    duration: float
    bare: float | None = None
    bare_interval: Interval | None = None
    per_node: float | None = None
    per_tiny_node: float | None = None

    @property
    def overhead(self) -> float | None:
        """Instrumented ÷ bare; None where the bare duration is not known well enough to tell.

        Instruments make nothing faster: below 1 it was the bare steps that were disturbed.
        """
        if not self.bare:
            return None
        upper = self.bare if self.bare_interval is None else self.bare_interval.high
        return self.duration / self.bare if self.duration > max(upper, self.bare) else None


class Tree(Record, frozen=True, kw_only=True, dict=True):
    """Where a step's time, work and memory go, as rows; a parent's row comes before its children's.

    Attributes:
        passes: The runs that the figures come from.
        residual: Seconds by which the tree's sum is above (negative: below) the time of the bare
            step; None where that was not measured.
        headline_ratio: The tree's sum ÷ the profile's `latency.median`, which was measured at
            another time; None where that is no latency of these steps.
        steps: The number of steps that the rows' figures are of.
        varies: Whether some of the recorded steps ran other operators or layers than others.
        devices: How busy each device was in that time.
        allocator: Whose bytes the memory is: "CPU" or "CUDA".
        lines: Python's time by line, if it was sampled.
        timeline: The recorded events for the page's timeline: of a step, or of a whole trace where
            that was asked for. Saved only where it is small.
    """

    rows: tuple[TreeRow, ...]
    step: Literal["inference", "training", "loop"] = "inference"
    passes: tuple[Pass, ...] = ()
    residual: float | None = None
    headline_ratio: float | None = None
    steps: int = 1
    varies: bool = False
    devices: tuple[DeviceUse, ...] = ()
    allocator: str = "CPU"
    lines: tuple[LineTime, ...] = ()
    warnings: tuple[MeasurementWarning, ...] = ()
    how: How = "measured"
    timeline: Timeline | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        above = [row.parent for row in self.rows]
        if (
            not above
            or above[0] >= 0
            or any(not 0 <= parent < index for index, parent in enumerate(above) if index)
        ):
            raise UnfitError(
                "Tree.rows would not form a tree.",
                id="tree-malformed",
                cause="The first row is the model, and a parent's row comes before its children's.",
                remedy="The file was edited by hand or damaged: copy it again, or repeat the run.",
            )

    @functools.cached_property
    def nodes(self) -> list[Node]:
        """One node for each row; the first is the model with all below it."""
        nodes: list[Node] = []
        totals = Totals(self.rows)
        for index, row in enumerate(self.rows):
            parent = nodes[row.parent] if row.parent >= 0 else None
            node = Node(row, index, parent, totals)
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
        near = similar(path, names, cutoff=0.4)
        raise KeyError(f"no layer {path!r}" + (f"; is it {' or '.join(near)}?" if near else ""))

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
            f"'{detail}' is not a level of detail.",
            id="detail-unknown",
            remedy=f"Give one of {', '.join(get_args(Detail))}.",
        )
