"""Operators of torchvision: regions of interest, suppression, deformable convolution.

A bilinear sample takes a multiplication and an addition for each of its four neighbours.
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.families.per_element import per_element
from torchgauge.formulas.operand import Operand, Work, elements, product, tensors, vector
from torchgauge.formulas.registry import formula

SAMPLE = 8
# Two maxima, two minima, two differences clamped at zero, three products, a sum, a difference, a
# quotient and a comparison.
OVERLAP = 13
# Samples per dimension of a bin where the operator takes as many as the region's size asks for.
USUAL_SAMPLES = 2


@formula("torchvision::nms", "torchvision::qnms")
def suppression(boxes: Operand, scores: Operand, iou_threshold: float) -> Work:
    """Sorting, and the overlap of each pair of boxes: at most; what is suppressed is skipped."""
    count = boxes.shape[0]
    comparisons = count * math.log2(count) if count > 1 else 0.0
    pairs = count * (count - 1) // 2
    return vector(round(comparisons) + OVERLAP * pairs, boxes)._replace(estimated=True)


def _aligned(bins: int, sampling_ratio: int, operand: Operand) -> Work:
    samples = (sampling_ratio if sampling_ratio > 0 else USUAL_SAMPLES) ** 2
    work = vector((SAMPLE + 1) * samples * bins, operand)
    return work if sampling_ratio > 0 else work._replace(estimated=True)


@formula("torchvision::roi_align", "torchvision::ps_roi_align", "torchvision::qroi_align")
def roi_align(
    operand: Operand,
    rois: Operand,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    *_aligned_flag: Any,
    outputs: Any,
) -> Work:
    """Nine per sample: eight to interpolate, one to add; ratio² samples per output element."""
    return _aligned(elements(next(tensors(outputs))), sampling_ratio, operand)


def _register_backward(name: str, place_of_ratio: int) -> None:
    @formula(name)
    def backward(gradient: Operand, *args: Any) -> Work:
        """As forward."""
        return _aligned(elements(gradient), args[place_of_ratio - 1], gradient)


_register_backward("torchvision::_roi_align_backward", 9)
_register_backward("torchvision::_ps_roi_align_backward", 6)


@formula("torchvision::roi_pool", "torchvision::ps_roi_pool")
def roi_pool(operand: Operand, rois: Operand, *_args: Any, outputs: Any) -> Work:
    """One per element of the regions: at most the whole map for each region and channel."""
    channels = next(tensors(outputs)).shape[1]
    area = operand.shape[-2] * operand.shape[-1]
    return vector(rois.shape[0] * channels * area, operand)._replace(estimated=True)


# One addition per element of the gradient, at the place of its maximum.
per_element(__name__, 1, "torchvision::_roi_pool_backward")


@formula("torchvision::_ps_roi_pool_backward")
def ps_roi_pool_backward(gradient: Operand, rois: Operand, *_args: Any, outputs: Any) -> Work:
    """One per element of the regions, at most, as forward."""
    result = next(tensors(outputs))
    area = result.shape[-2] * result.shape[-1]
    count = rois.shape[0] * gradient.shape[1] * area
    return vector(count, gradient)._replace(estimated=True)


def _columns(operand: Operand, weight: Operand, result: Any) -> int:
    """Return the elements sampled: N·C_in·k_h·k_w·H_out·W_out."""
    kernel = weight.shape[-2] * weight.shape[-1]
    positions = result[0] * result[-2] * result[-1]
    return int(operand.shape[1] * kernel * positions)


def _macs(weight: Operand, result: Any) -> int:
    return int(result[0] * result[-2] * result[-1] * math.prod(weight.shape))


@formula("torchvision::deform_conv2d")
def deformable_convolution(
    operand: Operand, weight: Operand, offset: Operand, mask: Operand, *args: Any, outputs: Any
) -> Work:
    """A convolution over bilinear samples, each times its mask, if given.

    `args` ends with `use_mask`.
    """
    result = next(tensors(outputs)).shape
    sampling = (SAMPLE + bool(args[-1])) * _columns(operand, weight, result)
    return product(_macs(weight, result), operand)._replace(vector=sampling)


@formula("torchvision::_deform_conv2d_backward")
def deformable_convolution_backward(
    gradient: Operand, operand: Operand, weight: Operand, *args: Any
) -> Work:
    """Two products of forward's size; sampling again, spreading back, and once per offset."""
    result = gradient.shape
    sampling = (4 * SAMPLE + bool(args[-1])) * _columns(operand, weight, result)
    return product(2 * _macs(weight, result), operand)._replace(vector=sampling)
