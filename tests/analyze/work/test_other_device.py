import msgspec
import pytest
from tests.support.operator_costs import ROOFS, cost, row, size

from torchgauge.analyze.memory.training_memory import Passes, Trainable, training_memory
from torchgauge.analyze.work.lower_bound import estimate_on_device
from torchgauge.device.roofs import peaks

MADE = cost(row(matmul_flops=10**9, bytes=10**6))


WEIGHT = [Trainable((10**6, 25), "float32", 4)]  # 100 MB, and a gradient of as much


def trained(model, activations=0, optimizer="sgd", inputs=0, *, workspace=0, known=True):
    """Return a step that holds its activations, then its gradients and workspace beside them."""
    parts = {"gradients": 10**8, "activations": activations, "workspace": workspace}
    passes = Passes(sum(parts.values()), "backward", parts, activations, after_backward=10**8)
    return training_memory(
        model, WEIGHT, inputs=inputs, passes=passes if known else None, optimizer=optimizer
    )


def test_latency_memory_and_fit_by_hand():
    model = size(5 * 10**8, 10**8)
    found = estimate_on_device(MADE, model, ROOFS, trained(model, 10**8, inputs=10**6))
    assert found.latency == pytest.approx(0.01)
    assert found.memory == 801 * 10**6
    assert (found.memory_available, found.fits) == (10**9, True)
    assert found.how == "estimated"
    assert not found.latency_at_least
    assert not found.memory_at_least


def test_what_is_known_does_not_fit():
    model = size(6 * 10**8)
    assert estimate_on_device(MADE, model, ROOFS, trained(model, 5 * 10**8)).fits is False
    assert estimate_on_device(MADE, model, ROOFS, trained(model, 0, "sgd-momentum")).fits is True
    assert estimate_on_device(MADE, model, ROOFS, trained(model, 0, "adamw-amsgrad")).fits is False
    assert estimate_on_device(MADE, model, ROOFS, inputs=5 * 10**8).fits is False


@pytest.mark.parametrize(("total", "fits"), [(89, True), (91, None), (114, None), (116, False)])
def test_a_step_may_fit_where_estimates_are_no_nearer_than_the_limit(total, fits):
    model = size(5 * 10**8)  # of a device of 1 GB
    found = estimate_on_device(
        MADE, model, ROOFS, trained(model, workspace=total * 10**7 - 6 * 10**8)
    )
    assert (found.fits, found.memory, found.memory_at_least) == (fits, total * 10**7, False)


def test_a_step_that_was_not_simulated_is_at_least_and_never_may_fit():
    model = size(5 * 10**8)
    found = estimate_on_device(MADE, model, ROOFS, trained(model, known=False))
    assert (found.fits, found.memory, found.memory_at_least) == (None, 6 * 10**8, True)


def test_without_activations_it_is_not_said_to_fit():
    found = estimate_on_device(MADE, size(4), ROOFS, inputs=6)
    assert (found.fits, found.memory, found.memory_at_least) == (None, 10, True)


def test_uninitialised_parameters_are_missing_from_the_memory():
    model = size(4, uninitialized=("a.weight",))
    found = estimate_on_device(MADE, model, ROOFS, trained(model))
    assert (found.fits, found.memory_at_least) == (None, True)


def test_a_device_of_unknown_memory():
    roofs = msgspec.structs.replace(ROOFS, memory=None)
    assert estimate_on_device(MADE, size(4), roofs, trained(size(4))).fits is None


def test_an_unknown_operator_makes_the_latency_at_least():
    made = cost(*MADE.rows, row(operator="my::op", has_formula=False))
    assert estimate_on_device(made, size(), ROOFS).latency_at_least


def test_on_an_h100_from_its_datasheet():
    # 989.5 TFLOP of bfloat16 products take a second; 3.35 GB of traffic take a millisecond.
    made = cost(
        row(dtype="bfloat16", matmul_flops=989_500 * 10**9, bytes=10**9),
        row(operator="aten::copy_", dtype="bfloat16", bytes=3_350 * 10**6),
    )
    model = size(70 * 10**9)
    found = estimate_on_device(made, model, peaks.find("h100"), trained(model))
    assert found.latency == pytest.approx(1.001)
    assert found.fits
    assert "H100" in found.sources["bfloat16"]
    assert estimate_on_device(made, size(90 * 10**9), peaks.find("h100")).fits is False
