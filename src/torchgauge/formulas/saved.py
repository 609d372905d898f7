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
_FIRST, _VOLUME, _SMALL = 3, 5, 20480  # channels; dimensions; elements of an image
_PAGE = 4096  # bytes
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


def _convolution(args: Arguments, threads: int) -> int:
    """convolution(x, w, …): blocked copies of x, w and y, then y itself beside its copy."""
    x, weight, _, stride, padding, dilation, transposed, added, groups = args
    if _is_product(x, weight, stride, padding, groups, transposed, threads):
        return 0
    outputs = _spatial(x, weight, stride, padding, dilation, transposed, added)
    if _unfolds(x, weight, groups):
        return _unfolded(x, weight, outputs)
    if _channels_last(x) or _channels_last(weight):
        filled = _bytes((_filled(weight.shape[0]), *weight.shape[1:]), x.itemsize)
        return filled if groups > 1 else _weight(weight) + filled + (threads + 1) * _PAGE
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    y = _bytes((x.shape[0], channels, *outputs), x.itemsize)
    copied = _bytes((x.shape[0], _filled(channels), *outputs), x.itemsize)
    working = _input_copy(x, weight, groups) + _weight_copy(weight, groups) + copied - y
    working += threads * _unit_scratch(x, weight, stride, outputs)
    # Transposed: the product, its plain copy, the sum with the bias.
    return max(working, 2 * y if transposed else copied)


def _convolution_backward(args: Arguments, threads: int) -> int:
    """convolution_backward(dy, x, w, …): dy in order, then what its kernel takes."""
    dy, x = args[:2]
    is_read = dy.is_contiguous() or _channels_last(x) or _channels_last(args[2])
    return _gradients(args, threads) + (0 if is_read else _bytes(dy.shape, dy.itemsize))


def _gradients(args: Arguments, threads: int) -> int:
    """First dx from copies of dy and w, then dw beside it."""
    dy, x, weight, _, stride, padding, _, transposed, _, groups, mask = args
    if _is_product(x, weight, stride, padding, groups, transposed, threads):
        return _bytes(x.shape, x.itemsize) if len(x.shape) == _VOLUME else 0
    if _unfolds(x, weight, groups):
        return _unfolded(x, weight, dy.shape[2:])
    weights = _weight(weight)
    if max(weight.shape[2:]) > _LONGEST:  # products of matrices, dw of several images at once
        return 4 * threads * _bytes(weight.shape, _FLOAT)
    if _channels_last(x) or _channels_last(weight):
        mixed = 0 if _channels_last(dy) else _bytes(dy.shape, dy.itemsize)
        return mixed + _channels_last_copies(weight, groups)
    gradient, blocked, kernel = _copy(dy), _copy(x), max(weight.shape[2:])
    dx = _bytes(x.shape, x.itemsize) if mask[0] else 0
    filled = _weight_copy(weight, groups)
    weight_bytes = _input_copy(x, weight, groups) + gradient + filled
    unfolded = math.prod((*weight.shape[1:], *dy.shape[2:]))
    if groups > 1 and weight.shape[1] == 1:
        if kernel > _SHORT:  # each thread unfolds an image
            weight_bytes = weights + threads * (unfolded * _FLOAT + 4 * weights)
    elif groups == 1 and _FIRST < x.shape[1] < _BLOCK and kernel > 1:  # in blocks of 8 channels
        weight_bytes = _copy(x, _BLOCK // 2) + _copy(dy, _BLOCK // 2) + filled
    working = gradient + blocked + _weight_copy(weight, groups, _BLOCK)
    working += threads * _unit_scratch(x, weight, stride, dy.shape[2:])
    is_strided = max(stride) > 1 and groups == 1
    # After it dx and its plain copy, at a stride one more.
    input_bytes = max(working, 3 * dx if is_strided else blocked + dx)
    return int(max(mask[0] * input_bytes, dx + max(weight_bytes, 2 * weights)) - dx - weights)


def is_unknown_convolution(args: Arguments, *, backward: bool) -> bool:
    """Return whether the kernel of a convolution, of oneDNN or torch, holds an unknown amount."""
    x, weight, _, stride, _, dilation, transposed, added, groups = args[1:-1] if backward else args
    inputs, outputs, kernel = x.shape[1], weight.shape[0], weight.shape[2:]
    is_volume = len(x.shape) == _VOLUME
    if transposed:
        is_cut = kernel[0] % stride[0] > 0 and not any(added)
        steps = is_cut or min(stride) == 1
        plain = _channels_last(x) or _unfolds(x, weight, groups)
        return bool(steps or plain or groups > 1 or weight.shape[1] < _BLOCK)
    if _channels_last(x) and is_volume:
        return True
    if _unfolds(x, weight, groups):
        return bool(groups > 1 or max(dilation) > 1)
    if groups == 1:
        if max(kernel) == 1:
            return is_volume and inputs < _BLOCK
        is_strided, has_few_channels = max(stride) > 1, inputs < _BLOCK
        is_other = (is_volume and is_strided) or (inputs > _FIRST and (is_volume or is_strided))
        return backward and has_few_channels and is_other
    if groups == inputs == outputs:
        return is_volume or max(kernel) == 1
    unfilled = any(number // groups % (_BLOCK // 2) for number in (inputs, outputs))
    is_strided, is_plain = max(stride) > 1, max(kernel) == 1 or _channels_last(x)
    sums = backward and (is_volume or (is_strided and inputs // groups >= _BLOCK))
    return bool(unfilled or is_plain or sums or (is_volume and is_strided))


def _channels_last_copies(weight: Any, groups: int) -> int:
    """Copies of w and dw; the groups of one channel are filled up to blocks where w is large."""
    if groups > 1 and weight.shape[1] == 1 and max(weight.shape[2:]) > _SHORT:
        return _FLOAT * int(math.prod(weight.shape)) * _BLOCK**2
    return 2 * _weight(weight) + _weight_copy(weight, groups)


def _is_product(
    x: Any, weight: Any, stride: Any, padding: Any, groups: int, transposed: bool, threads: int
) -> bool:
    """Whether it is one product of matrices, which needs no copies."""
    ones = all(n == 1 for n in (*weight.shape[2:], *stride)) and not any(padding)
    is_own = x.itemsize > _FLOAT or (threads == 1 and x.shape[0] < _BLOCK)
    return ones and groups == 1 and not transposed and is_own


def _unfolds(x: Any, weight: Any, groups: int) -> bool:
    """Whether torch's own kernel runs: in float64, and for a small image."""
    is_long = len(weight.shape) > 3 and min(weight.shape[-2:]) > _SHORT
    small = x.shape[0] == 1 and math.prod(x.shape[:4]) <= _SMALL and not is_long and groups == 1
    return x.itemsize > _FLOAT or small


def _unfolded(x: Any, weight: Any, outputs: Any) -> int:
    return _bytes((x.shape[0], *weight.shape[1:], *outputs), x.itemsize)


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


def _unit_scratch(x: Any, weight: Any, stride: Any, spatial: Any) -> int:
    """Of kernels of one element: an image read at a stride."""
    is_read = max(weight.shape[2:]) == 1 and max(stride) > 1
    return _bytes((_filled(x.shape[1]), *spatial), x.itemsize) if is_read else 0


def _input_copy(x: Any, weight: Any, groups: int) -> int:
    """A blocked copy; images of a few channels are read as they are."""
    is_read = groups == 1 and x.shape[1] < _BLOCK and max(weight.shape[2:]) > 1
    return 0 if is_read else _copy(x)


def _copy(x: Any, block: int = _BLOCK) -> int:
    return _bytes((x.shape[0], _filled(x.shape[1], block), *x.shape[2:]), x.itemsize)


def _filled(channels: int, block: int = _BLOCK) -> int:
    return -(-channels // block) * block


def _weight_copy(weight: Any, groups: int, fewest_inputs: int = 1) -> int:
    """A copy in blocks of both channels, of what reads few channels in blocks of its outputs."""
    outputs, inputs = weight.shape[:2]
    if groups == 1:
        inputs = max(inputs, fewest_inputs) if inputs < _BLOCK else _filled(inputs)
    if groups == 1 or inputs == 1:
        outputs = _filled(outputs)
    return _bytes((outputs, inputs, *weight.shape[2:]), weight.itemsize)


def _weight(weight: Any) -> int:
    return _bytes(weight.shape, weight.itemsize)


def _bytes(shape: Any, itemsize: int) -> int:
    return int(math.prod(shape) * itemsize)


def _lstm(args: Arguments, _threads: int) -> int:
    """mkldnn_rnn_layer: copies of both weights, and the gates of every step."""
    x, weight, recurrent = args[:3]
    weights = _weight(weight) + _weight(recurrent)
    return weights + _bytes((*x.shape[:2], recurrent.shape[0]), _FLOAT)


def _lstm_backward(args: Arguments, _threads: int) -> int:
    """mkldnn_rnn_layer_backward: copies of weights and of their gradients, the gates' gradients."""
    x, weight, recurrent = args[:3]
    weights = _weight(weight) + _weight(recurrent)
    gates = _bytes((*x.shape[:2], recurrent.shape[0]), x.itemsize)
    return 2 * weights + gates


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
