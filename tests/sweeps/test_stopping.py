"""When a batch is left out, and what is said of it."""

import msgspec
import pytest
from tests.support.sweeps import cell, ended

from torchgauge.records.sweep import CellSettings
from torchgauge.sweeps.grid_sweep import left_out


def reason(batch, cells, **settings):
    found = left_out(CellSettings(batch=batch, **settings), cells)
    return None if found is None else (found.status, found.reason)


def rates(*per_second, error=0.001):
    return [
        cell(2**i, 2**i / rate, memory=10 + 2**i, error=error) for i, rate in enumerate(per_second)
    ]


def test_nothing_is_left_out_without_cause():
    assert reason(1, []) is None
    assert reason(None, rates(100, 100, 100)) is None
    assert reason(8, rates(100, 150, 200)) is None


def test_a_row_ends_where_two_batches_bring_nothing():
    status, said = reason(16, rates(100, 200, 202, 203))
    assert status == "skipped"
    assert said == (
        "throughput saturates: batches 4 and 8 gain significantly less than 3.0 % over the "
        "200 samples/s of batch 2"
    )
    assert reason(8, rates(100, 200, 202)) is None  # one batch without gain is none too many
    assert reason(16, rates(100, 200, 202, 207)) is None


def test_noise_ends_no_row():
    assert reason(16, rates(100, 200, 190, 190, error=0.001)) is not None
    assert reason(16, rates(100, 200, 190, 190, error=0.20)) is None


def test_what_would_not_fit_is_predicted():
    cells = [cell(b, b / (100 * b**0.5), memory=1000 + 1000 * b, capacity=10_000, overhead=500)
             for b in (1, 2, 4)]  # fmt: skip
    assert reason(8, cells) is None  # 9,000 + 500
    status, said = reason(16, cells)
    assert status == "skipped"
    assert said == (
        "memory would not fit: about 17.5 kB expected from batches 1, 2, 4, 10.0 kB there"
    )


TIMED_OUT = msgspec.structs.replace(ended("failed", "It hung.", batch=4), error="child-timeout")


@pytest.mark.parametrize(
    ("before", "status", "says"),
    [
        (ended("out of memory", batch=4), "skipped", "batch 4 ran out of memory"),
        (TIMED_OUT, "skipped", "batch 4 did not end in time"),
        (ended("unsupported", "no such arithmetic", batch=4), "unsupported", "no such arithmetic"),
    ],
)
def test_what_ended_a_smaller_batch_ends_the_row(before, status, says):
    assert reason(8, [cell(1), before]) == (status, says)
    assert reason(2, [cell(1), before]) is None


def test_other_rows_and_crashes_are_no_reason():
    assert reason(8, [ended("crashed", batch=4), ended("failed", batch=2)]) is None
    assert reason(8, [ended("out of memory", batch=4)], precision="bf16") is None
