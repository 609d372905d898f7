"""Makes a torchvision importable whose compiled operators do not load beside the installed torch.

torchvision registers its shape functions for operators that its compiled library should have
defined, and cannot be imported at all where that library is absent. Its models are pure Python:
with the operators merely *defined* they build and run, save those that reach `nms` or a
deformable convolution. Nothing happens, and torch is not imported, until torchvision is.
"""

import importlib.abc
import importlib.machinery
import sys

ROI = "Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width"
BOXES = "Tensor dets, Tensor scores, float iou_threshold"
SIZES = "int batch_size, int channels, int height, int width"
GRAD_ROI = "Tensor grad, Tensor rois, {}float spatial_scale, int pooled_height, int pooled_width"
STRIDES = "int stride_h, int stride_w, int pad_h, int pad_w, int dil_h, int dil_w"
DEFORM = (
    f"Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, {STRIDES}, "
    "int groups, int offset_groups, bool use_mask"
)
QUANTIZED_ROI = (
    "Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, "
    "int rois_zero_point, float spatial_scale, int pooled_height, int pooled_width, "
    "int sampling_ratio, bool aligned"
)

SCHEMAS = (
    f"nms({BOXES}) -> Tensor",
    f"qnms({BOXES}) -> Tensor",
    f"roi_align({ROI}, int sampling_ratio, bool aligned) -> Tensor",
    f"qroi_align({QUANTIZED_ROI}) -> Tensor",
    f"roi_pool({ROI}) -> (Tensor, Tensor)",
    f"ps_roi_align({ROI}, int sampling_ratio) -> (Tensor, Tensor)",
    f"ps_roi_pool({ROI}) -> (Tensor, Tensor)",
    f"deform_conv2d({DEFORM}) -> Tensor",
    f"_roi_align_backward({GRAD_ROI.format('')}, {SIZES}, int sampling_ratio, bool aligned)"
    " -> Tensor",
    f"_roi_pool_backward({GRAD_ROI.format('Tensor argmax, ')}, {SIZES}) -> Tensor",
    f"_ps_roi_align_backward({GRAD_ROI.format('Tensor channel_mapping, ')}, int sampling_ratio,"
    f" {SIZES}) -> Tensor",
    f"_ps_roi_pool_backward({GRAD_ROI.format('Tensor channel_mapping, ')}, {SIZES}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {DEFORM}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)

_definitions: list[object] = []  # a torch Library takes its operators with it when it dies


def define() -> None:
    """Define every operator, unless torchvision's own compiled library already did."""
    import torch

    if hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in SCHEMAS:
        library.define(schema)
    _definitions.append(library)


class _MetaRegistrationsFinder(importlib.abc.MetaPathFinder):
    """Acts on `torchvision._meta_registrations`: by then the compiled library had its chance."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname != "torchvision._meta_registrations":
            return None
        define()
        return importlib.machinery.PathFinder.find_spec(fullname, path, target)


def install() -> None:
    """Put the finder in front, once."""
    if not any(type(finder).__name__ == "_MetaRegistrationsFinder" for finder in sys.meta_path):
        sys.meta_path.insert(0, _MetaRegistrationsFinder())


install()
