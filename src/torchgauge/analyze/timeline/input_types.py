"""The floating-point type of what operators are given, by node of the tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from torchgauge.analyze.work.recorded_operands import element_type
from torchgauge.records.trace.events import ABSENT, Events, Integers, Rows

_REAL = ("float", "bfloat")


def input_types(events: Events, rows: Rows, node_of_span: Integers) -> dict[int, str]:
    """Return the type of the first floating-point input, by node, where all calls agree.

    `rows` are the events of the spans, `node_of_span` is ABSENT for spans without a node.
    """
    operators = events.operators
    code = np.full(len(events), ABSENT)
    code[operators.row] = operators.types.codes
    code = code[rows]
    known = np.flatnonzero((code != ABSENT) & (node_of_span != ABSENT))
    if not len(known):
        return {}
    most = len(operators.types.values)
    pairs = np.unique(node_of_span[known].astype(np.int64) * most + code[known])
    type_of_code: dict[int, str] = {}
    types: dict[int, str] = {}
    for node, number in zip((pairs // most).tolist(), (pairs % most).tolist(), strict=True):
        if number not in type_of_code:
            type_of_code[number] = next(_floating(operators.types.values[number]), "")
        dtype = type_of_code[number]
        types[node] = dtype if types.get(node, dtype) == dtype else ""
    return {node: dtype for node, dtype in types.items() if dtype}


def _floating(types: Any) -> Iterator[str]:
    """Yield torch's names of the floating-point types among those of a call's arguments."""
    if isinstance(types, tuple | list):
        for inner in types:
            yield from _floating(inner)
    elif isinstance(types, str) and (element := element_type(types)) is not None:
        if element[0].startswith(_REAL):
            yield element[0]
