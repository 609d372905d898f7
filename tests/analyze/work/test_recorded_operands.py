"""Arguments of recorded operators: types old and new, numbers, and what the trace does not say."""

import math

import pytest

from torchgauge.analyze.work.recorded_work import arguments, element_type
from torchgauge.formulas.operand import (
    MissingOperandError,
    MissingTensor,
    MissingValue,
    elements_of,
)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("float", ("float32", 4)),
        ("double", ("float64", 8)),
        ("c10::Half", ("float16", 2)),
        ("c10::BFloat16", ("bfloat16", 2)),
        ("long int", ("int64", 8)),
        ("long", ("int64", 8)),
        ("unsigned char", ("uint8", 1)),
        ("bool", ("bool", 1)),
        ("c10::complex<float>", ("complex64", 8)),
        ("c10::complex<c10::Half>", ("complex32", 4)),
        ("c10::Float8_e4m3fn", ("float8_e4m3fn", 1)),
        ("c10::qint8", ("qint8", 1)),
        ("Scalar", None),
        ("", None),
    ],
)
def test_types_as_c_calls_them(name, wanted):
    assert element_type(name) == wanted


def test_tensors_numbers_and_nothing():
    operand, weight, none, stride, flag, scale, times = arguments(
        [[1, 3, 8], [4, 3, 3], [], [], [], [], []],
        ["float", "c10::BFloat16", "", "ScalarList", "Scalar", "Scalar", "Scalar"],
        [[24, 8, 1], [9, 3, 1], [], [], [], [], []],
        ["", "", "", "[1, 2]", "False", "-inf", "0.+2.j"],
    )
    assert (operand.shape, operand.dtype, operand.stride()) == ((1, 3, 8), "float32", (24, 8, 1))
    assert (weight.dtype, weight.itemsize) == ("bfloat16", 2)
    assert (none, stride, flag, scale, times) == (None, [1, 2], False, -math.inf, 2j)
    assert arguments([[], []], ["ScalarList", "float"], None, ["[]", ""])[0] == []


def test_a_tensor_without_dimensions_is_one():
    (number,) = arguments([[]], ["double"], [[]], [""])
    assert (number.shape, elements_of(number)) == ((), 1)


def test_what_the_trace_lacks_raises_when_it_is_asked_for():
    listed, long, sparse = arguments(
        [[[2, 3], [4]], [], [5, 5]],
        ["TensorList", "TensorList", "float"],
        [[], [], []],
        ["", "", ""],
    )
    assert [elements_of(one) for one in listed] == [6, 4]
    for ask in (lambda: listed[0].dtype, lambda: listed[0].itemsize, lambda: list(long)):
        with pytest.raises(MissingOperandError):
            ask()
    assert isinstance(sparse, MissingTensor)
    with pytest.raises(MissingOperandError, match="sparse"):
        elements_of(sparse)


def test_traces_without_values_know_no_numbers():
    _, mask, factor = arguments([[2], [], []], ["float", "", "Scalar"], None, None)
    for value in (mask, factor):
        assert isinstance(value, MissingValue)
        for ask in (bool, len, list, float, lambda one: one == 0, lambda one: one[0]):
            with pytest.raises(MissingOperandError, match="values"):
                ask(value)
