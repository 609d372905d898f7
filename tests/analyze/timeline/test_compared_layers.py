"""Eager beside compiled time of layers, by hand: what is compared, and that parts add up."""

import pytest

from torchgauge.analyze.timeline.compared_layers import KernelTime, SideTimes, compared_layers

EAGER = SideTimes(100.0, {"": 5.0, "conv": 40.0, "norm": 20.0, "act": 10.0, "drop": 1.0, "late": 9})
# "late" is not compiled; "" is the region's root.
COMPILED = SideTimes(70.0, {"": 6.0, "late": 8.0})
KERNELS = [
    KernelTime("conv_kernel", ("conv",), 30.0),
    KernelTime("fused", ("norm", "act"), 12.0),
    KernelTime("act_again", ("act",), 3.0),
    KernelTime("strange", None, 4.0),
]


def compared(kernels=KERNELS):
    return {row.layers or row.part: row for row in compared_layers(EAGER, COMPILED, kernels, {""})}


def test_layers_that_a_kernel_spans_are_one_entry():
    rows = compared()
    assert (rows["conv",].eager, rows["conv",].compiled) == (40.0, 30.0)
    fused = rows["norm", "act"]
    assert (fused.eager, fused.compiled, fused.kernels) == (30.0, 15.0, ("fused", "act_again"))
    assert (rows["drop",].eager, rows["drop",].compiled) == (1.0, None)  # "strange" may be its
    assert compared(KERNELS[:3])["drop",].compiled == 0.0
    assert rows["late",].compiled == 8.0
    assert rows["",].compiled is None  # the region's own time is outside kernels
    assert rows["compiled code outside kernels"].compiled == 6.0
    assert rows["kernels of unknown layers"].compiled == 4.0


def test_both_columns_add_up_to_their_steps():
    rows = compared_layers(EAGER, COMPILED, KERNELS, {""})
    assert sum(row.eager or 0.0 for row in rows) == pytest.approx(100.0)
    assert sum(row.compiled or 0.0 for row in rows) == pytest.approx(70.0)
    assert rows[-1].part == "rest of the step"
    assert (rows[-1].eager, rows[-1].compiled) == (15.0, 7.0)


def test_entries_that_share_a_layer_are_joined_in_any_order():
    kernels = [
        KernelTime("a", ("drop", "late"), 1.0),
        KernelTime("b", ("conv", "norm"), 2.0),
        KernelTime("c", ("norm", "late"), 3.0),
    ]
    rows = compared(kernels)
    (joined,) = [row for layers, row in rows.items() if "conv" in layers]
    assert set(joined.layers) == {"conv", "norm", "late", "drop"}
    assert joined.compiled == 1.0 + 2.0 + 3.0 + 8.0
    assert rows["act",].compiled == 0.0
