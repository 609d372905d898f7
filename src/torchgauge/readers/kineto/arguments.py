"""The arguments of events: one type for all kinds, which have hardly a key in common.

Decoded with their events, at once. Where a value is of an unexpected type, it alone is unknown:
`tolerant` decodes what the type refuses.
"""

from __future__ import annotations

import contextlib
import math
from typing import Annotated, Any

import msgspec

from torchgauge.records.trace.events import ABSENT

Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
NULL = msgspec.Raw(b"null")


class Arguments(msgspec.Struct, gc=False):
    """Arguments of an event, in the units of the file; a field's default means absent.

    In the order in which torch writes operators, the most frequent kind: that is decoded fastest.
    """

    external_id: Integer = msgspec.field(name="External id", default=ABSENT)
    sequence: Integer = msgspec.field(name="Sequence number", default=ABSENT)
    forward_thread: Integer = msgspec.field(name="Fwd thread id", default=ABSENT)
    inputs: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=NULL)
    types: msgspec.Raw = msgspec.field(name="Input type", default=NULL)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=NULL)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=NULL)
    index: Integer = msgspec.field(name="Ev Idx", default=ABSENT)
    older_index: Integer = msgspec.field(name="Profiler Event Index", default=ABSENT)
    modules: str | None = msgspec.field(name="Module Hierarchy", default=None)
    # Operators and kernels that communicate.
    collective: str | None = msgspec.field(name="Collective name", default=None)
    dtype: str | None = None
    elements_in: Integer = msgspec.field(name="In msg nelems", default=ABSENT)
    elements_out: Integer = msgspec.field(name="Out msg nelems", default=ABSENT)
    group: str | None = msgspec.field(name="Process Group Name", default=None)
    group_description: str | None = msgspec.field(name="Process Group Description", default=None)
    group_size: Integer = msgspec.field(name="Group size", default=ABSENT)
    ranks: str | None = msgspec.field(name="Process Group Ranks", default=None)
    split_in: str | None = msgspec.field(name="In split size", default=None)
    # Launches, and kernels, copies and memory sets.
    correlation: Integer = ABSENT
    kernel: str | None = None
    device: Integer = ABSENT
    stream: Integer = ABSENT
    queue: Integer = msgspec.field(name="sycl queue", default=ABSENT)  # an XPU's stream
    grid: tuple[Integer, Integer, Integer] = (ABSENT, ABSENT, ABSENT)
    block: tuple[Integer, Integer, Integer] = (ABSENT, ABSENT, ABSENT)
    registers: Integer = msgspec.field(name="registers per thread", default=ABSENT)
    shared_memory: Integer = msgspec.field(name="shared memory", default=ABSENT)
    blocks_per_sm: float = msgspec.field(name="blocks per SM", default=math.nan)
    warps_per_sm: float = msgspec.field(name="warps per SM", default=math.nan)
    occupancy: float = msgspec.field(name="est. achieved occupancy %", default=math.nan)
    graph_node: Integer = msgspec.field(name="graph node id", default=ABSENT)
    copied: Integer = msgspec.field(name="bytes", default=ABSENT)
    # Of a copy that took no time it is "N/A".
    bandwidth: float | str = msgspec.field(name="memory bandwidth (GB/s)", default=math.nan)
    kind: str | None = None
    # Waits of streams and of the host.
    awaited_stream: Integer = msgspec.field(name="wait_on_stream", default=ABSENT)
    awaited_record: Integer = msgspec.field(
        name="wait_on_cuda_event_record_corr_id", default=ABSENT
    )
    # Python functions.
    id: Integer = msgspec.field(name="Python id", default=ABSENT)
    parent: Integer = msgspec.field(name="Python parent id", default=ABSENT)
    module: Integer = msgspec.field(name="Python module id", default=ABSENT)
    # Calls of layers, in traces that torchgauge wrote.
    layer_class: str | None = msgspec.field(name="Class", default=None)
    # Allocations and frees; one without a size says nothing.
    address: Integer = msgspec.field(name="Addr", default=ABSENT)
    allocation: Integer = msgspec.field(name="Bytes", default=0)
    allocated: Integer = msgspec.field(name="Total Allocated", default=ABSENT)
    reserved: Integer = msgspec.field(name="Total Reserved", default=ABSENT)
    device_type: Integer = msgspec.field(name="Device Type", default=0)
    allocator: Integer = msgspec.field(name="Device Id", default=ABSENT)
    # Names of processes and threads.
    name: str | None = None
    labels: str | None = None


class Uncategorised(Arguments, gc=False):
    """Arguments of events without a category too: those of JAX, whose numbers are texts.

    A type of its own, for each field costs time where there are millions of events.
    """

    correlation_id: str | int | None = None
    kernel_details: str | None = None
    memcpy_details: str | None = None
    memset_details: str | None = msgspec.field(name="Memset_details", default=None)
    cuda_graph_node_id: str | int | None = None
    step_num: str | int | None = None


_FIELDS = msgspec.structs.fields(Uncategorised)
DEFAULTS: dict[str, Any] = {field.name: field.default for field in _FIELDS}
_strict = msgspec.json.Decoder(Uncategorised).decode


def tolerant(text: bytes) -> Arguments | None:
    """Return the arguments whose values are as expected, the others absent; None without text."""
    if not text:
        return None
    with contextlib.suppress(ValueError, RecursionError):
        return _strict(text)
    try:
        raw_values = msgspec.json.decode(text.decode("utf-8", "replace"), type=dict[str, Any])
    except (ValueError, RecursionError):
        return Uncategorised()
    values: dict[str, Any] = {}
    for field in _FIELDS:
        if field.encode_name in raw_values:
            with contextlib.suppress(ValueError):
                values[field.name] = _converted(raw_values[field.encode_name], field.type)
    return Uncategorised(**values)


def _converted(value: Any, kind: Any) -> Any:
    if kind is msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(value))
    if isinstance(value, float) and value.is_integer() and kind is not float:
        value = int(value)
    return msgspec.convert(value, kind)
