"""A value of a graph while it is read: its type, and its elements where it is small."""

from __future__ import annotations

from collections import ChainMap
from typing import Any, NamedTuple

from onnx import TypeProto


class Value(NamedTuple):
    """A value: `kind` is None where its type is unknown, `data` where its elements are."""

    kind: TypeProto | None = None
    data: Any = None


Scope = ChainMap[str, Value]
