"""Outputs against outputs, by figures worked out by hand."""

import dataclasses
import math

import pytest
import torch

from torchgauge.measure.advice.outputs import compared, host_copies


def check(before, after, tolerance=0.1, **options):
    return compared(host_copies(before), host_copies(after), tolerance, **options)


def test_a_tensor_s_error_is_told_by_its_own_size_and_means_over_all():
    before = (torch.tensor([[3.0, -4.0]]), torch.tensor([1.0]))
    after = (torch.tensor([[3.0, -3.6]]), torch.tensor([1.2]))
    found = check(before, after, 0.21)
    assert found.passed
    assert found.max_absolute == pytest.approx(0.4)
    assert found.mean_absolute == pytest.approx(0.2)
    assert found.max_relative == pytest.approx(0.2 / 1)
    assert found.mean_relative == pytest.approx(0.2 / (8 / 3))
    dot = 9 + 4 * 3.6 + 1.2
    assert found.cosine == pytest.approx(
        dot / math.sqrt((9 + 16 + 1) * (9 + 3.6**2 + 1.2**2)), rel=1e-6
    )
    assert found.argmax_agreement == 1.0
    assert not check(before, after, tolerance=0.19).passed


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


def test_large_outputs_are_compared_in_parts(monkeypatch):
    """Nine copies of the logits in float64 were more than the model itself needed."""
    torch.manual_seed(0)
    before, after = torch.randn(7, 5), torch.randn(7, 5)
    before[0, 0] = after[0, 0] = math.inf
    whole = check(before, after, 0.5)
    monkeypatch.setattr("torchgauge.measure.advice.outputs._ELEMENTS", 3)
    parts = check(before, after, 0.5)
    for name in ("mean_absolute", "mean_relative", "max_absolute", "max_relative", "cosine"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name)), name
    assert parts.argmax_agreement == whole.argmax_agreement
    old, new = before.flatten()[1:].double(), after.flatten()[1:].double()
    assert whole.cosine == pytest.approx(float(old @ new / (old.norm() * new.norm())))


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int32, torch.float16, torch.bfloat16,
              torch.complex64, torch.float8_e4m3fn],
)  # fmt: skip
def test_outputs_of_every_type_are_compared(dtype):
    some = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).to(dtype)
    assert check(some, some.clone()).passed
    other = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).to(dtype)
    assert not check(some, other).passed


def test_large_outputs_hide_no_small_one():
    boxes, scores = torch.tensor([900.0, 300.0]), torch.tensor([0.9, 0.1])
    assert not check((boxes, scores), (boxes, scores.flip(0))).passed
    # What is rounding beside the others has no scale of its own.
    assert check((boxes, torch.tensor([1e-9])), (boxes, torch.tensor([-1e-9]))).passed


def test_labels_must_be_the_same_and_pictures_alike():
    labels = torch.tensor([997, 998])
    found = check(labels, labels + 1)
    assert not found.passed
    assert found.reason == "2 whole numbers (labels, indices) of its output changed."
    assert check(labels, labels + 1, metrics=(0.9, 0.9)).passed
    picture = torch.tensor([200, 100], dtype=torch.uint8)
    assert check(picture, picture + 1).passed
    assert not check(torch.tensor([True] * 9), torch.tensor([True] * 8 + [False]), 2.0).passed


def test_infinities_and_nan_are_not_each_other():
    mask, broken = torch.tensor([1.0, -math.inf]), torch.tensor([1.0, math.nan])
    assert not check(mask, broken).passed
    assert not check(mask, -mask.abs() * torch.tensor([-1.0, -1.0])).passed
    assert check(broken, broken.clone()).passed


def test_an_original_of_nan_alone_is_no_measure():
    found = check(torch.full((2,), math.nan), torch.full((2,), math.nan))
    assert not found.passed
    assert "no finite number" in found.reason
    assert check(torch.ones(0), torch.ones(0)).passed


def test_one_tensor_in_two_places_may_become_two():
    x = torch.ones(2)
    assert check({"last": x, "all": (x,)}, {"last": x, "all": (x.clone(),)}).passed


def test_outputs_may_be_objects_with_slots_and_of_every_layout():
    @dataclasses.dataclass(slots=True)
    class Output:
        logits: torch.Tensor

    assert check(Output(torch.ones(2)), Output(torch.ones(2))).passed
    assert not check(Output(torch.ones(2)), Output(torch.zeros(2))).passed
    sparse = torch.eye(2).to_sparse()
    assert check(sparse, sparse * 1.01).passed
    assert not check(sparse, sparse * 2).passed


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
