"""The formulas alone, with outputs as descriptions: torchvision need not be there."""

import torch

from torchgauge.formulas.operand import Described
from torchgauge.formulas.registry import find
from torchgauge.formulas.work import Work

X = torch.ones(1, 3, 16, 16)
ROIS = torch.tensor([[0.0, 1, 1, 9, 9], [0, 2, 2, 12, 12]])


def formula(name):
    return find(f"torchvision::{name}")[0]


def test_aligned_regions_sample_each_bin():
    # 2 regions, 3 channels, 4·4 bins, 2·2 samples of nine operations.
    expected = 2 * 3 * 16 * 4 * 9
    bins = Described((2, 3, 4, 4))
    work = formula("roi_align")(X, ROIS, 1.0, 4, 4, 2, True, outputs=bins)
    assert work == Work(vector=expected)
    work = formula("roi_align")(X, ROIS, 1.0, 4, 4, 0, True, outputs=bins)
    assert work == Work(vector=expected, estimated=True)
    backward = (bins, ROIS, 1.0, 4, 4, 1, 3, 16, 16, 2, True)
    assert formula("_roi_align_backward")(*backward) == Work(vector=expected)


def test_suppression_compares_pairs():
    boxes = torch.tensor([[0.0, 0, 1, 1]] * 8)
    expected = 8 * 3 + 13 * 28
    assert formula("nms")(boxes, torch.ones(8), 0.5) == Work(vector=expected, estimated=True)


def test_deformable_convolution_is_a_product_over_samples():
    weight = torch.ones(5, 3, 3, 3)
    offset, mask = torch.zeros(1, 18, 14, 14), torch.ones(1, 9, 14, 14)
    call = (X, weight, offset, mask, torch.zeros(5), 1, 1, 0, 0, 1, 1, 1, 1)
    output = Described((1, 5, 14, 14))
    samples, product = 14 * 14 * 27, 2 * (14 * 14 * 5 * 27)
    masked = formula("deform_conv2d")(*call, True, outputs=output)
    assert masked == Work(matmul=product, vector=samples * 9)
    plain = formula("deform_conv2d")(*call, False, outputs=output)
    assert plain == Work(matmul=product, vector=samples * 8)
    assert formula("_deform_conv2d_backward")(output, *call, True).matmul == 2 * product
