"""The figures of the model: sizes exactly, work and memory within limits."""

import pytest
from digits.model import example


def test_size(torchgauge):
    """The exact number: any change of the architecture shows."""
    model, _ = example()
    torchgauge.assert_params(model, equal=25_258)


def test_work_and_memory(torchgauge):
    """Limits with a margin: small changes pass."""
    torchgauge.assert_flops(*example(), below="20M")
    torchgauge.assert_memory(*example(), below="2MB")


@pytest.mark.torchgauge(budget=1)
def test_no_regression(torchgauge):
    """Compare with the run in baseline/; `--torchgauge-update` writes it."""
    torchgauge.assert_no_regression(*example())
