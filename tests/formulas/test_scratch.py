"""What CPU kernels take beside inputs and outputs: by hand, and beside what torch allocates."""

import pytest
import torch

from torchgauge.formulas.saved import scratch, sizes

ATEN = torch.ops.aten
LSTM = 2


def convolution(x, weight, *, stride=1, padding=0, transposed=False, groups=1):
    each = [[n] * (x.dim() - 2) for n in (stride, padding, 1)]
    return x, weight, None, *each, transposed, [0] * (x.dim() - 2), groups


def test_a_convolution_copies_its_output_into_blocks_of_channels():
    x, weight = torch.empty(2, 32, 8, 8), torch.empty(48, 32, 3, 3)
    blocked_input, blocked_weight = 2 * 32 * 64 * 4, 48 * 32 * 9 * 4
    found = scratch("aten::convolution", convolution(x, weight, padding=1))
    assert found == blocked_input + blocked_weight  # more than one copy of the output
    wide = torch.empty(2, 3, 8, 8), torch.empty(40, 3, 3, 3)
    # Images of three channels are read as they are; 40 channels take three blocks of 16.
    assert scratch("aten::convolution", convolution(*wide, padding=1)) == 2 * 48 * 64 * 4


def test_a_convolution_that_is_a_product_takes_nothing():
    x, weight = torch.empty(2, 32, 8, 8), torch.empty(48, 32, 1, 1)
    assert scratch("aten::convolution", convolution(x, weight)) == 0
    assert scratch("aten::convolution", convolution(x.bfloat16(), weight.bfloat16())) > 0


def test_the_backward_of_a_convolution_holds_copies_of_both_operands():
    x, weight = torch.empty(4, 64, 16, 16), torch.empty(64, 64, 3, 3)
    operands = (x, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])
    assert scratch("aten::convolution_backward", operands) == 2 * x.nbytes


def test_deformable_convolution_unfolds_as_many_images_as_torchvision_takes_at_a_time():
    # As measured with torchvision 0.29.1's kernels on the CPU, by torch's events of allocations.
    x, weight = torch.empty(4, 32, 64, 64), torch.empty(32, 32, 3, 3)
    offsets = torch.empty(4, 18, 64, 64)
    assert scratch("torchvision::deform_conv2d", (x, weight, offsets)) == 23_068_672
    found = scratch("torchvision::_deform_conv2d_backward", (x, x, weight, offsets))
    assert found == pytest.approx(21_045_120, rel=1e-3)
    many = torch.empty(34, 1, 2, 2), torch.empty(1, 1, 1, 1), torch.empty(34, 2, 2, 2)
    assert scratch("torchvision::deform_conv2d", many) == 4 * 4 * (17 + 2 * 34)


def test_others_take_nothing_that_is_known():
    assert scratch("aten::mm", (torch.empty(2, 2), torch.empty(2, 2))) == 0
    assert sizes("aten::mm", ()) == ()


def lstm(steps, batch, width, hidden, dtype=torch.float32):
    shapes = [(steps, batch, width), (4 * hidden, width), (4 * hidden, hidden)]
    shapes += [(4 * hidden,), (4 * hidden,), (batch, hidden), (batch, hidden)]
    tensors = [torch.zeros(shape, dtype=dtype) for shape in shapes]
    return (*tensors, False, [], LSTM, hidden, 1, True, False, False, True)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN")
@pytest.mark.parametrize(
    "shape", [(64, 16, 128, 256), (64, 16, 512, 128), (200, 2, 64, 128), (10, 64, 64, 64)]
)
def test_the_reserve_of_an_lstm_is_what_onednn_asks_for(shape):
    arguments = lstm(*shape)
    real = ATEN.mkldnn_rnn_layer(*arguments)
    found = sizes("aten::mkldnn_rnn_layer", arguments)
    assert found[:3] == (None, None, None)
    assert found[3] == pytest.approx(real[3].nbytes, rel=0.03)
