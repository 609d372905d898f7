"""Bytes that an operator must move: inputs read once, outputs written once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torchgauge.formulas import onnx_kinds
from torchgauge.formulas.free import STILL
from torchgauge.formulas.operand import elements_of, tensors, touched

Arguments = tuple[Any, ...]
Named = dict[str, Any]
Rule = Callable[[Arguments, Named, Any], int]

# Of a recorded call only these tell what comes out.
PRODUCTS = frozenset(
    f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "convolution", "_convolution")
)
WRITES = frozenset(("aten::copy_", "aten::fill_", "aten::zero_"))


def bytes_of(name: str, args: Arguments, kwargs: Named, outputs: Any) -> int:
    """Return the compulsory traffic of one call in bytes: "aten::add_", its arguments and outputs.

    Every tensor read and every tensor written counts once, by the elements that are touched:
    dimensions of stride 0 once, look-ups by the rows they reach. An operator that works in place
    reads and writes its destination. Views, creation and metadata move nothing. It sees neither
    what a cache keeps nor what a kernel reads twice.
    """
    rule = _RULES.get(name)
    return _moved(args, kwargs, outputs) if rule is None else rule(args, kwargs, outputs)


def _moved(args: Arguments, kwargs: Named, outputs: Any) -> int:
    total = touched(outputs)
    before = None
    for value in args:
        if value is not before:  # x * x reads x once
            total += touched(value)
            before = value
    if kwargs:
        written = outputs if isinstance(outputs, tuple | list) else (outputs,)
        for value in kwargs.values():
            if not any(value is output for output in written):  # out= is written, not read
                total += touched(value)
    return total


def _no_bytes(_args: Arguments, _kwargs: Named, _outputs: Any) -> int:
    return 0


def _overwrites(args: Arguments, kwargs: Named, outputs: Any) -> int:
    """The destination is the first argument, and its old values are not read."""
    written = args[0] if outputs is None or isinstance(outputs, tuple) else outputs
    return _moved(args[1:], kwargs, written)


def _writes(*positions: int) -> Rule:
    """The arguments at these places are read and written, and none comes back as an output."""

    def rule(args: Arguments, kwargs: Named, outputs: Any) -> int:
        written = sum(touched(args[position]) for position in positions if position < len(args))
        already = touched(outputs)  # the functional form returns what it wrote
        return _moved(args, kwargs, outputs) + (0 if already else written)

    return rule


def _gathers(args: Arguments, kwargs: Named, outputs: Any) -> int:
    """As many elements are read from the first argument as come out, at the places named."""
    source = args[0]
    rows = sum(elements_of(output) for output in tensors(outputs)) * source.itemsize
    return int(rows) + _moved(args[1:], kwargs, outputs)


def _looks_up(args: Arguments, kwargs: Named, outputs: Any) -> int:
    """embedding(weight, indices): the rows gathered, the indices, and the output."""
    return (
        touched(args[1]) + 2 * touched(outputs) if len(args) > 1 else _moved(args, kwargs, outputs)
    )


def _some_rows(table: Any, count: int) -> int:
    """Return the bytes of as many rows of a table as are looked up, of a small one its own."""
    return min(touched(table), int(count * table.shape[-1] * table.itemsize))


def _rotates(tables: int, positions: int) -> Rule:
    """RotaryEmbedding: of two tables [positions, d/2] the rows at these positions.

    A single one is the first of a sequence. Without positions the tables are [b, s, d/2].
    """

    def rule(args: Arguments, kwargs: Named, outputs: Any) -> int:
        places = args[positions] if len(args) > positions else None
        if places is None:
            return _moved(args, kwargs, outputs)
        count = elements_of(places)
        count = count if count > 1 else args[0].shape[-2]
        untabled = (*args[:tables], *args[tables + 2 :])
        rows = sum(_some_rows(table, count) for table in args[tables : tables + 2])
        return rows + _moved(untabled, kwargs, outputs)

    return rule


def _attends_rotated(args: Arguments, kwargs: Named, outputs: Any) -> int:
    """GroupQueryAttention: of cos_cache and sin_cache the rows of the queries' positions."""
    count = math.prod(args[0].shape[:2])
    rows = sum(_some_rows(table, count) for table in args[7:9] if table is not None)
    return rows + _moved((*args[:7], *args[9:]), kwargs, outputs)


def _embeds(args: Arguments, kwargs: Named, outputs: Any) -> int:
    """EmbedLayerNormalization(ids, segments, words, positions, segment_rows, ...): rows of each."""
    ids = args[0]
    counts = elements_of(ids), ids.shape[-1], elements_of(ids)
    if len(args) > 8 and args[8] is not None:
        counts = elements_of(ids), elements_of(args[8]), elements_of(ids)
    rows = sum(
        _some_rows(table, count)
        for table, count in zip(args[2:5], counts, strict=False)
        if table is not None
    )
    return rows + _moved((*args[:2], *args[5:]), kwargs, outputs)


def _bags(args: Arguments, kwargs: Named, outputs: Any) -> int:
    """_embedding_bag(weight, indices, offsets, ...): one row for each index."""
    weight, indices = args[0], args[1]
    rows = elements_of(indices) * weight.shape[1] * weight.itemsize
    return int(rows) + _moved(args[1:], kwargs, outputs)


def _scatters(args: Arguments, kwargs: Named, _outputs: Any, *, adds: bool = False) -> int:
    """scatter_(self, dim, index, source): each index is read, and its element written in place."""
    adds = adds or "reduce" in kwargs
    return _placed(args[0], args[2], args[3] if len(args) > 3 else None, adds=adds)


def _scatters_sums(args: Arguments, kwargs: Named, outputs: Any) -> int:
    return _scatters(args, kwargs, outputs, adds=True)


def _puts_flat(args: Arguments, kwargs: Named, _outputs: Any) -> int:
    """put_(self, index, source, accumulate): as scatter_, on the tensor as one row."""
    adds = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    return _placed(args[0], args[1], args[2], adds=bool(adds))


def _placed(destination: Any, indices: Any, source: Any, *, adds: bool) -> int:
    count = elements_of(indices)
    read = count * source.itemsize if touched(source) else 0
    return int(touched(indices) + read + (1 + adds) * count * destination.itemsize)


def _slices(*, adds: bool) -> Rule:
    """op_(self, dim, index, source): each index names a slice of the destination."""

    def rule(args: Arguments, kwargs: Named, _outputs: Any) -> int:
        destination, dim, index = args[0], args[1], args[2]
        length = destination.shape[dim] if len(destination.shape) else 1
        slices = elements_of(index) * elements_of(destination) // max(1, length)
        source = args[3] if len(args) > 3 else kwargs.get("source")
        return touched(index) + touched(source) + int((1 + adds) * slices * destination.itemsize)

    return rule


def _puts(args: Arguments, kwargs: Named, _outputs: Any) -> int:
    """index_put_(self, indices, values, accumulate): the elements that the indices reach."""
    destination, indices, values = args[0], args[1], args[2]
    accumulates = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    reached = _reached(destination, indices, values)
    moved = int((1 + bool(accumulates)) * reached * destination.itemsize)
    return moved + touched(indices) + touched(values)


def _reached(destination: Any, indices: Any, values: Any) -> int:
    """Return how many elements the indices select.

    The content of a mask is not known here: as many as there are values, or all that it covers
    where one value is given for all.
    """
    index_tensors = [index for index in indices if index is not None]
    if any(
        str(index.dtype) in ("torch.bool", "bool", "torch.uint8", "uint8")
        for index in index_tensors
    ):
        count = elements_of(values)
        return count if count > 1 else elements_of(destination)
    unindexed = math.prod(
        size
        for dimension, size in enumerate(destination.shape)
        if dimension >= len(indices) or indices[dimension] is None
    )
    return int(unindexed * math.prod(_broadcast([tuple(index.shape) for index in index_tensors])))


def _broadcast(shapes: list[tuple[int, ...]]) -> list[int]:
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return [0 if 0 in sizes else max(sizes) for sizes in zip(*padded, strict=True)]


def _renormalises(args: Arguments, _kwargs: Named, _outputs: Any) -> int:
    """embedding_renorm_(weight, indices): each row named is read and written."""
    weight, indices = args[0], args[1]
    return touched(indices) + int(2 * elements_of(indices) * weight.shape[1] * weight.itemsize)


def _statistics(*, running: int, training: int | None) -> Rule:
    """Batch normalisation that updates its running statistics when it trains."""

    def rule(args: Arguments, kwargs: Named, outputs: Any) -> int:
        trains = training is None or (args[training] if len(args) > training else False)
        written = args[running : running + 2] if trains else ()
        return _moved(args, kwargs, outputs) + touched(tuple(written))

    return rule


def _named(names: str, rule: Rule) -> dict[str, Rule]:
    return {f"aten::{name}": rule for name in names.split()}


_RULES: dict[str, Rule] = {
    **dict.fromkeys(STILL, _no_bytes),
    **{f"{name}_": _no_bytes for name in STILL},
    **_named(
        "copy copy_ fill fill_ zero zero_ _foreach_copy _foreach_copy_ _foreach_zero "
        "_foreach_zero_ normal_ normal_functional uniform uniform_ exponential exponential_ "
        "cauchy cauchy_ log_normal log_normal_ geometric geometric_ random random_ bernoulli_ "
        "_philox_normal _philox_normal_ _philox_uniform _philox_uniform_ "
        "_fill_mem_eff_dropout_mask_ copy_sparse_to_sparse_",
        _overwrites,
    ),
    **_named(
        "index index_select gather take masked_select _unsafe_index _unsafe_masked_index", _gathers
    ),
    **dict.fromkeys(onnx_kinds.STILL | onnx_kinds.CONTAINERS, _no_bytes),
    **dict.fromkeys(onnx_kinds.GATHERING, _gathers),
    "onnx::RotaryEmbedding": _rotates(1, 3),
    "com.microsoft::RotaryEmbedding": _rotates(2, 1),
    "com.microsoft::GroupQueryAttention": _attends_rotated,
    "com.microsoft::EmbedLayerNormalization": _embeds,
    **_named("embedding", _looks_up),
    **_named("_embedding_bag _embedding_bag_forward_only", _bags),
    **_named("embedding_renorm_", _renormalises),
    **_named("scatter_", _scatters),
    **_named("scatter_add_ scatter_reduce_", _scatters_sums),
    **_named("put_", _puts_flat),
    **_named("index_copy_ index_fill_", _slices(adds=False)),
    **_named("index_add_ index_reduce_", _slices(adds=True)),
    **_named("index_put_ _index_put_impl_", _puts),
    **_named("native_batch_norm _native_batch_norm_legit", _statistics(running=3, training=5)),
    **_named("cudnn_batch_norm miopen_batch_norm", _statistics(running=3, training=5)),
    **_named("_batch_norm_with_update", _statistics(running=3, training=None)),
    **_named("_cummax_helper _cummin_helper", lambda args, _kwargs, _outputs: touched(args[:3])),
    **_named("_fused_adam_ _fused_adamw_", _writes(0, 2, 3, 4)),
    **_named("_fused_sgd_ _fused_adagrad_", _writes(0, 2)),
    **_named("_amp_foreach_non_finite_check_and_unscale_", _writes(0, 1)),
}

_LISTS = (
    "abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min cos cosh div erf erfc exp "
    "expm1 floor frac lerp lgamma log log10 log1p log2 maximum minimum mul neg pow reciprocal "
    "round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc"
)
_RULES |= {f"aten::_foreach_{name}_": _writes(0) for name in _LISTS.split()}
