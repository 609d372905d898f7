"""Merge the figures of the memory pass into the layers and operators of the recording."""

from __future__ import annotations

import msgspec

from torchgauge.records.timeline.tree import Tree
from torchgauge.records.timeline.tree_row import TreeRow

_ADDITIVE = ("allocations", "allocated", "retained", "parameters")


def with_memory(tree: Tree, memory: Tree) -> Tree:
    """Return the tree with the memory figures of another one of the same step.

    A row is found by its name, kind, phase and shapes, below the same parent. What only the
    memory pass saw is its parent's own, so that the sums of both are equal; what it did not see
    stays unknown. Its passes and warnings are added.
    """
    numbers: dict[tuple[object, ...], int] = {}
    for number, row in enumerate(tree.rows):
        numbers.setdefault(_key(row, row.parent), number)
    figures_by_row: dict[int, dict[str, int]] = {}
    target_rows: list[int] = []
    for row in memory.rows:
        around = target_rows[row.parent] if row.parent >= 0 else -1
        number_in_tree = numbers.get(_key(row, around))
        target_rows.append(max(around, 0) if number_in_tree is None else number_in_tree)
        figures = figures_by_row.setdefault(target_rows[-1], {})
        for name in _ADDITIVE:
            value = getattr(row, name)
            if value is not None:
                figures[name] = figures.get(name, 0) + value
        if number_in_tree is not None and row.peak is not None:
            figures["peak"] = row.peak
    rows = tuple(
        msgspec.structs.replace(row, **figures_by_row[number]) if number in figures_by_row else row
        for number, row in enumerate(tree.rows)
    )
    passes = memory.passes
    if tree.passes:
        bare_times = {name: getattr(tree.passes[0], name) for name in ("bare", "bare_interval")}
        passes = tuple(msgspec.structs.replace(tree_pass, **bare_times) for tree_pass in passes)
    return msgspec.structs.replace(
        tree,
        rows=rows,
        passes=(*tree.passes, *passes),
        allocator=memory.allocator,
        warnings=(*tree.warnings, *memory.warnings),
    )


def _key(row: TreeRow, parent: int) -> tuple[object, ...]:
    return parent, row.kind, row.name, row.path, row.phase, row.shapes
