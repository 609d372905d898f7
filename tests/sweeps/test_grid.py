"""Axes as they are written, and the order of the cells."""

import pytest

from torchgauge.errors import InputError
from torchgauge.records.sweep import CellSettings
from torchgauge.sweeps.grid import Grid


def test_small_batches_come_first_and_what_is_compared_side_by_side():
    grid = Grid.from_axes({"batch": "4,1", "precision": ["fp32", "bf16"], "threads": None})
    assert list(grid.cells()) == [
        CellSettings(batch=batch, precision=precision)
        for batch in (1, 4)
        for precision in ("fp32", "bf16")
    ]
    assert grid.as_texts() == {"batch": ("4", "1"), "precision": ("fp32", "bf16")}


def test_values_are_what_their_axis_holds():
    grid = Grid.from_axes({
        "batch": 2, "threads": "1, 2,2", "channels_last": "yes,no", "compile": ("none", "default"),
        "seq_len": [128], "device": "cpu", "interop": 1,
    })  # fmt: skip
    assert grid.values == {
        "batch": (2,), "compile": ("none", "default"), "channels_last": (True, False),
        "threads": (1, 2), "interop": (1,), "device": ("cpu",), "seq_len": (128,),
    }  # fmt: skip
    assert grid.as_texts()["channels_last"] == ("yes", "no")
    assert len(list(grid.cells())) == 8


def test_an_automatic_batch_doubles():
    grid = Grid.from_axes({"batch": "auto", "precision": "fp32"})
    assert grid.automatic
    assert [one.batch for one in grid.cells()][:4] == [1, 2, 4, 8]
    assert grid.as_texts()["batch"] == ("auto",)


def test_a_grid_without_axes_is_one_cell():
    assert list(Grid.from_axes({}).cells()) == [CellSettings()]
    assert CellSettings().label == "as given"


@pytest.mark.parametrize(
    ("axes", "id", "says"),
    [
        ({"batchs": 1}, "axis-unknown", "batch"),
        ({"batch": "1,x"}, "axis-invalid", "whole number"),
        ({"batch": 0}, "axis-invalid", "whole number"),
        ({"batch": 1.5}, "axis-invalid", "whole number"),
        ({"batch": True}, "axis-invalid", "whole number"),
        ({"batch": []}, "axis-invalid", "at least one"),
        ({"precision": "fp8"}, "axis-invalid", "int8"),
        ({"compile": "fast"}, "axis-invalid", "reduce-overhead"),
        ({"channels_last": "maybe"}, "axis-invalid", "yes or no"),
    ],
)
def test_what_no_axis_takes_is_refused(axes, id, says):
    with pytest.raises(InputError) as caught:
        Grid.from_axes(axes)
    assert caught.value.id == id
    assert says in caught.value.remedy


def test_a_label_says_what_is_set():
    settings = CellSettings(
        batch=4, precision="bf16", compile="none", channels_last=False, threads=1
    )
    assert settings.label == "batch 4, bf16, eager, contiguous, 1 thread"
    assert settings.series.label == "bf16, eager, contiguous, 1 thread"
