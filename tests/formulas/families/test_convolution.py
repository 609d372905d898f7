import pytest
import torch
from tests.support.product_calls import described, macs, work
from torch.utils.flop_counter import flop_registry

TRUE = (True, True, False)


def conv(operand, weight, out, transposed=False, groups=1):
    sizes = len(operand) - 2
    ones, zeros = [1] * sizes, [0] * sizes
    return macs(
        "aten::convolution",
        *(described(*operand), described(*weight), None),
        *(ones, zeros, ones, transposed, zeros, groups),
        outputs=described(*out),
    )


def backward(gradient, operand, weight, transposed=False, groups=1, mask=TRUE):
    sizes = len(operand) - 2
    ones, zeros = [1] * sizes, [0] * sizes
    return work(
        "aten::convolution_backward",
        *(described(*gradient), described(*operand), described(*weight), None),
        *(ones, zeros, ones, transposed, zeros, groups, mask),
    )


def test_padding_counts_like_any_element():
    # Conv2d 8→8, kernel 3, padding 1 or "same", on 6×6.
    assert conv((1, 8, 6, 6), (8, 8, 3, 3), (1, 8, 6, 6)) == 20_736


def test_in_one_and_three_dimensions():
    assert conv((2, 3, 10), (4, 3, 5), (2, 4, 6)) == 2 * 4 * 6 * 3 * 5
    assert conv((2, 3, 4, 5, 6), (7, 3, 2, 2, 2), (2, 7, 3, 4, 5)) == 2 * 7 * 60 * 3 * 8


def test_groups_share_the_channels():
    assert conv((1, 8, 6, 6), (8, 2, 3, 3), (1, 8, 4, 4), groups=4) == 8 * 16 * 2 * 9


def test_a_transposed_convolution_counts_what_goes_in():
    # ConvTranspose2d 4→6, kernel 3, stride 2, on (2, 4, 5, 5); and with two groups.
    out = (2, 6, 11, 11)
    assert conv((2, 4, 5, 5), (4, 6, 3, 3), out, transposed=True) == 10_800
    assert conv((2, 4, 5, 5), (4, 3, 3, 3), out, transposed=True, groups=2) == 5_400


@pytest.mark.parametrize(
    ("mask", "products"),
    [((True, True, True), 2), ((True, False, False), 1), ((False, True, True), 1), ((0, 0, 1), 0)],
)
def test_each_gradient_takes_what_the_forward_takes(mask, products):
    found = backward((2, 6, 4, 4), (2, 3, 6, 6), (6, 3, 3, 3), mask=mask)
    assert found.matmul == products * 2 * (2 * 6 * 16 * 3 * 9)
    assert found.vector == (2 * 6 * 16 if mask[2] else 0)  # the bias's gradient is a sum


def test_a_depthwise_gradient_is_not_multiplied_by_its_groups():
    # Forward and backward of a depthwise convolution are exactly three times its forward.
    forward = conv((2, 8, 6, 6), (8, 1, 3, 3), (2, 8, 4, 4), groups=8)
    assert forward == 2 * 8 * 16 * 9
    assert backward((2, 8, 4, 4), (2, 8, 6, 6), (8, 1, 3, 3), groups=8).matmul == 2 * 2 * forward


def test_the_gradients_of_a_transposed_convolution():
    found = backward((2, 6, 11, 11), (2, 4, 5, 5), (4, 3, 3, 3), transposed=True, groups=2)
    assert found.matmul == 2 * 2 * 5_400


@pytest.mark.parametrize(
    "name",
    [
        *("mkldnn_convolution", "cudnn_convolution", "cudnn_convolution_relu"),
        *("miopen_convolution", "_slow_conv2d_forward", "_conv_depthwise2d", "slow_conv_dilated2d"),
        *("cudnn_convolution_add_relu", "miopen_depthwise_convolution", "thnn_conv2d"),
    ],
)
def test_the_kernels_of_backends(name):
    call = (described(1, 8, 6, 6), described(8, 8, 3, 3))
    assert macs(f"aten::{name}", *call, outputs=described(1, 8, 6, 6)) == 20_736


def test_transposed_kernels_of_backends():
    call = (described(2, 4, 5, 5), described(4, 6, 3, 3))
    for name in ("aten::cudnn_convolution_transpose", "aten::slow_conv_transpose2d"):
        assert macs(name, *call) == 10_800
    assert macs("mkldnn::_convolution_transpose_pointwise", *call) == 10_800


def test_fused_convolutions_find_their_weight():
    operand, weight, bias = described(1, 8, 6, 6), described(8, 8, 3, 3), described(8)
    out = described(1, 8, 6, 6)
    name = "mkldnn::_convolution_pointwise"
    for rest in ((bias, [1]), (None, [1])):
        assert macs(name, operand, weight, *rest, outputs=out) == 20_736
    assert macs(name, operand, out, weight, bias, outputs=out) == 20_736
    assert macs("mkldnn::_convolution_pointwise_", out, operand, weight, bias) == 20_736


def test_the_backward_operators_of_backends():
    gradient, operand, weight = described(1, 8, 4, 4), described(1, 8, 6, 6), described(8, 8, 3, 3)
    both = 2 * 8 * 16 * 8 * 9
    call = (gradient, operand, weight, [3, 3], [1, 1], [0, 0])
    assert macs("aten::_slow_conv2d_backward", *call, TRUE) == both
    call = (gradient, operand, weight, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    assert macs("aten::convolution_backward_overrideable", *call, TRUE) == both
    call = (operand, gradient, weight, [0, 0], [1, 1], [1, 1], 1)
    assert macs("aten::mps_convolution_backward", *call, TRUE) == both
    call = (described(2, 4, 5, 5), described(2, 6, 11, 11), described(4, 6, 3, 3))
    call += ([0, 0], [0, 0], [2, 2], [1, 1], 1)
    name = "aten::mps_convolution_transpose_backward"
    assert macs(name, *call, (True, False)) == 10_800


def test_time_first():
    call = (described(10, 2, 3), described(5, 3, 4), described(4))
    assert macs("aten::conv_tbc", *call, 0, outputs=described(6, 2, 4)) == 6 * 2 * 4 * 5 * 3


def test_a_weight_packed_by_mkldnn_has_its_groups_before_it():
    class Packed:
        shape, dtype, layout = (4, 2, 2, 3, 3), "float32", "torch._mkldnn"

    call = (described(1, 8, 6, 6), Packed())
    out = described(1, 8, 4, 4)
    assert macs("aten::mkldnn_convolution", *call, outputs=out) == 8 * 16 * 2 * 9


@pytest.mark.parametrize("transposed", [False, True])
def test_torch_counts_the_same_forward(transposed):
    operand = torch.empty(2, 4, 5, 5, device="meta")
    weight = torch.empty(*((4, 6) if transposed else (6, 4)), 3, 3, device="meta")
    call = (operand, weight, None, [2, 2], [0, 0], [1, 1], transposed, [0, 0], 1)
    out = torch.ops.aten.convolution(*call)
    torchs = flop_registry[torch.ops.aten.convolution](*call, out_val=out)
    assert work("aten::convolution", *call, outputs=out).matmul == torchs
    mask = (True, True, False)
    back = (out, operand, weight, None, *call[3:], mask)
    gradients = (operand, weight, None)
    torchs = flop_registry[torch.ops.aten.convolution_backward](*back, out_val=gradients)
    assert work("aten::convolution_backward", *back).matmul == torchs
