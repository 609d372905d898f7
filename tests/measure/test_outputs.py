"""Outputs against outputs, by figures worked out by hand."""

import math

import pytest
import torch

from torchgauge.measure.outputs import compared, kept


def check(before, after, tolerance=0.1, **options):
    return compared(kept(before), kept(after), tolerance, **options)


def test_errors_are_those_of_all_tensors_together():
    before = (torch.tensor([[3.0, -4.0]]), torch.tensor([1.0]))
    after = (torch.tensor([[3.0, -3.6]]), torch.tensor([1.2]))
    found = check(before, after, 0.11)
    assert found.passed
    assert found.max_absolute == pytest.approx(0.4)
    assert found.mean_absolute == pytest.approx(0.2)
    assert found.max_relative == pytest.approx(0.4 / 4)
    assert found.mean_relative == pytest.approx(0.2 / (8 / 3))
    dot = 9 + 4 * 3.6 + 1.2
    assert found.cosine == pytest.approx(
        dot / math.sqrt((9 + 16 + 1) * (9 + 3.6**2 + 1.2**2)), rel=1e-6
    )
    assert found.argmax_agreement == 1.0
    assert not check(before, after, tolerance=0.09).passed


def test_agreement_is_the_share_of_positions():
    before, after = torch.tensor([[1.0, 2.0], [1.0, 2.0]]), torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    assert check(before, after, 2.0).argmax_agreement == 0.5


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (torch.ones(3), "shape"),
        ((torch.ones(2), torch.ones(2)), "2 tensors"),
        (torch.tensor([1.0, math.nan]), "NaN"),
        (torch.tensor([1.0, math.inf]), "NaN or inf"),
        (torch.tensor([1.0, 5.0]), "more than is allowed"),
    ],
)
def test_a_broken_output_says_how(after, said):
    found = check(torch.ones(2), after)
    assert not found.passed
    assert said in found.reason


def test_a_mask_of_infinities_is_alike_on_both_sides():
    mask = torch.tensor([1.0, -math.inf])
    assert check(mask, mask.clone()).passed


def test_an_output_of_zeros_must_stay_so():
    assert check(torch.zeros(2), torch.zeros(2)).passed
    found = check(torch.zeros(2), torch.ones(2))
    assert not found.passed
    assert found.max_relative is None


def test_nothing_to_compare_is_not_the_same():
    assert "no tensor" in check("text", "text").reason


def test_of_a_larger_batch_the_first_samples_count():
    before = torch.arange(2.0)
    assert check(before, torch.cat([before, before]), times=2).passed
    assert not check(before, torch.cat([before + 9, before]), times=2).passed


@pytest.mark.parametrize(
    ("after", "passed"), [(0.905, True), (0.895, True), (0.88, False), (math.nan, False)]
)
def test_with_a_metric_it_is_the_metric_that_decides(after, passed):
    found = check(torch.ones(2), torch.full((2,), 7.0), 0.01, metrics=(0.9, after))
    assert found.passed is passed
    assert found.bounded == "metric"
    assert found.max_absolute == 6.0
