"""What CPU kernels hold beside inputs and outputs, and which hold an unknown amount.

Found by the allocator's reports over the operators of torch's tests, forward and backward: what is
neither here nor in `saved.LIBRARY_KERNELS` holds nothing more.
"""

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.saved import LIBRARY_KERNELS, Arguments, lstm_sizes


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_UNKNOWN = _words(
    """_chunk_cat _ctc_loss_backward
    _embedding_bag_per_sample_weights_backward _euclidean_dist _fft_c2r _linalg_eigh
    _linalg_svd _trilinear _unique2 _unsafe_masked_index _unsafe_masked_index_put_accumulate
    _upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward col2im dist im2col index_reduce
    kthvalue linalg_eig linalg_inv_ex linalg_lstsq linalg_matrix_exp linalg_pinv
    linalg_solve_triangular lu_unpack masked_scatter_backward median multinomial mvlgamma
    nanmedian sort"""
)
# Elementwise kernels copy operands of other types in the common one, sums theirs in the result's.
_CASTING = _words(
    """add atan2 clamp div eq fmod ge gt hypot ldexp le lerp lt maximum minimum mul ne pow
    remainder rsub sub xlogy"""
)
_SUMS = _words("cumprod cumsum mean prod sum")
# Those read memory in order, and copy what is not; of products neither rows nor columns may be.
_IN_ORDER = _words(
    """_adaptive_avg_pool3d_backward _fft_c2c _fft_r2c _softmax_backward_data
    embedding_dense_backward grid_sampler_2d_backward index_select masked_scatter roll
    upsample_bilinear2d_backward upsample_nearest3d_backward upsample_trilinear3d_backward"""
)
_PRODUCTS = _words("addmm baddbmm bmm mm")
# Copies of the operand; of losses, where they are reduced. The latter reduce in what they return.
_COPIES = {
    "isinf": 1, "native_dropout": 1, "native_dropout_backward": 1, "huber_loss": 1, "mse_loss": 1,
    "smooth_l1_loss": 1, "logsumexp": 1, "binary_cross_entropy_with_logits": 2,
}  # fmt: skip
_RESIZED = _words("binary_cross_entropy mse_loss smooth_l1_loss soft_margin_loss")
_POINTS = {"upsample_linear1d": 2, "upsample_bilinear2d": 2, "upsample_bicubic2d": 4}
_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
_FLOAT, _BLOCK, _VOLUME = 4, 16, 5  # bytes; channels of oneDNN's layouts; dimensions


def is_unknown(name: str, args: Arguments) -> bool:
    """Return whether a call, of "aten::sort", holds an unknown amount beside what it returns.

    So do volumes whose channels are filled up to blocks, and writes where a mask says.
    """
    short = name.removeprefix("aten::").removesuffix("_")
    if short in ("convolution", "convolution_backward"):
        x, weight = args[:2] if short == "convolution" else args[1:3]
        channels = x.shape[1], weight.shape[0]
        return len(x.shape) == _VOLUME and any(number % _BLOCK for number in channels)
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
    if short in _CASTING:
        return _cast(operands)
    if short in _SUMS and outputs.dtype != args[0].dtype:
        return _elements(args[0]) * int(outputs.itemsize)
    if short in _IN_ORDER:
        return sum(_bytes(x) for x in operands if not (x.is_contiguous() or _is_nhwc(x)))
    if short in _PRODUCTS:
        return sum(_bytes(x) for x in operands if 1 not in (*x.shape[-2:], *x.stride()[-2:]))
    if short in _COPIES and not getattr(outputs, "shape", ()) * ("loss" in short):
        return _COPIES[short] * max(map(_bytes, operands))
    if short in (_ATTENTION, f"{_ATTENTION}_backward"):
        return _attention(args, threads, backward=short != _ATTENTION)
    if short in _POINTS and not _is_nhwc(args[0]):  # of each row and column, positions and weights
        return int(sum(args[1]) * _POINTS[short] * (8 + args[0].itemsize))
    return _bytes(args[0]) if short == "abs" and args[0].dtype.is_complex else 0


def sizes(name: str, args: Arguments, outputs: Any) -> tuple[int | None, ...]:
    """Return what a call's outputs really take, in bytes, where fake kernels tell otherwise."""
    if name.removeprefix("aten::") in _RESIZED and not outputs.shape:
        return (max(map(_bytes, args[:2])),)
    return lstm_sizes(name, args)


def _cast(operands: list[Any]) -> int:
    def rank(operand: Any) -> tuple[bool, bool, int]:
        return operand.dtype.is_complex, operand.dtype.is_floating_point, operand.itemsize

    if not operands:
        return 0
    common = max(operands, key=rank)
    cast_operands = [operand for operand in operands if operand.dtype != common.dtype]
    return sum(_elements(operand) * int(common.itemsize) for operand in cast_operands)


def _attention(args: Arguments, threads: int, *, backward: bool) -> int:
    """Of each thread blocks of scores, and forward sums, maxima and outputs, in float32.

    Backward, a copy of dy that has another order of dimensions than torch's own outputs. In half
    precision the scores in that as well, and forward keys and values in another order.
    """
    query, key = args[backward : 2 + backward]
    length, width = query.shape[-2:]
    rows = min(256 if length >= 768 else 64 if length >= 192 else 32, length)
    columns = min(512, key.shape[-2])
    half = query.itemsize if query.itemsize < _FLOAT else 0
    scores = rows * columns * (_FLOAT + half)
    if backward:
        copied = _bytes(args[0]) if not args[0].transpose(1, 2).is_contiguous() else 0
        return int(2 * threads * scores) + copied
    blocks = scores + rows * (2 + width) * _FLOAT + columns * width * half
    return int(threads * blocks) + (2 * _bytes(key) if half else 0)


def _is_nhwc(x: Any) -> bool:
    return bool(len(x.shape) > 3 and x.shape[1] > 1 and x.stride()[1] == 1)


def _bytes(x: Any) -> int:
    return _elements(x) * int(x.itemsize)


def _elements(x: Any) -> int:
    return math.prod(x.shape)
