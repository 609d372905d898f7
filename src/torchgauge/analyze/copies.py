"""Copies and memory sets by kind: how often, how long, how many bytes."""

from __future__ import annotations

import re

import numpy as np

from torchgauge.analyze.kernel_facts import Facts, pageable, total_bytes
from torchgauge.analyze.pieces import COPY, Pieces
from torchgauge.model.trace import Copies

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
_NAMED = re.compile(r"\b([HDP]to[HDP])\b")


def copies(pieces: Pieces, facts: Facts) -> tuple[Copies, ...]:
    """Return copies and memory sets by kind, most time first."""
    groups: dict[tuple[str, bool | None], list[int]] = {}
    for place in np.flatnonzero(pieces.kind == COPY).tolist():
        name, said = str(facts.name[place]), facts.copy_kind[place] or ""
        kind = copy_kind(name, said)
        groups.setdefault((kind, pageable(f"{name} {said}") if kind in _ENDS else None), []).append(
            place
        )
    found = []
    for (kind, from_pageable), group in groups.items():
        found.append(
            Copies(
                kind=kind,
                count=len(group),
                time=int((pieces.end[group] - pieces.begin[group]).sum()) * 1e-9,
                bytes=total_bytes(facts.size[group]),
                pageable=from_pageable,
            )
        )
    return tuple(sorted(found, key=lambda one: -one.time))


_ENDS = ("host to device", "device to host")


def copy_kind(name: str, said: str) -> str:
    """Return what is copied where: names say it, of AMD's and JAX's the argument "kind" does."""
    found = _NAMED.search(name) or _NAMED.search(said)
    if found:
        return _KINDS.get(found[1], found[1])
    for long, short in _AMD.items():
        if long in said or long in name:
            return _KINDS[short]
    return "memory set" if "set" in name.lower() else "copy"
