"""Precisions by the names that torch and others give them."""

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.errors import InputError
from torchgauge.sweeps.grid import Grid
from torchgauge.targets.precisions import precision_named
from torchgauge.targets.target import TargetRequest


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("bf16", "bf16"), ("BF16", "bf16"), ("bfloat16", "bf16"), ("torch.bfloat16", "bf16"),
        (torch.bfloat16, "bf16"), ("half", "fp16"), ("float16", "fp16"), ("Float32", "fp32"),
        ("float", "fp32"), (" tf32 ", "tf32"),
    ],
)  # fmt: skip
def test_other_names_are_taken(name, ours):
    assert precision_named(name) == ours
    assert TargetRequest("m.py:f", precision=name).precision == ours


@pytest.mark.parametrize(
    ("name", "remedy"), [("fp61", "Did you mean fp16?"), ("bf6", "bf16"), ("fp8", "Choose one")]
)
def test_what_is_none_names_the_nearest(name, remedy):
    with pytest.raises(InputError) as caught:
        precision_named(name)
    assert caught.value.id == "precision-unknown"
    assert remedy in caught.value.remedy


def test_a_model_is_converted_by_any_of_the_names():
    profile = tg.profile(
        nn.Linear(4, 4), torch.ones(1, 4), precision="bfloat16", detail="summary",
        warmup=0, iterations=2, roofs=False,
    )  # fmt: skip
    assert profile.target.precision == "bf16"


def test_a_sweep_has_one_cell_of_one_precision():
    grid = Grid.from_axes({"precision": "half,fp16,float32,int8"})
    assert grid.values["precision"] == ("fp16", "fp32", "int8")
