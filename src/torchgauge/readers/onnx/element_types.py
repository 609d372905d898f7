"""ONNX's element types: torch's names for them, bits, and values as arrays."""

from __future__ import annotations

from collections import ChainMap
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, TypeProto


class Value(NamedTuple):
    """A value: `kind` is None where its type is unknown, `data` where its elements are."""

    kind: TypeProto | None = None
    data: Any = None


Scope = ChainMap[str, Value]


_NAMES: dict[int, tuple[str, int]] = {
    TensorProto.FLOAT: ("float32", 32),
    TensorProto.UINT8: ("uint8", 8),
    TensorProto.INT8: ("int8", 8),
    TensorProto.UINT16: ("uint16", 16),
    TensorProto.INT16: ("int16", 16),
    TensorProto.INT32: ("int32", 32),
    TensorProto.INT64: ("int64", 64),
    TensorProto.STRING: ("string", 0),
    TensorProto.BOOL: ("bool", 8),
    TensorProto.FLOAT16: ("float16", 16),
    TensorProto.DOUBLE: ("float64", 64),
    TensorProto.UINT32: ("uint32", 32),
    TensorProto.UINT64: ("uint64", 64),
    TensorProto.COMPLEX64: ("complex64", 64),
    TensorProto.COMPLEX128: ("complex128", 128),
    TensorProto.BFLOAT16: ("bfloat16", 16),
    TensorProto.FLOAT8E4M3FN: ("float8_e4m3fn", 8),
    TensorProto.FLOAT8E4M3FNUZ: ("float8_e4m3fnuz", 8),
    TensorProto.FLOAT8E5M2: ("float8_e5m2", 8),
    TensorProto.FLOAT8E5M2FNUZ: ("float8_e5m2fnuz", 8),
    TensorProto.UINT4: ("uint4", 4),
    TensorProto.INT4: ("int4", 4),
    TensorProto.FLOAT4E2M1: ("float4_e2m1", 4),
    TensorProto.FLOAT8E8M0: ("float8_e8m0fnu", 8),
    TensorProto.UINT2: ("uint2", 2),
    TensorProto.INT2: ("int2", 2),
}
# Those whose values decide shapes.
ARRAYS: dict[int, Any] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.INT32: np.int32,
    TensorProto.INT64: np.int64,
    TensorProto.BOOL: np.bool_,
    TensorProto.UINT8: np.uint8,
    TensorProto.INT8: np.int8,
}


def name_of(number: int) -> str:
    """Return the element type's name, "" for one that is not known."""
    return _NAMES.get(number, ("", 0))[0]


def stored_bytes(number: int, elements: int) -> int | None:
    """Return the bytes of that number of elements; None for texts and unknown types."""
    _, bits = _NAMES.get(number, ("", 0))
    return -(-elements * bits // 8) if bits else None
