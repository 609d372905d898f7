"""The shapes of an operator's operands, short enough for a line: "4×3×64×64, 16×3×3×3, 16"."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

NO_SHAPE = "–"


def labels(names: Sequence[str], shapes: Sequence[str]) -> list[str]:
    """Return each operator's name with short shapes, or torch's where short ones are equal."""
    short_labels = [
        f"{name}  {short(operands)}" for name, operands in zip(names, shapes, strict=True)
    ]
    times = Counter(short_labels)
    return [
        label if times[label] == 1 else f"{name}  {operands}"
        for label, name, operands in zip(short_labels, names, shapes, strict=True)
    ]


def short(shapes: str) -> str:
    """Return torch's list of shapes ("[[2, 3], [3], []]") with × inside of a shape.

    What has no shape is "–", and left out after the last shape. A text that is no such list stays.
    """
    try:
        operands = json.loads(shapes or "[]")
        if not isinstance(operands, list):
            return shapes
        while operands and operands[-1] == []:
            operands.pop()
        return ", ".join(map(_operand, operands)) or NO_SHAPE
    except (ValueError, RecursionError):  # another tool's file may hold anything
        return shapes


def _operand(sizes: Any) -> str:
    """Return one operand's shape, or those of a list of tensors in brackets."""
    if not isinstance(sizes, list):
        return str(sizes)
    if any(isinstance(size, list) for size in sizes):
        return f"[{', '.join(map(_operand, sizes))}]"
    return "×".join(map(str, sizes)) or NO_SHAPE
