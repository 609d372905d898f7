"""The sizes of a nested tensor's parts: asking one for its shape raises."""

from __future__ import annotations

from typing import Any


def is_nested(operand: Any) -> bool:
    """Return True for a nested tensor of either layout; False for a description."""
    return bool(getattr(operand, "is_nested", False))


def parts(operand: Any) -> list[list[int]]:
    """Return the sizes of each part along the first dimension, of a nested or a dense tensor."""
    if not is_nested(operand):
        return [list(operand.shape[1:])] * operand.shape[0]
    if hasattr(operand, "offsets"):  # jagged: one dimension differs from part to part
        return _jagged(operand)
    return [[int(size) for size in sizes] for sizes in operand._nested_tensor_size().tolist()]  # noqa: SLF001


def _jagged(operand: Any) -> list[list[int]]:
    ragged = operand._ragged_idx  # noqa: SLF001 - there is no public name for it
    lengths = operand.lengths()
    if lengths is None:
        lengths = operand.offsets().diff()
    sizes = list(operand.shape)
    return [[*sizes[1:ragged], int(length), *sizes[ragged + 1 :]] for length in lengths.tolist()]
