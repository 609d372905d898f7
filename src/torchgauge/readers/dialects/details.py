"""Parses JAX's details of kernels and copies, texts such as "regs:16 grid:1,1,1"."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from torchgauge.readers.columns import Interned
from torchgauge.records.trace.events import ABSENT, Coded, Integers, Rows

_PART = re.compile(r"(\w+):(\S+)")
_DIRECTION = re.compile(  # "MemcpyH2D", "CopyHostToDevice", "MEMORY_COPY_HOST_TO_DEVICE"
    r"Memcpy([HDP])2([HDP])|(?:MEMORY_)?(?:COPY)?_?(?:(H)OST|(D)EVICE)_?TO_?(?:(H)OST|(D)EVICE)",
    re.IGNORECASE,
)
_LARGEST = 18  # digits that an int64 holds


def integer(value: Any) -> int:
    """Return a number that may be written as text, ABSENT for any other value."""
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LARGEST else ABSENT


def launch_shapes(texts: Coded[str], entry: Rows) -> dict[str, Any]:
    """Return grid, block, registers, shared memory (bytes) and occupancy (a fraction) of each."""
    parts = [_parts(text) for text in texts.values]
    code = _codes(texts, entry)

    def column(values: list[Any], absent: Any) -> Any:
        return np.array([*values, absent])[code]

    nowhere = (ABSENT, ABSENT, ABSENT)
    return {
        "grid": column([_triple(details.get("grid", "")) for details in parts], nowhere),
        "block": column([_triple(details.get("block", "")) for details in parts], nowhere),
        "registers": column([integer(details.get("regs")) for details in parts], ABSENT),
        "shared_memory": column([_shared(details) for details in parts], ABSENT),
        "occupancy": column([_fraction(details.get("occ_pct", "")) for details in parts], math.nan),
    }


def copies(texts: Coded[str], entry: Rows, names: Coded[str]) -> tuple[Integers, Coded[str]]:
    """Return the bytes of each copy, and from where to where: "HtoD (Pageable -> Device)"."""
    parts = [_parts(text) for text in texts.values]
    sizes = np.array([integer(details.get("size")) for details in parts] + [ABSENT])
    kinds: Interned[str | None] = Interned(None)
    codes = [
        kinds[_kind(str(names.values[name]), parts[text] if text != ABSENT else {})]
        for name, text in zip(names.codes.tolist(), _codes(texts, entry).tolist(), strict=True)
    ]
    return sizes[_codes(texts, entry)], Coded(np.array(codes, np.int32), kinds.values_by_code())  # type: ignore[arg-type]


def memory_sets(texts: Coded[str], entry: Rows) -> Integers:
    """Return the bytes of each memory set."""
    return _numbers(texts, entry, lambda text: integer(_parts(text).get("num_bytes")))


def graph_node(texts: Coded[Any], entry: Rows) -> Integers:
    """Return the number of each kernel's node in its CUDA graph."""
    return _numbers(texts, entry, integer)


def _numbers(texts: Coded[Any], entry: Rows, meaning: Callable[[Any], int]) -> Integers:
    return np.array([*map(meaning, texts.values), ABSENT])[_codes(texts, entry)]


def _codes(texts: Coded[Any], entry: Rows) -> Integers:
    return np.append(texts.codes, ABSENT)[entry]


def _parts(text: str) -> dict[str, str]:
    return dict(_PART.findall(text))


def _triple(text: str) -> tuple[int, int, int]:
    numbers = [integer(part) for part in text.split(",")]
    complete = len(numbers) == 3 and ABSENT not in numbers
    return (numbers[0], numbers[1], numbers[2]) if complete else (ABSENT, ABSENT, ABSENT)


def _shared(parts: dict[str, str]) -> int:
    sizes = [integer(parts.get(name)) for name in ("static_shared", "dynamic_shared")]
    return ABSENT if ABSENT in sizes else sum(sizes)


def _fraction(percent: str) -> float:
    try:
        fraction = float(percent) / 100
    except ValueError:
        return math.nan
    return fraction if 0 < fraction < math.inf else math.nan


def _kind(name: str, parts: dict[str, str]) -> str | None:
    direction = _DIRECTION.match(name)
    if direction is None:
        return None
    ends = [parts.get(end, "").capitalize() for end in ("kind_src", "kind_dst")]
    memory_kinds = f" ({' -> '.join(ends)})" if all(ends) else ""
    source, target = (end.upper() for end in direction.groups() if end)
    return f"{source}to{target}{memory_kinds}"
