"""Resizing and sampling: a multiplication and an addition per neighbour of each output element.

Two neighbours per dimension where linear, four where cubic, one where nearest (a copy forward, an
addition backward). Weights are shared by all channels and left out. With antialiasing the filter
grows with the scale and is applied one dimension after the other: estimated.
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.families.per_element import per_element
from torchgauge.formulas.operand import Operand, Work, elements, product, tensors, vector
from torchgauge.formulas.registry import formula

MULTIPLY_ADD = 2
BILINEAR, NEAREST, BICUBIC = 0, 1, 2  # grid_sampler's modes


def _register_resize(name: str, neighbours: int) -> None:
    @formula(f"aten::{name}")
    def resize(operand: Operand, *_args: Any, outputs: Any, **_named: Any) -> Work:
        result = next(tensors(outputs))
        return vector(MULTIPLY_ADD * neighbours * elements(result), operand)

    per_element(__name__, MULTIPLY_ADD * neighbours, f"aten::{name}_backward")


for _name, _neighbours in (
    ("upsample_linear1d", 2),
    ("upsample_bilinear2d", 4),
    ("upsample_trilinear3d", 8),
    ("upsample_bicubic2d", 16),
):
    _register_resize(_name, _neighbours)


# One addition per element of the gradient, at the element it was copied from; and of the columns,
# at the place where they overlap.
per_element(
    __name__,
    1,
    *("aten::col2im", "aten::unfold_backward"),
    *(f"aten::upsample_nearest{d}d_backward" for d in (1, 2, 3)),
    *(f"aten::_upsample_nearest_exact{d}d_backward" for d in (1, 2, 3)),
    *(f"aten::reflection_pad{d}d_backward" for d in (1, 2, 3)),
    *(f"aten::replication_pad{d}d_backward" for d in (1, 2, 3)),
)


def _antialiased(taps: int, small: Any, large: Any, operand: Operand) -> Work:
    """Resize (N, C, H, W) `small` to `large` sizes: along the width first, then the height."""
    (*batch, height, width), (new_height, new_width) = small, large[-2:]
    across = math.ceil(taps * max(1.0, width / new_width))
    down = math.ceil(taps * max(1.0, height / new_height))
    per_image = height * new_width * across + new_height * new_width * down
    total = MULTIPLY_ADD * math.prod(batch) * per_image
    return vector(total, operand)._replace(estimated=True)


def _register_antialiased(name: str, taps: int) -> None:
    @formula(f"aten::{name}")
    def resize(operand: Operand, *_args: Any, outputs: Any, **_named: Any) -> Work:
        return _antialiased(taps, operand.shape, next(tensors(outputs)).shape, operand)

    @formula(f"aten::{name}_backward")
    def resize_backward(
        gradient: Operand, output_size: Any, input_size: Any, *_args: Any, **_named: Any
    ) -> Work:
        return _antialiased(taps, input_size, output_size, gradient)


for _name, _taps in (
    ("_upsample_bilinear2d_aa", 2),
    ("_upsample_bicubic2d_aa", 4),
    ("_upsample_lanczos2d_aa", 6),
):
    _register_antialiased(_name, _taps)


def _neighbours_of(dimensions: int, mode: int) -> int:
    return int({BILINEAR: 2, NEAREST: 1, BICUBIC: 4}[mode] ** dimensions)


def _sampled(operand: Operand, grid: Operand, mode: int) -> int:
    """Return the operations of sampling every channel at every place of the grid."""
    if mode == NEAREST:
        return 0
    *positions, dimensions = grid.shape
    count = math.prod(positions) * operand.shape[1]
    return int(MULTIPLY_ADD * _neighbours_of(dimensions, mode) * count)


@formula("aten::grid_sampler_2d", "aten::grid_sampler_3d", "aten::_grid_sampler_2d_cpu_fallback")
def grid_sample(operand: Operand, grid: Operand, mode: int, *_args: Any, **_named: Any) -> Work:
    """A multiplication and an addition per neighbour of each output element; nearest copies."""
    return vector(_sampled(operand, grid, mode), operand)


@formula("aten::cudnn_grid_sampler")
def cudnn_grid_sample(operand: Operand, grid: Operand) -> Work:
    """As `grid_sampler_2d`, bilinear."""
    return vector(_sampled(operand, grid, BILINEAR), operand)


def _grid_gradients(operand: Operand, grid: Operand, mode: int, output_mask: Any) -> Work:
    inputs, grids = output_mask
    forward = _sampled(operand, grid, mode)
    added = math.prod(grid.shape[:-1]) * operand.shape[1] if mode == NEAREST else forward
    along = forward * grid.shape[-1]
    return vector(added * bool(inputs) + along * bool(grids), operand)


@formula("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward")
def grid_sample_backward(
    gradient: Operand,
    operand: Operand,
    grid: Operand,
    mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Any,
) -> Work:
    """As forward for the input; as forward once per dimension for the grid."""
    return _grid_gradients(operand, grid, mode, output_mask)


@formula("aten::_grid_sampler_2d_cpu_fallback_backward")
def grid_sample_fallback_backward(
    gradient: Operand, operand: Operand, grid: Operand, mode: int, *_args: Any
) -> Work:
    """Both gradients."""
    return _grid_gradients(operand, grid, mode, (True, True))


@formula("aten::cudnn_grid_sampler_backward")
def cudnn_grid_sample_backward(operand: Operand, grid: Operand, gradient: Operand) -> Work:
    """Both gradients, bilinear."""
    return _grid_gradients(operand, grid, BILINEAR, (True, True))


@formula("aten::affine_grid_generator", "aten::cudnn_affine_grid_generator")
def affine_grid(theta: Operand, *_sizes: Any, outputs: Any, **_named: Any) -> Work:
    """A product of the (d + 1)-vector of each place with the d × (d + 1) matrix of its image."""
    result = next(tensors(outputs))
    return product(elements(result) * theta.shape[-1], theta)


@formula("aten::cudnn_affine_grid_generator_backward")
def affine_grid_backward(gradient: Operand, *_sizes: Any) -> Work:
    """As forward."""
    return product(elements(gradient) * (gradient.shape[-1] + 1), gradient)
