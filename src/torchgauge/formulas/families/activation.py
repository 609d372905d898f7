"""Activations and softmax."""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

from typing import Any

from torchgauge.formulas.operand import Work
from torchgauge.formulas.promotion import pointwise_work
from torchgauge.formulas.registry import formula

ONE_PER_OUTPUT = """
    __irshift__ _dirichlet_grad _fake_quantize_learnable_per_channel_affine
    _fake_quantize_learnable_per_tensor_affine _masked_scale _prelu_kernel _standard_gamma_grad
    _fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fused_dropout  elu_backward
    fake_quantize_per_channel_affine_cachemask floor_divide
    fake_quantize_per_tensor_affine_cachemask gelu_backward glu glu_backward glu_backward_jvp
    glu_jvp hardshrink_backward hardsigmoid_backward hardswish hardswish_backward
    hardtanh_backward leaky_relu_backward log_sigmoid_backward log_sigmoid_forward mish_backward
    native_dropout native_dropout_backward polar rrelu_with_noise rrelu_with_noise_backward
    rrelu_with_noise_functional silu_backward softplus_backward softshrink_backward
    threshold_backward allclose equal
"""


def _register(name: str, operations: int) -> None:
    @formula(f"aten::{name}")
    def pointwise(*args: Any, outputs: Any, **_named: Any) -> Work:
        return pointwise_work(name, args, outputs, operations)


for _name in ONE_PER_OUTPUT.split():
    _register(_name, 1)


@formula("aten::_add_relu")
def add_relu(*args: Any, outputs: Any, **_named: Any) -> Work:
    """An addition and a comparison: two per output element."""
    return pointwise_work("add", args, outputs, 2)


@formula(
    "aten::_prelu_kernel_backward",
    "aten::_fake_quantize_learnable_per_tensor_affine_backward",
    "aten::_fake_quantize_learnable_per_channel_affine_backward",
)
def two_gradients(*args: Any, outputs: Any, **_named: Any) -> Work:
    """One per element for the input's gradient and one for the parameter's."""
    return pointwise_work("", args, outputs, 2)


@formula("aten::linalg_cross")
def cross(*args: Any, outputs: Any, **_named: Any) -> Work:
    """Two products and a subtraction: three per output element."""
    return pointwise_work("mul", args, outputs, 3)


@formula("aten::_transform_bias_rescale_qkv")
def bias_rescale(qkv: Any, bias: Any, num_heads: int) -> Work:
    """One per element for the bias, and one for scaling the third that is queries."""
    added = pointwise_work("add", (qkv,), qkv)
    return added._replace(vector=added.vector + added.vector // 3)
