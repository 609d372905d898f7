import msgspec
import pytest
from tests.analyze.costs import ROOFS, cost, row, size

from torchgauge.analyze.elsewhere import elsewhere
from torchgauge.device import peaks

MADE = cost(row(matmul_flops=10**9, bytes=10**6))


def test_latency_memory_and_fit_by_hand():
    found = elsewhere(MADE, size(6 * 10**8, 10**8), ROOFS, 2 * 10**8, inputs=10**6)
    assert found.latency == pytest.approx(0.01)
    assert found.memory == 901 * 10**6
    assert (found.memory_available, found.fits) == (10**9, True)
    assert found.how == "estimated"
    assert not found.latency_at_least
    assert not found.memory_at_least


def test_what_is_known_does_not_fit():
    assert elsewhere(MADE, size(6 * 10**8), ROOFS, 5 * 10**8).fits is False
    assert elsewhere(MADE, size(6 * 10**8), ROOFS, states=5 * 10**8).fits is False


def test_without_activations_it_is_not_said_to_fit():
    found = elsewhere(MADE, size(4), ROOFS)
    assert (found.fits, found.memory_at_least) == (None, True)


def test_uninitialised_parameters_are_missing_from_the_memory():
    found = elsewhere(MADE, size(4, uninitialized=("a.weight",)), ROOFS, 0)
    assert (found.fits, found.memory_at_least) == (None, True)


def test_a_device_of_unknown_memory():
    roofs = msgspec.structs.replace(ROOFS, memory=None)
    assert elsewhere(MADE, size(4), roofs, 0).fits is None


def test_an_unknown_operator_makes_the_latency_at_least():
    made = cost(*MADE.rows, row(operator="my::op", known=False))
    assert elsewhere(made, size(), ROOFS).latency_at_least


def test_on_an_h100_from_its_datasheet():
    # 989.5 TFLOP of bfloat16 products take a second; 3.35 GB of traffic take a millisecond.
    made = cost(
        row(dtype="bfloat16", matmul_flops=989_500 * 10**9, bytes=10**9),
        row(operator="aten::copy_", dtype="bfloat16", bytes=3_350 * 10**6),
    )
    found = elsewhere(made, size(70 * 10**9), peaks.find("h100"), 0)
    assert found.latency == pytest.approx(1.001)
    assert found.fits
    assert "H100" in found.sources["bfloat16"]
    assert elsewhere(made, size(90 * 10**9), peaks.find("h100")).fits is False
