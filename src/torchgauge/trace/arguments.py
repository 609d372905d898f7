"""The arguments of events, one type per kind: the field's default says what column it becomes.

Kinds have hardly a key in common, so they are decoded apart, all of a chunk at once. A value of an
unexpected type is unknown, and costs nothing but itself: a copy that took no time has the bandwidth
"N/A".
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import numpy as np

from torchgauge.model.events import ABSENT
from torchgauge.trace.columns import Column, Documents, Labels, Numbers, Triples

Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_ABSENT_TEXT = msgspec.Raw()
A = TypeVar("A", bound="Arguments")


class Arguments(msgspec.Struct, gc=False):
    """The base of all kinds."""


class Communication(Arguments, gc=False):
    """What operators and kernels that communicate say of it."""

    name: str | None = msgspec.field(name="Collective name", default=None)
    dtype: str | None = None
    elements_in: Integer = msgspec.field(name="In msg nelems", default=ABSENT)
    elements_out: Integer = msgspec.field(name="Out msg nelems", default=ABSENT)
    group: str | None = msgspec.field(name="Process Group Name", default=None)
    group_description: str | None = msgspec.field(name="Process Group Description", default=None)
    group_size: Integer = msgspec.field(name="Group size", default=ABSENT)
    ranks: str | None = msgspec.field(name="Process Group Ranks", default=None)


class Operator(Communication, gc=False):
    """Operators and annotations."""

    external_id: Integer = msgspec.field(name="External id", default=ABSENT)
    index: Integer = msgspec.field(name="Ev Idx", default=ABSENT)
    older_index: Integer = msgspec.field(name="Profiler Event Index", default=ABSENT)
    sequence: Integer = msgspec.field(name="Sequence number", default=ABSENT)
    forward_thread: Integer = msgspec.field(name="Fwd thread id", default=ABSENT)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_ABSENT_TEXT)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=_ABSENT_TEXT)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_ABSENT_TEXT)
    inputs: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_ABSENT_TEXT)
    modules: str | None = msgspec.field(name="Module Hierarchy", default=None)


class Launch(Arguments, gc=False):
    """Runtime and driver calls."""

    correlation: Integer = ABSENT
    external_id: Integer = msgspec.field(name="External id", default=ABSENT)


class Device(Communication, gc=False):
    """Kernels, copies and memory sets, in the units of the file."""

    device: Integer = ABSENT
    stream: Integer = ABSENT
    correlation: Integer = ABSENT
    external_id: Integer = msgspec.field(name="External id", default=ABSENT)
    grid: tuple[Integer, Integer, Integer] = (ABSENT, ABSENT, ABSENT)
    block: tuple[Integer, Integer, Integer] = (ABSENT, ABSENT, ABSENT)
    registers: Integer = msgspec.field(name="registers per thread", default=ABSENT)
    shared_memory: Integer = msgspec.field(name="shared memory", default=ABSENT)
    blocks_per_sm: float = msgspec.field(name="blocks per SM", default=math.nan)
    warps_per_sm: float = msgspec.field(name="warps per SM", default=math.nan)
    occupancy: float = msgspec.field(name="est. achieved occupancy %", default=math.nan)
    graph_node: Integer = msgspec.field(name="graph node id", default=ABSENT)
    size: Integer = msgspec.field(name="bytes", default=ABSENT)
    bandwidth: float = msgspec.field(name="memory bandwidth (GB/s)", default=math.nan)
    kind: str | None = None


class Python(Arguments, gc=False):
    """Python functions."""

    id: Integer = msgspec.field(name="Python id", default=ABSENT)
    parent: Integer = msgspec.field(name="Python parent id", default=ABSENT)
    module: Integer = msgspec.field(name="Python module id", default=ABSENT)


class Memory(Arguments, gc=False):
    """Allocations and frees; one without a size says nothing and is left out."""

    address: Integer = msgspec.field(name="Addr", default=ABSENT)
    size: Integer = msgspec.field(name="Bytes", default=0)
    allocated: Integer = msgspec.field(name="Total Allocated", default=ABSENT)
    reserved: Integer = msgspec.field(name="Total Reserved", default=ABSENT)
    device_type: Integer = msgspec.field(name="Device Type", default=0)
    device: Integer = msgspec.field(name="Device Id", default=ABSENT)
    index: Integer = msgspec.field(name="Ev Idx", default=ABSENT)


class Naming(Arguments, gc=False):
    """Names of processes and threads."""

    name: str | None = None
    labels: str | None = None


class Decoder(Generic[A]):
    """Decodes the arguments of many events of one kind."""

    def __init__(self, kind: type[A]) -> None:
        self.kind = kind
        self._fields = msgspec.structs.fields(kind)
        self._many = msgspec.json.Decoder(list[kind]).decode  # type: ignore[valid-type]
        self._one = msgspec.json.Decoder(kind).decode

    def __call__(self, texts: Sequence[msgspec.Raw]) -> list[A]:
        """Return the arguments of each; an absent text gives those without any."""
        try:
            return self._many(b"[" + b",".join([text or b"{}" for text in texts]) + b"]")
        except (ValueError, RecursionError):
            return [self._single(bytes(text)) for text in texts]

    def _single(self, text: bytes) -> A:
        try:
            return self._one(text or b"{}")
        except (ValueError, RecursionError):
            return self._tolerant(text)

    def _tolerant(self, text: bytes) -> A:
        """Return the arguments whose values are as expected, the others absent."""
        try:
            found = msgspec.json.decode(text.decode("utf-8", "replace"), type=dict[str, Any])
        except (ValueError, RecursionError):
            return self.kind()
        values: dict[str, Any] = {}
        for field in self._fields:
            if field.encode_name in found:
                value = found[field.encode_name]
                with contextlib.suppress(ValueError):
                    values[field.name] = _converted(value, field.type)
        return self.kind(**values)


def _converted(value: Any, kind: Any) -> Any:
    if kind is msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(value))
    if isinstance(value, float) and value.is_integer() and kind is not float:
        value = int(value)
    return msgspec.convert(value, kind)


def column_for(default: object) -> Column:
    """Return the column for a field with this default."""
    if isinstance(default, tuple):
        return Triples()
    if isinstance(default, msgspec.Raw):
        return Documents()
    if default is None:
        return Labels()
    return Numbers(np.float64 if isinstance(default, float) else np.int64)
