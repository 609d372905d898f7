"""What operators save for the backward pass, and what kernels of libraries take meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

# Operators whose derivative uses what they return, by torch 2.13's list of derivatives.
_SAVING = """
    _batch_norm_no_update _batch_norm_with_update _cdist_forward _ctc_loss
    _cudnn_attention_forward _cudnn_ctc_loss _cudnn_rnn _efficient_attention_forward
    _embedding_bag _euclidean_dist _flash_attention_forward _fused_dropout _fused_rms_norm
    _linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd _log_softmax
    _masked_softmax _native_batch_norm_legit _native_batch_norm_legit_no_training
    _pack_padded_sequence _pdist_forward _safe_softmax _scaled_dot_product_cudnn_attention
    _scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_fused_attention_overrideable
    _softmax _standard_gamma _thnn_fused_gru_cell _thnn_fused_lstm_cell _weight_norm_interface
    adaptive_max_pool2d adaptive_max_pool3d amax amin aminmax cholesky_inverse cholesky_solve
    copysign cudnn_batch_norm cummax cummin cumprod dist exp exp2 expm1 fractional_max_pool2d
    fractional_max_pool3d frexp hypot index_reduce kthvalue ldexp linalg_cholesky_ex linalg_eig
    linalg_householder_product linalg_inv_ex linalg_lstsq linalg_lu linalg_lu_factor_ex
    linalg_lu_solve linalg_pinv linalg_qr linalg_solve_triangular linalg_vector_norm
    log_sigmoid_forward logcumsumexp logsumexp max max_pool2d_with_indices
    max_pool3d_with_indices median min miopen_batch_norm miopen_rnn mkldnn_max_pool2d
    mkldnn_max_pool3d mkldnn_rnn_layer mode multilabel_margin_loss_forward nanmedian
    native_batch_norm native_dropout native_group_norm native_layer_norm nll_loss2d_forward
    nll_loss_forward norm ormqr polar prod reciprocal relu rsqrt scatter_reduce segment_reduce
    sgn sigmoid sort special_erfcx special_i0e special_i1 special_i1e special_log_ndtr
    special_ndtri sqrt std std_mean tan tanh topk triangular_solve
"""
_SAVES_RESULT = frozenset(f"aten::{name}" for name in _SAVING.split())


def saves_result(name: str) -> bool:
    """Return whether an operator, "aten::add_.Tensor", keeps what it returns for its derivative."""
    return name.partition(".")[0].removesuffix("_") in _SAVES_RESULT


Arguments = tuple[Any, ...]
Rule = Callable[[Arguments, int], int]

_BLOCK = 16  # channels of oneDNN's blocked layout for 512-bit vectors
_FLOAT = 4  # bytes
_SHORT, _LONGEST = 3, 15  # kernels of oneDNN's own: of one channel with channels last, of any
_LSTM = 2  # the mode of mkldnn_rnn_layer whose sizes are known


def lstm_sizes(name: str, args: Arguments) -> tuple[int | None, ...]:
    """Return what an LSTM's outputs really take, in bytes; fake kernels tell otherwise."""
    if name == "aten::mkldnn_rnn_layer" and _is_lstm(args, 9):
        return None, None, None, _reserve(args[0], args[2])
    if name == "aten::mkldnn_rnn_layer_backward" and _is_lstm(args, 14):
        x, weight, recurrent, bias, _, hidden = args[:6]  # all gradients come in float32
        operands = (x, weight, recurrent, bias, bias, hidden, hidden)
        return tuple(
            None if operand is None else _FLOAT * math.prod(operand.shape) for operand in operands
        )
    return ()


def _convolution(args: Arguments, _threads: int) -> int:
    """convolution(x, w, …): blocked copies of x, w and y, then y itself beside its copy."""
    x, weight, _, stride, padding, dilation, transposed, added, groups = args
    if _plain(x, weight, stride, padding, groups, transposed):
        return 0
    if _channels_last(x) or _channels_last(weight):
        return 2 * _weight(weight)
    outputs = _spatial(x, weight, stride, padding, dilation, transposed, added)
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    y = _bytes((x.shape[0], channels, *outputs), x.itemsize)
    if transposed:  # the product, its plain copy, the sum with the bias
        return 2 * y
    copied = _blocked(x.shape[0], channels, outputs, x.itemsize)
    working = _input_copy(x) + _weight(weight) + copied - y
    return int(max(working, copied))


def _convolution_backward(args: Arguments, threads: int) -> int:
    """convolution_backward(dy, x, w, …): first dx from copies of dy and w, then dw beside it."""
    dy, x, weight, _, stride, padding, _, transposed, _, groups, mask = args
    if _plain(x, weight, stride, padding, groups, transposed):
        return 0
    weights = _weight(weight)
    if max(weight.shape[2:]) > _LONGEST:  # products of matrices, dw of several images at once
        return 4 * threads * _bytes(weight.shape, _FLOAT)
    if _channels_last(x) or _channels_last(weight):
        mixed = 0 if _channels_last(dy) else _bytes(dy.shape, dy.itemsize)
        return mixed + _channels_last_copies(weight, groups)
    gradient, inputs = _copy(dy), _input_copy(x)
    dx = _bytes(x.shape, x.itemsize) if mask[0] else 0
    weight_bytes = inputs + gradient + weights
    if x.itemsize < _FLOAT:  # each thread turns an image around; sums are in float32
        images = min(threads, x.shape[0]) / max(x.shape[0], 1)
        weight_bytes += int(images * (inputs + gradient)) + 2 * weights
    blocked = _copy(x)
    input_bytes = max(gradient + weights + blocked, blocked + dx) if mask[0] else 0
    return max(input_bytes, dx + max(weight_bytes, 2 * weights)) - dx - weights


def _channels_last_copies(weight: Any, groups: int) -> int:
    """Copies of w and dw; the groups of one channel are filled up to blocks where w is large."""
    weights = _weight(weight)
    half = weight.itemsize < _FLOAT
    if groups > 1 and weight.shape[1] == 1 and max(weight.shape[2:]) > _SHORT:
        filled = math.prod(weight.shape) * _BLOCK**2
        return int(filled * (_FLOAT + weight.itemsize if half else _FLOAT))
    return (5 if half else 3) * weights


def _plain(x: Any, weight: Any, stride: Any, padding: Any, groups: int, transposed: bool) -> bool:
    """Whether it is one product of matrices, which needs no copies."""
    ones = all(n == 1 for n in (*weight.shape[2:], *stride)) and not any(padding)
    return ones and groups == 1 and not transposed and x.itemsize == _FLOAT


def _spatial(
    x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, added: Any
) -> tuple[int, ...]:
    output_sizes = []
    for axis, size in enumerate(x.shape[2:]):
        step, pad = stride[axis % len(stride)], padding[axis % len(padding)]
        reach = dilation[axis % len(dilation)] * (weight.shape[2 + axis] - 1)
        if transposed:
            output_sizes.append((size - 1) * step - 2 * pad + reach + added[axis % len(added)] + 1)
        else:
            output_sizes.append((size + 2 * pad - reach - 1) // step + 1)
    return tuple(output_sizes)


def _channels_last(x: Any) -> bool:
    return bool(x.shape[1] > 1 and x.stride()[1] == 1 and math.prod(x.shape[2:]) > 1)


def _input_copy(x: Any) -> int:
    """A blocked copy; images of a few channels are read as they are."""
    return 0 if x.shape[1] < _BLOCK else _copy(x)


def _copy(x: Any) -> int:
    return _blocked(x.shape[0], x.shape[1], x.shape[2:], x.itemsize)


def _blocked(batch: int, channels: int, spatial: Any, itemsize: int) -> int:
    padded = channels if channels < _BLOCK else -(-channels // _BLOCK) * _BLOCK
    return _bytes((batch, padded, *spatial), itemsize)


def _weight(weight: Any) -> int:
    return _bytes(weight.shape, weight.itemsize)


def _bytes(shape: Any, itemsize: int) -> int:
    return int(math.prod(shape) * itemsize)


def _lstm(args: Arguments, _threads: int) -> int:
    """mkldnn_rnn_layer: copies of both weights, and in float32 the gates of every step."""
    x, weight, recurrent = args[:3]
    weights = _weight(weight) + _weight(recurrent)
    steps = x.shape[0] if x.itemsize == _FLOAT else 1
    return weights + _bytes((steps, x.shape[1], recurrent.shape[0]), _FLOAT)


def _lstm_backward(args: Arguments, _threads: int) -> int:
    """mkldnn_rnn_layer_backward: copies of weights and of their gradients, the gates' gradients."""
    x, weight, recurrent = args[:3]
    weights = _weight(weight) + _weight(recurrent)
    copies = 2 if x.itemsize == _FLOAT else 3  # float32 gradients of half-precision weights
    gates = _bytes((*x.shape[:2], recurrent.shape[0]), x.itemsize)
    return copies * weights + gates


def _reserve(x: Any, recurrent: Any) -> int:
    """Return oneDNN's workspace of one LSTM layer in training, in bytes.

    Of every step the four gates and a cell; before and after each step the states of layer and
    iteration and the cell, in float32 the gradients of each.
    """
    steps, batch, width = x.shape
    hidden = recurrent.shape[1]
    size = x.itemsize
    widest = _padded(max(width, hidden), size)
    gradients = 2 * _padded(max(width, hidden), _FLOAT) * _FLOAT
    states = (widest + _padded(hidden, size)) * size + hidden * _FLOAT
    step_bytes = _padded(4 * hidden, size) * size + hidden * size
    return int(batch * (steps * step_bytes + 2 * (steps + 1) * (states + gradients)))


def _padded(width: int, itemsize: int) -> int:
    """Return a row of oneDNN's: whole cache lines, and one more where rows would share sets."""
    line = 64 // itemsize
    rounded = -(-width // line) * line
    return rounded + line if rounded % 256 == 0 else rounded


def _deformable(args: Arguments, _threads: int) -> int:
    """deform_conv2d(x, w, offsets, …): columns of some images, then the output and its copy."""
    x, weight, offsets = args[:3]
    columns = _columns(x, weight, offsets)
    outputs = _bytes((x.shape[0], weight.shape[0], *offsets.shape[2:]), x.itemsize)
    return columns + 2 * outputs


def _deformable_backward(args: Arguments, _threads: int) -> int:
    """_deform_conv2d_backward(dy, x, w, offsets, …): columns, and copies of dy and of w twice."""
    gradient, x, weight, offsets = args[:4]
    copied = _bytes(gradient.shape, gradient.itemsize) + 2 * _weight(weight)
    return _columns(x, weight, offsets) + copied


def _columns(x: Any, weight: Any, offsets: Any) -> int:
    """Return the bytes of what torchvision unfolds at a time: 32 images, or a divisor below."""
    images = max(count for count in range(1, 33) if not x.shape[0] % count)
    kernel = math.prod(weight.shape[2:])
    return _bytes((images, x.shape[1] * kernel, *offsets.shape[2:]), x.itemsize)


def _is_lstm(args: Arguments, mode: int) -> bool:
    return len(args) > mode and args[mode] == _LSTM


LIBRARY_KERNELS: dict[str, Rule] = {
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "torchvision::deform_conv2d": _deformable,
    "torchvision::_deform_conv2d_backward": _deformable_backward,
    "aten::mkldnn_rnn_layer": _lstm,
    "aten::mkldnn_rnn_layer_backward": _lstm_backward,
}
