"""Translates what rocprofv3 wrote (`--output-format json`) to a trace in Kineto's terms.

Its file is a list of processes with a list of records of each kind: calls of HIP and RCCL, ranges
that the program marked, kernels and copies. Times are in ns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

START = b'"rocprofiler-sdk-tool"'
RECORDER = "rocprof"
_GPU = 2  # of an agent's `type`
_CALLS = ("hip_api", "rccl_api")
_COPIES = {
    "HOST_TO_HOST": "HtoH",
    "HOST_TO_DEVICE": "HtoD",
    "DEVICE_TO_HOST": "DtoH",
    "DEVICE_TO_DEVICE": "DtoD",
}


class _Handle(msgspec.Struct, gc=False):
    handle: int = 0


class _Correlation(msgspec.Struct, gc=False):
    internal: int = 0


class _Size(msgspec.Struct, gc=False):
    x: int = 0
    y: int = 0
    z: int = 0


class _Dispatch(msgspec.Struct, gc=False):
    agent_id: _Handle = msgspec.field(default_factory=_Handle)
    queue_id: _Handle = msgspec.field(default_factory=_Handle)
    kernel_id: int = -1
    workgroup_size: _Size = msgspec.field(default_factory=_Size)
    grid_size: _Size = msgspec.field(default_factory=_Size)
    group_segment_size: int = -1


class _Call(msgspec.Struct, gc=False):
    """A record of any kind; a field's default means absent."""

    start_timestamp: int
    end_timestamp: int
    kind: int = -1
    operation: int = -1
    thread_id: int = 0
    correlation_id: _Correlation = msgspec.field(default_factory=_Correlation)
    dispatch_info: _Dispatch | None = None
    stream_id: _Handle | None = None
    src_agent_id: _Handle = msgspec.field(default_factory=_Handle)
    dst_agent_id: _Handle = msgspec.field(default_factory=_Handle)
    bytes: int = -1


class _Kind(msgspec.Struct, gc=False):
    kind: str = ""
    operations: list[str] = []


class _Marker(msgspec.Struct, gc=False):
    key: int = -1
    value: str = ""


class _Strings(msgspec.Struct, gc=False):
    buffer_records: list[_Kind] = []
    marker_api: list[_Marker] = []


class _Agent(msgspec.Struct, gc=False):
    id: _Handle
    type: int = 0
    logical_node_type_id: int = -1
    product_name: str = ""
    name: str = ""


class _Symbol(msgspec.Struct, gc=False):
    kernel_id: int
    formatted_kernel_name: str = ""
    kernel_name: str = ""


class _Identity(msgspec.Struct, gc=False):
    pid: int = 0


class _Records(msgspec.Struct, gc=False):
    kernel_dispatch: list[_Call] = []
    memory_copy: list[_Call] = []
    hip_api: list[_Call] = []
    rccl_api: list[_Call] = []
    marker_api: list[_Call] = []


class _Process(msgspec.Struct, gc=False):
    metadata: _Identity = msgspec.field(default_factory=_Identity)
    agents: list[_Agent] = []
    strings: _Strings = msgspec.field(default_factory=_Strings)
    kernel_symbols: list[_Symbol] = []
    buffer_records: _Records = msgspec.field(default_factory=_Records)


class _File(msgspec.Struct, gc=False):
    processes: list[_Process] = msgspec.field(name="rocprofiler-sdk-tool")


_decode = msgspec.json.Decoder(_File).decode


def as_kineto(text: bytes) -> bytes:
    """Return the file as a trace; raises ValueError where it is another or damaged."""
    processes = _decode(text).processes
    devices = [
        {"id": number, "name": agent.product_name or agent.name}
        for process in processes[:1]
        for agent, number in zip(_gpus(process), _numbers(process).values(), strict=True)
    ]
    events = [event for process in processes for event in _events(process)]
    return msgspec.json.encode(
        {"recorder": RECORDER, "deviceProperties": devices, "traceEvents": events}
    )


def _gpus(process: _Process) -> list[_Agent]:
    return [agent for agent in process.agents if agent.type == _GPU]


def _numbers(process: _Process) -> dict[int, int]:
    """Return the numbers of the devices by their handles, as HIP counts them."""
    return {
        agent.id.handle: agent.logical_node_type_id if agent.logical_node_type_id >= 0 else index
        for index, agent in enumerate(_gpus(process))
    }


def _events(process: _Process) -> Iterator[dict[str, Any]]:
    records, numbers = process.buffer_records, _numbers(process)
    marks = {marker.key: marker.value for marker in process.strings.marker_api}
    names = {symbol.kernel_id: symbol.formatted_kernel_name or symbol.kernel_name
             for symbol in process.kernel_symbols}  # fmt: skip
    pid = process.metadata.pid
    for kind in _CALLS:
        for call in getattr(records, kind):
            yield _host(pid, call, "cuda_runtime", _operation(process, call))
    for call in records.marker_api:
        if mark := marks.get(call.correlation_id.internal):
            yield _host(pid, call, "user_annotation", mark)
    for call in records.kernel_dispatch:
        if call.dispatch_info is not None:
            name = names.get(call.dispatch_info.kernel_id, "unknown kernel")
            yield _kernel(call, call.dispatch_info, name, numbers)
    for call in records.memory_copy:
        yield _copy(call, _operation(process, call), numbers)


def _operation(process: _Process, call: _Call) -> str:
    kinds = process.strings.buffer_records
    operations = kinds[call.kind].operations if 0 <= call.kind < len(kinds) else []
    is_named = 0 <= call.operation < len(operations)
    return operations[call.operation] if is_named else "unknown call"


def _span(call: _Call, category: str, name: str) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": _microseconds(call.start_timestamp),
        "dur": _microseconds(max(call.end_timestamp - call.start_timestamp, 0)),
    }


def _microseconds(time: int) -> msgspec.Raw:
    """Return ns as µs, exactly."""
    return msgspec.Raw(b"%d.%03d" % divmod(max(time, 0), 1000))


def _host(pid: int, call: _Call, category: str, name: str) -> dict[str, Any]:
    arguments = {"correlation": call.correlation_id.internal}
    return _span(call, category, name) | {"pid": pid, "tid": call.thread_id, "args": arguments}


def _kernel(call: _Call, dispatch: _Dispatch, name: str, numbers: dict[int, int]) -> dict[str, Any]:
    device = numbers.get(dispatch.agent_id.handle, -1)
    stream = (call.stream_id or dispatch.queue_id).handle
    block = _triple(dispatch.workgroup_size)
    # It counts the threads of all blocks.
    grid = [-(-threads // size) if size > 0 else -1
            for threads, size in zip(_triple(dispatch.grid_size), block, strict=True)]  # fmt: skip
    arguments = _placement(call, device, stream) | {
        "grid": grid, "block": block, "shared memory": dispatch.group_segment_size,
    }  # fmt: skip
    return _span(call, "kernel", name) | {"pid": device, "tid": stream, "args": arguments}


def _copy(call: _Call, operation: str, numbers: dict[int, int]) -> dict[str, Any]:
    ends = (numbers.get(end.handle, -1) for end in (call.dst_agent_id, call.src_agent_id))
    device = next((number for number in ends if number >= 0), -1)
    stream = call.stream_id.handle if call.stream_id is not None else -1
    direction = next((short for long, short in _COPIES.items() if operation.endswith(long)), "")
    arguments = _placement(call, device, stream) | {"bytes": call.bytes}
    name = f"Memcpy {direction}".strip()
    return _span(call, "gpu_memcpy", name) | {"pid": device, "tid": "copies", "args": arguments}


def _placement(call: _Call, device: int, stream: int) -> dict[str, int]:
    return {"device": device, "stream": stream, "correlation": call.correlation_id.internal}


def _triple(size: _Size) -> Iterable[int]:
    return size.x, size.y, size.z
