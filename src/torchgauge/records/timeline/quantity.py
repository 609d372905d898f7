"""What a column of a flat table holds, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from torchgauge import units

Quantity = Literal[
    "text",
    "time",
    "bytes",
    "count",
    "elements",
    "percent",
    "share",
    "flop/s",
    "bytes/s",
    "flop/byte",
]

FORMATS: dict[Quantity, Callable[[Any], str]] = {
    "text": lambda value: "×".join(map(str, value)) if isinstance(value, tuple) else str(value),
    "time": lambda value: units.time(value, 3),
    "bytes": lambda value: units.size(value, 3),
    "count": lambda value: units.count(value, 3),
    "elements": lambda value: units.elements(value, 3),
    "percent": lambda value: f"{value:.1f}",
    "share": units.share,
    "flop/s": lambda value: units.count(value, 3),
    "bytes/s": lambda value: units.count(value, 3),
    "flop/byte": units.significant,
}
