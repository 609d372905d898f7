"""What CPU kernels hold beside inputs and outputs, and which hold an unknown amount.

Found by the allocator's reports over the operators of torch's tests, forward and backward: what is
neither here nor in `saved.LIBRARY_KERNELS` holds nothing more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from torchgauge.formulas.operand import tensors
from torchgauge.formulas.saved import LIBRARY_KERNELS, Arguments, is_unknown_convolution, lstm_sizes


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_UNKNOWN = _words(
    """_chunk_cat _ctc_loss_backward
    _embedding_bag_per_sample_weights_backward _euclidean_dist _fft_c2r _linalg_eigh
    _linalg_svd _trilinear _unique2 _unsafe_masked_index _unsafe_masked_index_put_accumulate
    _upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward allclose cholesky_solve col2im dist
    im2col index_reduce kthvalue ldexp linalg_eig linalg_inv_ex linalg_ldl_factor_ex linalg_lstsq
    linalg_lu linalg_matrix_exp linalg_pinv linalg_solve_triangular lu_unpack
    masked_scatter_backward masked_select median multinomial mvlgamma nanmedian nonzero_static
    renorm soft_margin_loss_backward sort t_copy transpose_copy unique_consecutive"""
)
# Those copy an operand; losses where they are reduced, in what they return or beside it.
_COPIES = _words(
    """binary_cross_entropy_with_logits huber_loss isinf logsumexp mse_loss native_dropout
    native_dropout_backward smooth_l1_loss"""
)
_RESIZED = _words("binary_cross_entropy mse_loss smooth_l1_loss soft_margin_loss")
_POINTS = {"upsample_linear1d": 2, "upsample_bilinear2d": 2, "upsample_bicubic2d": 4}
_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
_FLOAT, _INT64 = 4, 8  # bytes
_PRODUCTS = "addmm addmv baddbmm bmm mm mv"
_BY_ONEDNN = _words(
    f"""{_PRODUCTS} {_ATTENTION} {_ATTENTION}_backward convolution convolution_backward
    mkldnn_rnn_layer mkldnn_rnn_layer_backward"""
)
_MAX_BAG = 2  # the mode of embedding bags that take the largest


def is_unknown(name: str, args: Arguments) -> bool:
    """Return whether a call, of "aten::sort", holds an unknown amount beside what it returns.

    So do some convolutions, writes where a mask says, and what oneDNN does in half precision: it
    orders operands by other rules on each kind of CPU.
    """
    short = name.removeprefix("aten::").removesuffix("_")
    if short in _BY_ONEDNN and any(map(_single, tensors(args))):
        return True
    if short in ("convolution", "convolution_backward"):
        return is_unknown_convolution(args, backward=short != "convolution")
    if short == "scatter_reduce":
        return bool(args[4] == "mean")
    if short == "_embedding_bag_backward":
        return bool(args[9])  # sparse
    if short == "index_put":
        return any(index is not None and index.itemsize == 1 for index in args[1])
    return short in _UNKNOWN


def scratch(name: str, args: Arguments, threads: int = 1, outputs: Any = None) -> int:
    """Return the most bytes that a call holds beyond inputs and outputs; 0 where none is known.

    `name` is "aten::convolution". Sizes are those of a CPU with 512-bit vectors, as measured; other
    machines' kernels take other layouts.
    """
    if name in LIBRARY_KERNELS:
        return LIBRARY_KERNELS[name](args, threads)
    short = name.removeprefix("aten::").removesuffix("_")
    operands = [value for value in args if getattr(value, "shape", ())]
    return _RULES[short](_Call(short, args, operands, threads, outputs)) if short in _RULES else 0


def sizes(name: str, args: Arguments, outputs: Any) -> tuple[int | None, ...]:
    """Return what a call's outputs really take, in bytes, where fake kernels tell otherwise."""
    if name.removeprefix("aten::") in _RESIZED and not outputs.shape:
        return (max(map(_bytes, args[:2])),)
    return lstm_sizes(name, args)


class _Call(NamedTuple):
    """A call of an operator, by its name without namespace; operands have dimensions."""

    name: str
    args: Arguments
    operands: list[Any]
    threads: int
    outputs: Any


def _cast(call: _Call) -> int:
    """Return the bytes of copies in the common type, to which numbers add no size of their own."""

    def rank(x: Any) -> tuple[bool, bool, bool, int]:
        return x.dtype.is_complex, x.dtype.is_floating_point, bool(x.shape), x.itemsize

    operands = [value for value in call.args if hasattr(value, "shape")]
    common = max(operands, key=rank)
    copied = (x for x in operands if x.shape and x.dtype != common.dtype)
    return sum(_elements(x) * int(common.itemsize) for x in copied)


def _sum(call: _Call) -> int:
    """Return the bytes of a copy in the type of the result, of half precision in float32.

    Means are of such a copy, and sums over dimensions that are apart in memory.
    """
    x, dims = call.args[0], call.args[1] if len(call.args) > 1 else None
    if call.outputs.dtype != x.dtype:
        return 0 if x.dtype.is_complex else _elements(x) * int(call.outputs.itemsize)
    is_copied = call.name == "mean" or (call.name == "sum" and _runs(x, dims) > 1)
    return _single(x) + _single(call.outputs) if is_copied else 0


def _runs(x: Any, dims: Any) -> int:
    """Return how many loops a sum over dimensions takes, those that follow in memory as one."""
    chosen = {dim % len(x.shape) for dim in dims} if dims and x.shape else range(len(x.shape))
    loops = sorted((int(x.stride()[dim]), int(x.shape[dim])) for dim in chosen if x.shape[dim] > 1)
    return len(loops) - sum(a * n == b for (a, n), (b, _) in itertools.pairwise(loops))


def _single(x: Any) -> int:
    """Return the bytes of a float32 copy of what is in half precision."""
    half = x.dtype.is_floating_point and x.itemsize < _FLOAT
    return _elements(x) * _FLOAT if half else 0


def _reorder(call: _Call) -> int:
    """Return the bytes of copies of what is not in order."""
    return sum(_bytes(x) for x in call.operands if not (x.is_contiguous() or _is_nhwc(x)))


def _product(call: _Call) -> int:
    """Return the bytes of copies in order."""
    first, second = call.operands[-2:]
    is_empty = not (_elements(first) and _elements(second))
    return 0 if is_empty else _reordered(first) + _reordered(second)


def _reordered(x: Any) -> int:
    """Return the bytes of a copy of a matrix whose rows or columns do not follow in memory.

    Of a batch it is one matrix at a time.
    """
    if len(x.shape) < 2:
        return 0
    (rows, columns), (down, across) = x.shape[-2:], x.stride()[-2:]
    is_ordered = (down == 1 and across >= rows) or (across == 1 and down >= columns)
    return 0 if is_ordered else int(rows * columns * x.itemsize)


def _index(call: _Call) -> int:
    """Return the bytes of indices in int64, and of a float32 copy of what is written to."""
    copied = sum(_elements(x) * _INT64 for x in call.operands[1:2] if x.itemsize < _INT64)
    return copied + (0 if call.name == "gather" else _single(call.args[0]))


def _copies(call: _Call) -> int:
    """Return the bytes of an operand's copies; a mean in half precision is of floats."""
    name, size = call.name, max(map(_bytes, call.operands), default=0)
    is_loss, maps = "loss" in name or "entropy" in name, name.endswith("logits")
    if is_loss and call.outputs.shape:
        return size * maps
    reduction = next((value for value in call.args if isinstance(value, int)), 1)
    floats = max(map(_single, call.operands), default=0) if is_loss and reduction == 1 else 0
    return size * (maps + (name in _COPIES)) + floats


def _roll(call: _Call) -> int:
    """Each dimension but the last is rolled on its own; without dimensions x is in order."""
    if len(call.args) > 2 and call.args[2]:
        return (len(call.args[2]) - 1) * _bytes(call.args[0])
    return _reorder(call)


def _triangle(call: _Call) -> int:
    """A batch of matrices that do not follow each other is copied."""
    x = call.args[0]
    in_order = [math.prod(x.shape[dim + 1 :]) for dim in range(len(x.shape) - 2)]
    return 0 if list(x.stride()[:-2]) == in_order else _bytes(x)


def _fourier(call: _Call) -> int:
    """MKL takes one batch: it is copied where its dimensions do not follow in memory."""
    x = call.args[0]
    transformed = {dim % len(x.shape) for dim in call.args[1]}
    batch = [dim for dim in range(len(x.shape)) if dim not in transformed and x.shape[dim] > 1]
    return _bytes(x) if (batch and _runs(x, batch) > 1) or 0 in x.stride() else 0


def _batch_norm_backward(call: _Call) -> int:
    """One more gradient where both are in the same order; else of half precision a float copy."""
    gradient, x = call.args[:2]
    if gradient.stride() == x.stride() and (x.is_contiguous() or _is_nhwc(x)):
        return _bytes(x)
    return _single(gradient) if all(gradient.stride()) else 0


def _bag(call: _Call) -> int:
    """_embedding_bag(w, indices, …): the bag of each index is found before the last outputs are."""
    _, bags, counts, largest = call.outputs
    if not _elements(bags):
        return sum(_single(weights) for weights in call.args[6:7] if weights is not None)
    return max(_INT64 * (_elements(bags) + 1) - _bytes(counts) - _bytes(largest), 0)


def _bag_backward(call: _Call) -> int:
    """_embedding_bag_backward(dy, indices, …): indices are sorted, and the bag of each is found."""
    gradient, indices, _, bags, *_, mode, _, weights = call.args[:11]
    ordered = 0 if gradient.is_contiguous() else _bytes(gradient)
    if mode == _MAX_BAG:
        rows = gradient.shape[0]
        return int(ordered + _elements(gradient) * (_INT64 + gradient.itemsize) + rows * _INT64)
    index_bytes = 3 * _INT64 if _elements(bags) else 4 * _INT64
    index_bytes += 0 if weights is None else weights.itemsize
    return ordered + int(_elements(indices) * index_bytes)


def _norm(call: _Call) -> int:
    """Sums of each channel, batch and channel, or thread and element, twice and in float32."""
    if call.name == "native_batch_norm":
        number = call.args[0].shape[1]
    elif call.name == "native_layer_norm_backward":
        number = call.threads * math.prod(call.args[2])
    else:
        number = math.prod(call.args[5:7])
    return 2 * int(number * max(call.operands[0].itemsize, _FLOAT))


def _points(call: _Call) -> int:
    """Of each row and column positions and weights."""
    x, spatial = call.args[:2]
    return 0 if _is_nhwc(x) else int(sum(spatial) * _POINTS[call.name] * (_INT64 + x.itemsize))


def _attention(call: _Call) -> int:
    """Of each thread blocks of scores, and forward sums, maxima and outputs, in float32.

    Backward a sum of each row, and a copy of dy that has another order of dimensions than torch's
    own outputs.
    """
    args, backward = call.args, call.name != _ATTENTION
    query, key = args[backward : 2 + backward]
    length, width = query.shape[-2:]
    rows = min(256 if length >= 768 else 64 if length >= 192 else 32, length)
    columns = min(512, key.shape[-2])
    scores = rows * columns * _FLOAT
    if backward:
        copied = _bytes(args[0]) if not args[0].transpose(1, 2).is_contiguous() else 0
        return int(call.threads * (2 * scores + rows * _FLOAT)) + copied
    return int(call.threads * (scores + rows * (2 + width) * _FLOAT))


def _is_nhwc(x: Any) -> bool:
    return bool(len(x.shape) > 3 and x.shape[1] > 1 and x.stride()[1] == 1)


def _bytes(x: Any) -> int:
    return _elements(x) * int(x.itemsize)


def _elements(x: Any) -> int:
    return math.prod(x.shape)


_BY_RULE: dict[Callable[[_Call], int], str] = {
    _cast: """add atan2 clamp div eq fmod ge gt hypot le lerp lt maximum minimum mul ne pow
        remainder rsub sub xlogy""",
    _sum: "cumprod cumsum linalg_vector_norm mean prod sum",
    _reorder: """_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward
        _log_softmax_backward_data _segment_reduce_backward _softmax_backward_data
        _upsample_nearest_exact3d_backward channel_shuffle embedding_dense_backward
        grid_sampler_2d_backward index_select masked_scatter reflection_pad3d_backward
        replication_pad3d_backward upsample_bilinear2d_backward upsample_nearest3d_backward
        upsample_trilinear3d_backward""",
    _product: _PRODUCTS,
    _index: "gather scatter scatter_add",
    _copies: "binary_cross_entropy soft_margin_loss " + " ".join(_COPIES),
    _points: " ".join(_POINTS),
    _attention: f"{_ATTENTION} {_ATTENTION}_backward",
    _bag: "_embedding_bag",
    _bag_backward: "_embedding_bag_backward",
    _batch_norm_backward: "batch_norm_backward native_batch_norm_backward",
    _fourier: "_fft_c2c _fft_r2c",
    _norm: "native_batch_norm native_group_norm_backward native_layer_norm_backward",
    _roll: "roll",
    _triangle: "tril triu",
    lambda call: _bytes(call.args[0]) if call.args[0].dtype.is_complex else 0: "abs",
}
_RULES = {name: rule for rule, names in _BY_RULE.items() for name in names.split()}
