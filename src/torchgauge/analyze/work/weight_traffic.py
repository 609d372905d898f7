"""Memory traffic of weights that do not stay in the cache from one call to the next."""

from __future__ import annotations

from torchgauge.records.work.cost import Cost, CostRow

_ITEMSIZE = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "complex64": 8}


def beyond_cache(cost: Cost, cache: int | None) -> dict[int, float]:
    """Return by index of `Cost.rows` the bytes of weights that come from memory in each call.

    An operator's own bytes may fit the cache, and its weights still come from memory: between two
    uses of them the model reads all its other weights. Of W bytes of weights at most `cache` bytes
    survive, so a share of 1 − cache/W comes from memory at least. A layer's own parameters are laid
    to its forward operator with the most bytes, no more than it moves, each layer once however
    often it is called. Empty where the weights fit, or the cache is unknown.
    """
    weights: dict[int, float] = {}
    own = _own_parameters(cost)
    for node, index in _heaviest(cost).items():
        row = cost.rows[index]
        size = own.get(node, 0) * _itemsize(row.dtype)
        if size:
            weights[index] = float(min(size, row.bytes))
    total = sum(weights.values())
    if cache is None or total <= cache:
        return {}
    return {index: size * (1 - cache / total) for index, size in weights.items()}


def _own_parameters(cost: Cost) -> dict[int, int]:
    """Return the elements of each layer's own parameters, at the first of its call paths."""
    below: dict[int, dict[str, int]] = {}
    for node in cost.nodes:
        below.setdefault(node.parent, {})[node.path] = node.parameters or 0
    own: dict[int, int] = {}
    visited_paths: set[str] = set()
    for index, node in enumerate(cost.nodes):
        if node.path not in visited_paths:
            visited_paths.add(node.path)
            own[index] = max(0, (node.parameters or 0) - sum(below.get(index, {}).values()))
    return own


def _heaviest(cost: Cost) -> dict[int, int]:
    """Return for each node the index of its forward row with the most bytes."""
    best: dict[int, int] = {}
    for index, row in enumerate(cost.rows):
        if row.phase == "forward" and row.bytes > _bytes(cost, best.get(row.node)):
            best[row.node] = index
    return best


def _bytes(cost: Cost, index: int | None) -> int:
    row: CostRow | None = None if index is None else cost.rows[index]
    return 0 if row is None else row.bytes


def _itemsize(dtype: str) -> int:
    if dtype.startswith("float8") or dtype in ("int8", "uint8", "qint8", "quint8"):
        return 1
    return _ITEMSIZE.get(dtype, 0)
