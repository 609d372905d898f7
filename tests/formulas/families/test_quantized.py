import pytest
import torch
from tests.support.product_calls import described, work
from tests.support.vector_calls import work_of

quantized = torch.ops.quantized


def quantize(*shape, dtype=torch.qint8):
    return torch.quantize_per_tensor(torch.rand(shape), 0.1, 0, dtype)


def integer_of(overload, *args):
    """The integer operations of a call that does no other work."""
    found = work_of(overload, *args)
    assert (found.matmul, found.vector, found.estimated) == (0, 0, False)
    return found.integer


def test_linear_layers_on_packed_weights():
    packed = quantized.linear_prepack(quantize(6, 4), None)
    x = quantize(2, 3, 4, dtype=torch.quint8)
    products = 2 * 2 * 3 * 4 * 6
    for name in ("linear", "linear_relu"):
        assert integer_of(getattr(quantized, name).default, x, packed, 0.1, 0) == products
    for name in ("linear_dynamic", "linear_relu_dynamic"):
        operator = getattr(quantized, name).default
        assert integer_of(operator, torch.rand(2, 3, 4), packed) == products


def test_float16_weights_take_part_in_float_products():
    packed = quantized.linear_prepack_fp16(torch.rand(6, 4), None)
    found = work_of(quantized.linear_dynamic_fp16.default, torch.rand(5, 4), packed)
    assert (found.matmul, found.integer) == (2 * 5 * 4 * 6, 0)


def test_convolutions_read_their_packed_weight():
    options = ([1, 1], [1, 1], [1, 1], 2)
    packed = quantized.conv2d_prepack(quantize(6, 2, 3, 3), None, *options)
    x = quantize(1, 4, 5, 5, dtype=torch.quint8)
    products = 2 * 6 * 25 * 2 * 9
    for name in ("conv2d", "conv2d_relu"):
        operator = getattr(quantized, name).new
        assert integer_of(operator, x, packed, 0.1, 0) == products
    out = described(1, 6, 5, 5)
    for name in ("conv2d_add", "conv2d_add_relu"):
        assert work(f"quantized::{name}", x, x, packed, 0.1, 0, outputs=out).integer == products
    assert integer_of(quantized.conv2d_dynamic.default, torch.rand(1, 4, 5, 5), packed) == products


def test_convolutions_in_one_dimension_are_packed_with_two():
    packed = quantized.conv1d_prepack(quantize(6, 4, 3), None, [1], [0], [1], 1)
    x = quantize(2, 4, 10, dtype=torch.quint8)
    assert integer_of(quantized.conv1d.default, x, packed, 0.1, 0) == 2 * 2 * 6 * 8 * 4 * 3


def test_transposed_convolutions_count_what_goes_in():
    options = ([2, 2], [0, 0], [0, 0], [1, 1], 1)
    packed = quantized.conv_transpose2d_prepack(quantize(4, 6, 3, 3), None, *options)
    x = quantize(2, 4, 5, 5, dtype=torch.quint8)
    operator = quantized.conv_transpose2d.default
    assert integer_of(operator, x, packed, 0.1, 0) == 2 * 10_800


@pytest.mark.parametrize("name", ["conv2d", "conv3d_relu", "conv_transpose2d"])
def test_a_weight_that_cannot_be_read_is_unknown(name):
    out = described(1, 6, 5, 5)
    call = (described(1, 4, 5, 5, dtype="quint8"), object(), 0.1, 0)
    assert work(f"quantized::{name}", *call, outputs=out) is None


def test_onednn():
    x, weight = described(1, 4, 5, 5, dtype="uint8"), described(6, 2, 3, 3, dtype="int8")
    out = described(1, 6, 5, 5, dtype="uint8")
    products = 2 * 6 * 25 * 2 * 9
    grouped = described(2, 3, 2, 3, 3, dtype="int8")  # as packed, with two groups
    for one in (weight, grouped):
        found = work("onednn::qconv2d_pointwise", x, 0.1, 0, one, None, outputs=out)
        assert found == (0, 0, products, None, False)
    call = (described(2, 4, dtype="uint8"), 0.1, 0, described(4, 6, dtype="int8"))
    found = work("onednn::qlinear_pointwise", *call, outputs=described(2, 6))
    assert found == (0, 0, 2 * 2 * 4 * 6, None, False)


def test_a_product_of_quantised_matrices():
    call = (described(3, 4, dtype="quint8"), described(4, 5, dtype="quint8"), 0.1, 0)
    assert work("quantized::matmul", *call) == (0, 0, 120, None, False)
