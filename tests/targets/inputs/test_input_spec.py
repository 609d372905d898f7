"""The grammar of --input."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.errors import InputError
from torchgauge.targets.inputs.fake_tensors import RandomTensors
from torchgauge.targets.inputs.input_spec import (
    DTYPES,
    INTEGERS,
    LARGEST_SIZE,
    InputSpec,
    make_inputs,
    parse,
    parse_all,
)

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True)
shapes = st.lists(st.integers(1, LARGEST_SIZE), min_size=1, max_size=6).map(tuple)


@st.composite
def specs(draw: st.DrawFn) -> InputSpec:
    dtype = draw(st.none() | st.sampled_from(DTYPES))
    shape = draw(shapes if dtype is None else shapes | st.just(()))
    high = None
    if dtype in INTEGERS:
        high = draw(st.none() | st.integers(1, INTEGERS[dtype]))
    return InputSpec(draw(st.none() | names), shape, dtype, high)


@given(specs())
def test_what_is_written_is_read_back(spec: InputSpec) -> None:
    assert parse(str(spec)) == spec


@given(st.text(max_size=30) | st.text(alphabet="0123456789x=:<int64bolfa_- ", max_size=30))
def test_any_text_is_a_spec_or_an_input_error(text: str) -> None:
    try:
        sizes, found = parse(text).shape, "input-spec"
    except InputError as error:
        sizes, found = (), error.id
    assert found == "input-spec"
    assert all(1 <= size <= LARGEST_SIZE for size in sizes)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("1x3x224x224", InputSpec(None, (1, 3, 224, 224))),
        ("input_ids=2x128:int64<50257", InputSpec("input_ids", (2, 128), "int64", 50257)),
        ("mask=2x128:bool", InputSpec("mask", (2, 128), "bool")),
        ("7", InputSpec(None, (7,))),
        ("scale=:float32", InputSpec("scale", (), "float32")),
        ("1x2:bf16", InputSpec(None, (1, 2), "bfloat16")),
        ("вход=2x4", InputSpec("вход", (2, 4))),
        ("0=2x4", InputSpec("0", (2, 4))),
    ],
)
def test_examples_of_the_grammar(text: str, spec: InputSpec) -> None:
    assert parse(text) == spec


@pytest.mark.parametrize(
    ("text", "character", "problem"),
    [
        ("", 1, "expected a size"),
        ("1x3xy", 5, "found 'y'"),
        ("1x0x4", 3, "between 1 and"),
        ("a=1x2:floot", 7, "'floot' is not a dtype"),
        ("1x2<5", 4, "needs an integer dtype"),
        ("1x2:float32<5", 12, "needs an integer dtype"),
        ("1x2:int8<200", 10, "between 1 and 128"),
        ("1x2:int64<", 11, "expected an upper bound"),
        ("=1x2", 1, "is not a name"),
        ("1x" + "9" * 5000, 3, "between 1 and"),
    ],
)
def test_an_error_names_the_place_of_the_problem(text: str, character: int, problem: str) -> None:
    with pytest.raises(InputError, match="cannot be read") as caught:
        parse(text)
    assert f"at character {character}," in caught.value.message
    assert problem in caught.value.message
    assert "1x3x224x224" in caught.value.remedy


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match="given 2 times"):
        parse_all(["a=1x2", "a=1x3"])


def test_inputs_have_the_shapes_dtypes_and_ranges_asked_for() -> None:
    inputs = make_inputs(
        ["4x5", "ids=1000:int64<7", "flags=1000:int32", "mask=100:bool", "x=:float64"],
        None,
        RandomTensors("cpu"),
    )
    (floats,) = inputs.args
    assert floats.shape == (4, 5)
    assert floats.dtype == torch.float32
    assert set(inputs.kwargs["ids"].tolist()) == set(range(7))
    assert set(inputs.kwargs["flags"].tolist()) == {0, 1}
    assert inputs.kwargs["flags"].dtype == torch.int32
    assert set(inputs.kwargs["mask"].tolist()) == {False, True}
    assert inputs.kwargs["x"].shape == ()
    assert inputs.kwargs["x"].dtype == torch.float64


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_can_be_made(dtype: str) -> None:
    tensor = parse(f"2x3:{dtype}").tensor(RandomTensors("cpu"))
    assert tensor.shape == (2, 3)
    assert tensor.dtype == getattr(torch, dtype)


def test_batch_replaces_the_leading_dimension_and_leaves_scalars() -> None:
    inputs = make_inputs(["1x3", "s=:float32"], 6, RandomTensors("cpu"))
    assert inputs.args[0].shape == (6, 3)
    assert inputs.kwargs["s"].shape == ()
