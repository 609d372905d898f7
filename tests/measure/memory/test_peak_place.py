"""What runs when memory peaks, and which parts are alive at every moment of a step.

float32 has 4 bytes.
"""

import torch
from tests.support.step_memory import ADAM, measured
from torch import nn

from torchgauge.records.memory.memory import PARTS


class Block(nn.Module):
    """Makes far more in its second layer than in its first and its last."""

    def __init__(self):
        super().__init__()
        self.narrow, self.wide, self.out = nn.Linear(4, 4), nn.Linear(4, 1000), nn.Linear(1000, 1)

    def forward(self, x):
        return self.out(self.wide(self.narrow(x)).exp_())


def test_the_peak_names_the_innermost_layer_and_the_operator():
    with torch.no_grad():
        result = measured(nn.Sequential(Block()).eval(), torch.ones(8, 4))
    # `wide` makes 8 × 1000 beside the 8 × 4 of `narrow`, which are gone when `out` makes its 8.
    assert result.activations == 4 * (8_000 + 32)
    assert (result.peak_layer, result.peak_operator, result.peak_phase) == (
        "0.wide", "aten::linear", "forward",
    )  # fmt: skip


class Growing(nn.Module):
    def forward(self, x):
        return (x.repeat(1000)[:1]).clone()


def test_a_peak_outside_every_inner_layer_is_the_models_own():
    result = measured(Growing().eval(), torch.ones(8))
    assert (result.peak_layer, result.peak_operator) == ("Growing", "aten::repeat")


def test_a_peak_in_the_backward_pass_says_so():
    result = measured(Block(), torch.ones(8, 4), ADAM)
    assert result.peak_phase in ("backward", "optimizer")
    assert result.peak_operator


def test_a_step_that_makes_nothing_peaks_nowhere():
    result = measured(nn.Identity().eval(), torch.ones(8))
    assert (result.peak_layer, result.peak_operator, result.peak_phase) == ("", "", "")


def test_the_parts_of_every_moment_add_up_and_those_of_the_peak_are_the_records():
    for train in (None, ADAM):
        result = measured(Block(), torch.ones(8, 4), train)
        assert all(sum(point.parts) == point.live for point in result.timeline)
        highest = next(point for point in result.timeline if point.live == result.peak)
        assert dict(zip(PARTS, highest.parts, strict=True)) == result.parts
        assert min(min(point.parts) for point in result.timeline) >= 0
    # Parameters and Adam's two moments are there all the time.
    parameters = sum(p.numel() for p in Block().parameters()) * 4
    assert {point.parts[PARTS.index("parameters")] for point in result.timeline} == {parameters}
