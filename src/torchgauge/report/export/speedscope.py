"""The tree as a speedscope file: one profile for each figure that the record has."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import msgspec

from torchgauge.errors import InputError
from torchgauge.records.exported import Weight
from torchgauge.report.export.stacks import Stack, label, stacks

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
UNITS: dict[Weight, str] = {
    "device": "nanoseconds",
    "host": "nanoseconds",
    "flops": "none",
    "bytes": "bytes",
    "memory": "bytes",
}


def render(record: object) -> str:
    """Return the file's text, the device's time first where it worked."""
    frames: dict[str, int] = defaultdict(itertools.count().__next__)  # numbered as they are met
    profiles: list[dict[str, Any]] = []
    absent: InputError | None = None
    for weight, unit in UNITS.items():
        try:
            weighted_stacks = stacks(record, weight)
        except InputError as error:
            absent = error
            continue
        profiles.append(_profile(weighted_stacks, label(weight), unit, frames))
    if not profiles and absent is not None:
        raise absent
    content = {
        "$schema": SCHEMA,
        "exporter": "torchgauge",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": profiles,
    }
    return msgspec.json.encode(content).decode() + "\n"


def _profile(
    weighted_stacks: list[tuple[Stack, int]], name: str, unit: str, frames: dict[str, int]
) -> dict[str, Any]:
    return {
        "type": "sampled",
        "name": name,
        "unit": unit,
        "startValue": 0,
        "endValue": sum(own for _, own in weighted_stacks),
        "samples": [[frames[frame] for frame in stack] for stack, _ in weighted_stacks],
        "weights": [own for _, own in weighted_stacks],
    }
