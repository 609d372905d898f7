"""Outputs inferred from arguments, beside the ones that torch returns."""

import itertools

import pytest
import torch
from torch.nn import functional

from torchgauge.formulas.kinds import POINTWISE
from torchgauge.formulas.operand import Described, MissingOperandError, is_complex, is_integer
from torchgauge.formulas.shapes import broadcast, outputs, pointwise

aten = torch.ops.aten


def described(value):
    if not isinstance(value, torch.Tensor):
        return value
    name = str(value.dtype).removeprefix("torch.")
    return Described(tuple(value.shape), name, tuple(value.stride()), value.itemsize)


def first(result):
    return result if isinstance(result, torch.Tensor | Described) else result[0]


def inferred(name, *args):
    return first(outputs(f"aten::{name}", tuple(map(described, args))))


def test_shapes_broadcast_and_others_are_refused():
    assert broadcast([(2, 1, 3), (4, 1), ()]) == (2, 4, 3)
    assert broadcast([(1,), (0,)]) == (0,)
    with pytest.raises(MissingOperandError):
        broadcast([(2, 3), (2,)])


CONVOLUTIONS = [
    (size, kernel, stride, padding, dilation, groups, extra)
    for size, kernel, stride, padding, dilation, groups, extra in itertools.product(
        (7, 8), (1, 3), (1, 2), (0, 2), (1, 2), (1, 2), (0, 1)
    )
    if extra < max(stride, dilation)
]


@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions(transposed):
    for size, kernel, stride, padding, dilation, groups, extra in CONVOLUTIONS:
        x, weight = torch.ones(2, 4, size), torch.ones(4, 4 // groups, kernel)
        args = (x, weight, None, [stride], [padding], [dilation], transposed,
                [extra if transposed else 0], groups)  # fmt: skip
        try:
            wanted = aten.convolution(*args)
        except RuntimeError:  # nothing would come out
            continue
        assert inferred("convolution", *args).shape == wanted.shape


def test_convolutions_without_a_batch_and_with_one_number_for_all_dimensions():
    args = (torch.ones(1, 3, 9, 8), torch.ones(5, 3, 3, 2), None, [2], [1], [1], False, [0], 1)
    assert inferred("convolution", *args).shape == aten.convolution(*args).shape


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pools(ceil_mode):
    for size, kernel, stride, padding in itertools.product(range(5, 10), (2, 3), (1, 2, 3), (0, 1)):
        x = torch.ones(1, 2, size, size + 1)
        args = (x, [kernel, kernel], [stride, stride], [padding, padding], ceil_mode)
        assert inferred("avg_pool2d", *args).shape == aten.avg_pool2d(*args).shape
        args = (*args[:4], [1, 1], ceil_mode)
        wanted = aten.max_pool2d_with_indices(*args)[0].shape
        assert inferred("max_pool2d_with_indices", *args).shape == wanted
    assert inferred("avg_pool2d", x, [2, 2], []).shape == aten.avg_pool2d(x, [2, 2]).shape


def test_others():
    x, image = torch.ones(3, 8), torch.ones(2, 3, 6, 6)
    cases = {
        "glu": (x, 1),
        "glu_backward": (torch.ones(3, 4), x, 1),
        "polar": (x, x),
        "linear": (x, torch.ones(5, 8)),
        "_cdist_forward": (x, torch.ones(7, 8), 2.0, None),
        "_adaptive_avg_pool2d": (image, [2, 3]),
        "adaptive_max_pool2d": (image, [2, 3]),
        "upsample_bilinear2d": (image, [9, 5], False),
        "fractional_max_pool2d": (image, [2, 2], [3, 3], torch.rand(2, 3, 2)),
        "affine_grid_generator": (torch.ones(2, 2, 3), [2, 3, 4, 5], False),
        "_fft_c2r": (torch.ones(3, 5, dtype=torch.complex64), [1], 0, 8),
        "conv_tbc": (torch.ones(9, 2, 3), torch.ones(4, 3, 5), torch.ones(5), 1),
        "_embedding_bag": (x, torch.tensor([0, 1, 2, 1]), torch.tensor([0, 2])),
        "native_dropout": (x, 0.5, True),
        "_prelu_kernel": (image, torch.ones(1, 3, 1, 1)),
        "threshold_backward": (x, x, 0.0),
    }
    for name, args in cases.items():
        result, wanted = inferred(name, *args), first(getattr(aten, name)(*args))
        assert result.shape == wanted.shape, name
        assert is_complex(result) == wanted.is_complex(), name
    x = torch.ones(1, 2, 5, 6)
    assert inferred("max_pool2d", x, [2]).shape == functional.max_pool2d(x, 2).shape
    with pytest.raises(MissingOperandError):
        inferred("my_operator", x)


def arguments_of(overload, dtype):
    """Return tensors for the tensors of a schema; None where it wants anything else."""
    required = [one for one in overload._schema.arguments if not one.has_default_value()]
    if not all(str(one.type) == "Tensor" for one in required):
        return None
    return [torch.ones(2, 3, dtype=dtype) for _ in required]


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32, torch.complex64])
def test_the_type_that_comes_out_is_as_real_as_torch_s(dtype):
    compared = 0
    for name in sorted(POINTWISE):
        packet = getattr(aten, name.removeprefix("aten::"))
        for overload in packet.overloads():
            args = arguments_of(getattr(packet, overload), dtype)
            if not args or "out" in overload:
                continue
            try:
                wanted = getattr(packet, overload)(*args)
            except RuntimeError:
                continue
            if not isinstance(wanted, torch.Tensor):
                continue
            compared += 1
            result = pointwise(name, tuple(map(described, args)))
            assert result.shape == wanted.shape
            if not dtype.is_floating_point and not dtype.is_complex:
                assert is_integer(result) == is_integer(described(wanted)), name
    assert compared > 20


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: aten.add.Scalar(x, 1.5), "add"),
        (lambda x: aten.add.Scalar(x, 2), "add"),
        (lambda x: aten.mul.Scalar(x, 2j), "mul"),
        (lambda x: aten.eq.Scalar(x, 1.5), "eq"),
        (lambda x: aten.pow.Tensor_Scalar(x, 2.0), "pow"),
        (lambda x: aten.pow.Tensor_Scalar(x, 2), "pow"),
        (lambda x: aten.clamp_min(x, 0.5), "clamp_min"),
    ],
)
def test_a_number_decides_about_the_type_of_whole_tensors(call, name):
    x = torch.ones(3, dtype=torch.int64)
    code = call.__code__.co_consts
    number = next(one for one in code if isinstance(one, int | float | complex))
    result = pointwise(f"aten::{name}", (described(x), number))
    wanted = call(x)
    assert is_complex(result) == wanted.is_complex()
    assert is_integer(result) == is_integer(described(wanted))


def test_what_is_not_said_is_not_guessed():
    x = Described((3,), "int64", (1,), 8)
    with pytest.raises(MissingOperandError, match="rounding mode"):
        pointwise("aten::div", (x, x, None))
    with pytest.raises(MissingOperandError, match="operand"):  # a nested tensor
        pointwise("aten::mul", (None, x))
