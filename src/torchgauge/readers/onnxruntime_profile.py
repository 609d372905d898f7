"""What ONNX Runtime's profiler wrote: its nodes by call of the model, and kernels of devices.

Events are in the order in which they end, with begin and duration in whole microseconds: a call's
nodes come before its "model_run". A node with a graph inside (If, Loop, Scan) ends after the nodes
of that graph.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec

from torchgauge.errors import MeasurementError

_NODE, _KERNEL, _SESSION = "Node", "Kernel", "Session"
_TIME = "_kernel_time"
_RUN, _EXECUTION = "model_run", "SequentialExecutor::Execute"
_FLOATS = {"float": "float32", "double": "float64", "float16": "float16", "bfloat16": "bfloat16"}


class _Event(msgspec.Struct):
    cat: str
    name: str
    ts: int
    dur: int
    args: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class RecordedNode:
    """A node as it ran; `index` is its number in the session, `tensors` its inputs and outputs.

    `shapes` and `dtype` are of its inputs in the first call.
    """

    name: str
    index: int
    operator: str
    provider: str
    tensors: int
    shapes: str = ""
    dtype: str = ""


@dataclasses.dataclass
class RecordedCall:
    """A call of the model: (node, begin, duration) as they ended, in µs; kernels by node.

    `begin` and `end` are those of the execution of the graph.
    """

    begin: int
    end: int
    nodes: list[tuple[int, int, int]]
    kernels: list[tuple[int, str, int]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class RecordedCalls:
    """The nodes that ran, and the calls that refer to them by position."""

    nodes: list[RecordedNode]
    calls: list[RecordedCall]


def read_profile(path: Path) -> RecordedCalls:
    """Return the calls of a file. Raises MeasurementError `profile-unreadable`."""
    try:
        events = msgspec.json.decode(path.read_bytes(), type=list[_Event])
    except (msgspec.MsgspecError, OSError) as error:
        raise MeasurementError(
            "ONNX Runtime's profile cannot be read.",
            id="profile-unreadable",
            cause=str(error),
            remedy="Its layout may have changed with the installed version: --detail summary "
            "measures without it.",
        ) from error
    return _calls(events)


def _calls(events: list[_Event]) -> RecordedCalls:
    nodes: list[RecordedNode] = []
    numbers: dict[tuple[str, int, str], int] = {}
    by_name: dict[str, int] = {}
    calls: list[RecordedCall] = []
    current = RecordedCall(0, 0, [])
    for event in events:
        if event.cat == _NODE and event.name.endswith(_TIME):
            name, operator = event.name.removesuffix(_TIME), str(event.args.get("op_name", ""))
            key = name, int(event.args.get("node_index", -1)), operator
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(nodes)
                nodes.append(_node(key, event.args))
            by_name[event.name] = number
            current.nodes.append((number, event.ts, event.dur))
        elif event.cat == _KERNEL:
            number = by_name.get(str(event.args.get("parent_name", "")), -1)
            current.kernels.append((number, event.name, event.dur))
        elif event.cat == _SESSION and event.name == _EXECUTION:
            # That of the whole graph ends last, after those of graphs inside of nodes.
            current.begin, current.end = event.ts, event.ts + event.dur
        elif event.cat == _SESSION and event.name == _RUN:
            calls.append(current)
            current = RecordedCall(0, 0, [])
    return RecordedCalls(nodes, calls)


def _node(key: tuple[str, int, str], args: dict[str, Any]) -> RecordedNode:
    name, index, operator = key
    inputs, outputs = (args.get(f"{side}_type_shape", ()) for side in ("input", "output"))
    shapes = [shape for tensor in inputs for shape in tensor.values()]
    floats = {_FLOATS[dtype] for tensor in inputs for dtype in tensor if dtype in _FLOATS}
    return RecordedNode(
        name=name,
        index=index,
        operator=operator,
        provider=str(args.get("provider", "")),
        tensors=len(inputs) + len(outputs),
        shapes=f"[{', '.join(map(str, shapes))}]" if shapes else "",
        dtype=floats.pop() if len(floats) == 1 else "",
    )
