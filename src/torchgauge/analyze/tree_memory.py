"""Memory on the tree: what the memory pass saw, on the layers and operators of the recording."""

from __future__ import annotations

import msgspec

from torchgauge.model.tree import Tree, TreeRow

_ADDITIVE = ("allocations", "allocated", "retained", "parameters")


def with_memory(tree: Tree, memory: Tree) -> Tree:
    """Return the tree with the memory figures of another one of the same step.

    A row is found by its place: name, kind, phase and shapes, below the same parent. What only the
    memory pass saw is its parent's own, so that the sums of both are equal; what it did not see
    stays unknown. Its passes and warnings are added.
    """
    places: dict[tuple[object, ...], int] = {}
    for number, row in enumerate(tree.rows):
        places.setdefault(_key(row, row.parent), number)
    found: dict[int, dict[str, int]] = {}
    where: list[int] = []
    for row in memory.rows:
        around = where[row.parent] if row.parent >= 0 else -1
        place = places.get(_key(row, around))
        where.append(max(around, 0) if place is None else place)
        figures = found.setdefault(where[-1], {})
        for name in _ADDITIVE:
            value = getattr(row, name)
            if value is not None:
                figures[name] = figures.get(name, 0) + value
        if place is not None and row.peak is not None:
            figures["peak"] = row.peak
    rows = tuple(
        msgspec.structs.replace(row, **found[number]) if number in found else row
        for number, row in enumerate(tree.rows)
    )
    passes = memory.passes
    if tree.passes:
        known = {name: getattr(tree.passes[0], name) for name in ("bare", "bare_interval")}
        passes = tuple(msgspec.structs.replace(one, **known) for one in passes)
    return msgspec.structs.replace(
        tree,
        rows=rows,
        passes=(*tree.passes, *passes),
        allocator=memory.allocator,
        warnings=(*tree.warnings, *memory.warnings),
    )


def _key(row: TreeRow, parent: int) -> tuple[object, ...]:
    return parent, row.kind, row.name, row.path, row.phase, row.shapes
