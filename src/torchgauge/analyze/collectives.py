"""Collective communication by kind and size: how long, how fast, how much of it exposed.

Bus bandwidth as nccl-tests defines it (doc/PERFORMANCE.md there): bytes of the message ÷ time × the
share of it that passes the slowest link.
"""

from __future__ import annotations

import functools
import re

import numpy as np

from torchgauge.analyze.intervals import Intervals, union
from torchgauge.analyze.kernel_facts import Facts
from torchgauge.analyze.pieces import COMMUNICATION, COMPUTE, Pieces
from torchgauge.model.events import Integers
from torchgauge.model.trace import Collectives

_KERNEL = re.compile(r"(?:nccl|rccl)(?:Dev)?Kernel_?([A-Za-z]+)", re.IGNORECASE)
_BYTES = {
    "double": 8, "long": 8, "int64": 8, "float": 4, "int": 4, "int32": 4, "half": 2, "bfloat16": 2,
    "short": 2, "char": 1, "byte": 1, "bool": 1, "uint8": 1, "float8": 1, "complexfloat": 8,
}  # fmt: skip


@functools.lru_cache(1024)
def collective_name(said: str | None, kernel: str) -> str:
    """Return one name for each collective: "_allgather_base" and "AllGather" are "allgather"."""
    found = _KERNEL.match(kernel)
    text = said or (found[1] if found else "unknown")
    short = text.lower().removeprefix("nccl:").replace("_base", "").replace("_coalesced", "")
    return short.replace("_", "").replace("generic", "") or "unknown"


def item_bytes(dtype: str | None) -> int | None:
    """Return the bytes of an element of a type as NCCL's metadata names it ("BFloat16")."""
    if dtype is None:
        return None
    name = dtype.lower()
    return 1 if name.startswith("float8") else _BYTES.get(name)


def bus_share(name: str, ranks: int) -> float | None:
    """Return the share of a message that passes the slowest link; None for unknown collectives."""
    if ranks < 1:
        return None
    if name == "allreduce":
        return 2 * (ranks - 1) / ranks
    if name in ("allgather", "reducescatter", "alltoall", "alltoallv"):
        return (ranks - 1) / ranks
    return 1.0 if name in ("broadcast", "reduce", "send", "recv", "sendrecv") else None


def exposed(pieces: Pieces) -> Integers:
    """Return for each piece the ns of it in which nothing computed on its device."""
    result = np.zeros(len(pieces), np.int64)
    for device in np.unique(pieces.device).tolist():
        here = np.flatnonzero(pieces.device == device)
        mine = pieces.take(here)
        compute = mine.take(mine.kind == COMPUTE)
        busy: Intervals = union(compute.begin, compute.end, mine.window)
        beside = busy.before(mine.end) - busy.before(mine.begin)
        result[here] = mine.end - mine.begin - beside
    return result


def collectives(pieces: Pieces, facts: Facts) -> tuple[Collectives, ...]:
    """Return the collectives of one rank by kind, type, size and group, most time first."""
    places = np.flatnonzero(pieces.kind == COMMUNICATION)
    alone = exposed(pieces)
    groups: dict[tuple[str, str | None, int | None, int | None], list[int]] = {}
    for place in places.tolist():
        groups.setdefault(message(facts, place), []).append(place)
    found = []
    for (name, dtype, size, ranks), group in groups.items():
        time = int((pieces.end[group] - pieces.begin[group]).sum()) * 1e-9
        share = bus_share(name, ranks) if ranks is not None else None
        known = size is not None and share is not None and time > 0
        found.append(
            Collectives(
                name=name,
                dtype=dtype,
                bytes=size,
                group=ranks,
                calls=len(group),
                time=time,
                exposed=int(alone[group].sum()) * 1e-9,
                bus_bandwidth=size * share * len(group) / time if known else None,  # type: ignore[operator]
            )
        )
    return tuple(sorted(found, key=lambda one: -one.time))


def message(facts: Facts, place: int) -> tuple[str, str | None, int | None, int | None]:
    """Return name, element type, bytes and group size of a piece of communication."""
    name = collective_name(facts.collective[place], str(facts.name[place]))
    dtype, ranks = facts.dtype[place], int(facts.group_size[place])
    elements = max(int(facts.elements[place]), int(facts.elements_out[place]))
    width = item_bytes(dtype)
    size = elements * width if elements >= 0 and width is not None else None
    return name, dtype, size, ranks if ranks > 0 else None
