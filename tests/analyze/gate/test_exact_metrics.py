"""Exact metrics under a tolerance, on numbers that no run would give."""

import pytest

from torchgauge.analyze.gate.stored_gate import exact_ruling
from torchgauge.records.comparison import Change
from torchgauge.records.verdict import Tolerance


@pytest.mark.parametrize("baseline", [0, -5])
def test_more_than_a_baseline_that_is_none_never_passes(baseline):
    change = Change(
        metric="params", unit="", how="counted", better="lower", exact=True,
        baseline=baseline, current=100, judgement="worse",
        change=100 / baseline - 1 if baseline else None,
    )  # fmt: skip
    ruling = exact_ruling(change, Tolerance(metric="params", accepted=0.01, refused=0.03))
    assert ruling.outcome == "fail"
