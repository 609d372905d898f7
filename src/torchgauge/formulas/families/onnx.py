"""ONNX operators of ai.onnx and ai.onnx.ml, by the formulas of torch operators that do the same.

Inputs are positional, one that is left out is None; attributes are keyword arguments.
"""

# ruff: noqa: ARG001, N803 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.families import attention, convolution, interpolation, recurrent, vision
from torchgauge.formulas.families.normalization import batch_norm_evaluation, layer_norm, rms_norm
from torchgauge.formulas.families.reduction import topk as torch_topk
from torchgauge.formulas.onnx_kinds import CONTAINERS, ELEMENTWISE, MOVING, REDUCED, STILL
from torchgauge.formulas.operand import (
    FREE,
    Described,
    Operand,
    Work,
    elements,
    product,
    tensors,
    vector,
)
from torchgauge.formulas.promotion import pointwise_work, reduction_work
from torchgauge.formulas.registry import find, formula

# How many neighbours each resized dimension has, by a mode's name.
NEIGHBOURS = {"linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}


def _register_elementwise(name: str, operations: int) -> None:
    short = {"onnx::Div": "div", "onnx::Mul": "mul"}.get(name, "add")

    @formula(name)
    def elementwise(*args: Any, outputs: Any, **_attributes: Any) -> Work:
        return pointwise_work(short, args, outputs, operations)


def _register_reduced(name: str, operations: int) -> None:
    @formula(name)
    def reduced(*args: Any, **_attributes: Any) -> Work:
        return reduction_work("sum", args, operations)


for _name, _operations in ELEMENTWISE.items():
    _register_elementwise(_name, _operations)
for _name, _operations in REDUCED.items():
    _register_reduced(_name, _operations)


@formula(*sorted(MOVING | STILL | CONTAINERS))
def moved(*_args: Any, **_attributes: Any) -> Work:
    """No arithmetic; what a subgraph does is counted at its own nodes."""
    return FREE


@formula("onnx::Max", "onnx::Min", "onnx::Sum")
def combined(*args: Any, outputs: Any, **_attributes: Any) -> Work:
    """One per output element for each input after the first."""
    return pointwise_work("add", args, outputs, len(args) - 1)


@formula("onnx::Mean")
def averaged(*args: Any, outputs: Any, **_attributes: Any) -> Work:
    """As Sum, and a division."""
    return pointwise_work("add", args, outputs, len(args))


@formula("onnx::Conv", "onnx::ConvInteger", "com.microsoft::FusedConv",
         "com.microsoft::NhwcFusedConv", "com.microsoft.nchwc::Conv",
         "com.ms.internal.nhwc::Conv")  # fmt: skip
def conv(x: Operand, w: Operand, *_args: Any, outputs: Any, **_attributes: Any) -> Work:
    """As aten::convolution; what is fused with it is not counted."""
    return convolution.forward(x, w, outputs=_first(outputs))


@formula("onnx::QLinearConv", "com.ms.internal.nhwc::QLinearConv", "com.microsoft::QLinearConv")
def qlinear_conv(
    x: Operand, x_scale: Any, x_zero: Any, w: Operand, *_args: Any, outputs: Any, **_attributes: Any
) -> Work:
    """As Conv, on integers."""
    return convolution.forward(x, w, outputs=_first(outputs))


@formula("onnx::ConvTranspose", "com.microsoft::ConvTransposeWithDynamicPads")
def conv_transpose(x: Operand, w: Operand, *_args: Any, **_attributes: Any) -> Work:
    """As aten::convolution, transposed."""
    return convolution.transposed(x, w)


@formula("onnx::DeformConv")
def deform_conv(
    x: Operand, w: Operand, offset: Operand, bias: Any = None, mask: Any = None, *,
    outputs: Any, **_attributes: Any,
) -> Work:  # fmt: skip
    """As torchvision::deform_conv2d; without a mask one of no elements."""
    weights = Described((0,), str(x.dtype)) if mask is None else mask
    use_mask = (*(0,) * 9, mask is not None)
    return vision.deformable_convolution(x, w, offset, weights, bias, *use_mask, outputs=outputs)


@formula("onnx::Gemm", "com.microsoft::FusedGemm")
def gemm(
    a: Operand, b: Operand, *_args: Any, outputs: Any, transA: int = 0, **_attributes: Any
) -> Work:
    """[n, m] = [n, k]·[k, m], either transposed; the sum with C is not counted."""
    return product(elements(_first(outputs)) * a.shape[0 if transA else 1], a)


@formula("onnx::MatMul", "onnx::MatMulInteger", "com.microsoft::MatMulIntegerToFloat",
         "com.microsoft::MatMulNBits", "com.microsoft::MatMulBnb4",
         "onnx::QLinearMatMul")  # fmt: skip
def matmul(a: Operand, *_args: Any, outputs: Any, **_attributes: Any) -> Work:
    """[..., n, m] = [..., n, k]·[..., k, m]; weights may be packed."""
    return product(elements(_first(outputs)) * a.shape[-1], a)


@formula("onnx::Einsum")
def einsum(*operands: Operand, outputs: Any, equation: str = "", **_attributes: Any) -> Work | None:
    """The product of all indices' sizes, for two operands; None for more, whose order decides."""
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    if len(terms) != len(operands) or len(operands) > 2:
        return None
    if len(operands) == 1:
        return FREE if _reorders(equation.replace(" ", "")) else reduction_work("sum", operands)
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        for index, size in _indices(term, operand.shape):
            sizes[index] = max(size, sizes.get(index, 1))
    return product(math.prod(sizes.values()), operands[0])


def _reorders(equation: str) -> bool:
    """Return whether all indices of one operand come out: none is summed."""
    term, arrow, result = equation.partition("->")
    letters = term.replace(".", "")
    return set(letters) <= set(result) if arrow else len(set(letters)) == len(letters)


def _indices(term: str, shape: Any) -> list[tuple[str, int]]:
    """Return each index of an operand with its size; the ellipsis' dimensions by number."""
    before, dots, after = term.partition("...")
    covered = len(shape) - len(before) - len(after) if dots else 0
    # From the end: operands may have fewer dimensions there.
    names = [*before, *(f"{number}" for number in range(covered, 0, -1)), *after]
    return list(zip(names, shape, strict=True))


@formula("onnx::Attention")
def attention_(
    q: Operand, k: Operand, v: Operand, mask: Any = None, past_key: Any = None,
    past_value: Any = None, *_args: Any, q_num_heads: int = 0, kv_num_heads: int = 0,
    is_causal: int = 0, **_attributes: Any,
) -> Work:  # fmt: skip
    """[b, h, s, d] or [b, s, h·d], with what was kept of earlier keys and values before them."""
    earlier = 0 if past_key is None else past_key.shape[-2]
    return attended(
        by_heads(q, q_num_heads),
        by_heads(k, kv_num_heads, earlier),
        by_heads(v, kv_num_heads, earlier),
        causal=bool(is_causal),
    )


def by_heads(operand: Operand, heads: int, earlier: int = 0) -> Described:
    """Return [b, s, h·d] as [b, h, s, d], with `earlier` positions before its own."""
    shape = tuple(operand.shape)
    if len(shape) == 3:
        shape = (shape[0], heads, shape[1], shape[2] // max(1, heads))
    return Described((*shape[:2], shape[2] + earlier, shape[3]), str(operand.dtype))


def attended(q: Described, k: Described, v: Described, *, causal: bool) -> Work:
    """As scaled_dot_product_attention on [b, h, s, d]."""
    return attention.square(q, k, v, causal=causal)


@formula("onnx::BatchNormalization")
def batch_normalization(
    x: Operand, scale: Any, bias: Any, *_args: Any, training_mode: int = 0, **_attributes: Any
) -> Work:
    """As aten::native_batch_norm."""
    if training_mode:
        return layer_norm(x, (), scale, bias)
    return batch_norm_evaluation(x, scale, bias)


@formula("onnx::LayerNormalization", "onnx::GroupNormalization")
def layer_normalization(x: Operand, scale: Any, bias: Any = None, **_attributes: Any) -> Work:
    """As aten::native_layer_norm and aten::native_group_norm."""
    return layer_norm(x, (), scale, bias)


@formula("onnx::RMSNormalization", "onnx::SimplifiedLayerNormalization",
         "com.microsoft::SimplifiedLayerNormalization")  # fmt: skip
def rms_normalization(x: Operand, scale: Any = None, **_attributes: Any) -> Work:
    """As aten::_fused_rms_norm."""
    return rms_norm(x, (), scale)


@formula("onnx::LRN")
def lrn(x: Operand, size: int = 1, **_attributes: Any) -> Work:
    """A square, a sum over the window, scale and bias, a power and a division."""
    return reduction_work("sum", (x,), size + 5)


@formula("onnx::AveragePool", "onnx::MaxPool", "onnx::LpPool", "com.microsoft.nchwc::MaxPool",
         "com.microsoft.nchwc::AveragePool", "com.ms.internal.nhwc::MaxPool",
         "com.microsoft::NhwcMaxPool", "com.microsoft::QLinearAveragePool")  # fmt: skip
def pool(x: Operand, *_args: Any, outputs: Any, kernel_shape: Any = (), **_attributes: Any) -> Work:
    """Window size per output element."""
    return vector(elements(_first(outputs)) * math.prod(kernel_shape), x)


@formula("com.microsoft.nchwc::GlobalAveragePool", "com.microsoft.nchwc::GlobalMaxPool",
         "onnx::Col2Im")  # fmt: skip
def one_per_input(x: Operand, *_args: Any, **_attributes: Any) -> Work:
    """One per input element."""
    return reduction_work("sum", (x,))


def _register_recurrent(cell: int, *names: str) -> None:
    @formula(*names)
    def layer(x: Operand, w: Operand, r: Operand, *_args: Any, **_attributes: Any) -> Work:
        """As a torch layer of one or two directions, weights [directions, gates · H, in].

        Quantised weights are [directions, in, gates · H].
        """
        rows = math.prod(x.shape[:-1])
        units = r.shape[0] * min(r.shape[1:])
        products = product(rows * (elements(w) + elements(r)), w)
        return products._replace(vector=cell * rows * units)


_register_recurrent(recurrent.LSTM_CELL, "onnx::LSTM", "com.microsoft::DynamicQuantizeLSTM")
_register_recurrent(recurrent.GRU_CELL, "onnx::GRU")
_register_recurrent(recurrent.PLAIN_CELL, "onnx::RNN")


@formula("onnx::Resize", "onnx::Upsample")
def resize(
    x: Operand,
    *_args: Any,
    outputs: Any,
    mode: str = "nearest",
    antialias: int = 0,
    **_attributes: Any,
) -> Work:
    """A product and an addition per neighbour; nearest copies. With antialiasing estimated."""
    result = _first(outputs)
    changed = sum(before != after for before, after in zip(x.shape, result.shape, strict=True))
    per_dimension = NEIGHBOURS.get(mode, 0)
    if not per_dimension or not changed:
        return FREE
    work = vector(2 * elements(result) * per_dimension**changed, x)
    return work._replace(estimated=bool(antialias))


@formula("onnx::GridSample")
def grid_sample(x: Operand, grid: Operand, mode: str = "linear", **_attributes: Any) -> Work:
    """As aten::grid_sampler_2d."""
    number = {2: interpolation.BILINEAR, 4: interpolation.BICUBIC}.get(
        NEIGHBOURS.get(mode, 0), interpolation.NEAREST
    )
    return interpolation.grid_sample(x, grid, number)


@formula("onnx::AffineGrid")
def affine_grid(theta: Operand, *_args: Any, outputs: Any, **_attributes: Any) -> Work:
    """A product of each position with theta, [d, d + 1]."""
    return product(elements(_first(outputs)) * theta.shape[-1], theta)


@formula("onnx::RoiAlign")
def roi_align(
    x: Operand, *_args: Any, outputs: Any, sampling_ratio: int = 0, **_attributes: Any
) -> Work:
    """As torchvision::roi_align."""
    samples = (sampling_ratio or 2) ** 2
    work = vector(9 * samples * elements(_first(outputs)), x)
    return work._replace(estimated=not sampling_ratio)


@formula("onnx::TopK")
def topk(
    x: Operand, *_args: Any, outputs: Any, axis: int = -1, sorted: int = 1, **_attributes: Any
) -> Work:
    """As aten::topk."""
    result = _first(outputs)
    count = result.shape[axis] if result.shape else 1
    return torch_topk(x, count, axis, True, bool(sorted))


@formula("onnx::DFT")
def dft(
    x: Operand, *args: Any, outputs: Any, axis: int | None = None, onesided: int = 0,
    **_attributes: Any,
) -> Work | None:  # fmt: skip
    """As aten::_fft_c2c, of real numbers as aten::_fft_r2c; the last dimension is real, imaginary.

    Later opsets have the axis as an input, which a reader that knows it gives as an attribute.
    """
    if axis is None and len(args) > 1:
        return None
    axis = -2 if axis is None else axis
    shape = tuple(_first(outputs).shape if not onesided else x.shape)[:-1]
    dims = (axis if axis >= 0 else axis + 1,)
    registered = find("aten::_fft_r2c" if x.shape[-1] == 1 else "aten::_fft_c2c")
    assert registered is not None  # noqa: S101 - of the family beside this
    work: Work = registered[0](Described(shape, str(x.dtype)), dims)
    return work


@formula("onnx::ScatterElements", "onnx::ScatterND", "onnx::Scatter")
def scatter(*args: Any, reduction: str = "none", **_attributes: Any) -> Work:
    """One per update where it is combined with what is there; else a copy."""
    if reduction == "none" or len(args) < 3:
        return FREE
    return reduction_work("sum", args[2:])


@formula("onnx::Det")
def det(x: Operand, **_attributes: Any) -> Work:
    """As aten::_linalg_det, by LU factors: 2/3 n³."""
    side = x.shape[-1]
    return vector(round(2 * elements(x) * side / 3), x)


@formula("ai.onnx.ml::LinearRegressor", "ai.onnx.ml::LinearClassifier")
def linear_model(x: Operand, *_args: Any, outputs: Any, **_attributes: Any) -> Work:
    """A product with the coefficients; a classifier's scores are its last output."""
    scores = list(tensors(outputs))[-1]
    return product(elements(scores) * x.shape[-1], x)


def _first(outputs: Any) -> Any:
    return next(tensors(outputs))
