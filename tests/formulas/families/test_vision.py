"""The formulas alone, with outputs as descriptions: torchvision need not be there."""

import torch

from torchgauge.formulas.operand import Described, Work
from torchgauge.formulas.registry import find

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
    weight = torch.ones(5, 3, 4, 2)
    offset, mask = torch.zeros(1, 16, 13, 15), torch.ones(1, 8, 13, 15)
    call = (X, weight, offset, mask, torch.zeros(5), 1, 1, 0, 0, 1, 1, 1, 1)
    output = Described((1, 5, 13, 15))
    samples, product = 13 * 15 * 24, 2 * (13 * 15 * 5 * 24)
    masked = formula("deform_conv2d")(*call, True, outputs=output)
    assert masked == Work(matmul=product, vector=samples * 9)
    plain = formula("deform_conv2d")(*call, False, outputs=output)
    assert plain == Work(matmul=product, vector=samples * 8)
    backward = formula("_deform_conv2d_backward")(output, *call, True)
    assert backward == Work(matmul=2 * product, vector=samples * 33)


def test_pooled_regions_cover_the_map_at_most():
    image = torch.ones(1, 12, 16, 10)
    bins = Described((2, 3, 2, 2))
    work = formula("ps_roi_pool")(image, ROIS, 1.0, 2, 2, outputs=(bins, bins))
    assert work == Work(vector=2 * 3 * 160, estimated=True)
    gradient = formula("_ps_roi_pool_backward")(bins, ROIS, outputs=Described((1, 12, 16, 10)))
    assert gradient == Work(vector=2 * 3 * 160, estimated=True)
    assert formula("_roi_pool_backward")(bins, ROIS) == Work(vector=24)


def test_one_box_has_no_pair():
    one = torch.ones(1, 4)
    assert formula("nms")(one, torch.ones(1), 0.5) == Work(estimated=True)
