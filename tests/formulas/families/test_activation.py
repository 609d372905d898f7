import pytest
import torch
from tests.support.vector_calls import aten, vector_of, work_of

X = torch.ones(4, 10)


@pytest.mark.parametrize(
    "call",
    [
        (aten.hardswish.default, X),
        (aten.hardswish_.default, X.clone()),
        (aten.silu_backward.default, X, X),
        (aten.gelu_backward.default, X, X),
        (aten.threshold_backward.default, X, X, 0),
        (aten.floor_divide.default, X, X),
        (aten.native_dropout.default, X, 0.5, True),
        (aten.leaky_relu_backward.default, X, X, 0.1, False),
        (aten._prelu_kernel.default, X, X),
    ],
)
def test_untagged_elementwise_operators_are_one_per_output_element(call):
    assert vector_of(*call) == 40


def test_what_is_not_one_per_output_element():
    assert vector_of(aten.glu.default, X, 1) == 20
    assert vector_of(aten._add_relu.Tensor, X, X) == 80
    assert vector_of(aten._prelu_kernel_backward.default, X, X, X) == 80
    assert vector_of(aten.linalg_cross.default, torch.ones(5, 3), torch.ones(5, 3)) == 45
    # A comparison that gives no tensor still reads every element.
    assert vector_of(aten.equal.default, X, X) == 40


def test_integers_are_no_flops():
    whole = torch.ones(4, 10, dtype=torch.int64)
    assert work_of(aten.floor_divide.default, whole, whole)[:3] == (0, 0, 40)


def test_bias_and_scale_of_fused_attention():
    # Thirty-six elements and a bias for each; twelve are queries, and are scaled.
    qkv, bias = torch.ones(1, 3, 12), torch.ones(12)
    assert vector_of(aten._transform_bias_rescale_qkv.default, qkv, bias, 2) == 36 + 12
