"""Copies and memory sets by kind: how often, how long, how many bytes."""

from __future__ import annotations

import re
from array import array

import numpy as np

from torchgauge.analyze.trace.device_work import COPY, Activities
from torchgauge.analyze.trace.kernel_facts import Facts, pageable, total_bytes
from torchgauge.records.trace.events import Integers
from torchgauge.records.trace.trace import Copies


def packed(column: Integers) -> array[int]:
    """Return the numbers as Python reads them best."""
    return array("q", column.astype(np.int64).tobytes())


_KINDS = {
    "HtoD": "host to device",
    "DtoH": "device to host",
    "DtoD": "device to device",
    "PtoP": "device to device (peer)",
    "HtoH": "host to host",
}
_AMD = {
    "HostToDevice": "HtoD",
    "DeviceToHost": "DtoH",
    "DeviceToDevice": "DtoD",
    "HostToHost": "HtoH",
}
_NAMED = re.compile(r"([HDP]to[HDP])(?![a-z])")


def copies(activities: Activities, facts: Facts) -> tuple[Copies, ...]:
    """Return copies and memory sets by kind, most time first."""
    groups: dict[tuple[str, bool | None], list[int]] = {}
    for index in np.flatnonzero(activities.kind == COPY).tolist():
        name, recorded_kind = str(facts.name[index]), facts.copy_kind[index] or ""
        kind = "memory set" if facts.is_set[index] else copy_kind(name, recorded_kind)
        groups.setdefault(
            (kind, pageable(f"{name} {recorded_kind}") if kind in _ENDS else None), []
        ).append(index)
    records = []
    for (kind, from_pageable), group in groups.items():
        records.append(
            Copies(
                kind=kind,
                count=len(group),
                time=int((activities.end[group] - activities.begin[group]).sum()) * 1e-9,
                bytes=total_bytes(facts.size[group]),
                pageable=from_pageable,
            )
        )
    return tuple(sorted(records, key=lambda record: -record.time))


_ENDS = ("host to device", "device to host")


def copy_kind(name: str, recorded_kind: str) -> str:
    """Return the direction of a copy, from its name or (AMD, JAX) from its argument "kind"."""
    match = _NAMED.search(name) or _NAMED.search(recorded_kind)
    if match:
        return _KINDS.get(match[1], match[1])
    for long, short in _AMD.items():
        if long in recorded_kind or long in name:
            return _KINDS[short]
    return "copy"
