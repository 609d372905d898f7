"""Fewer points of a series that cover the same pixels."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.live.history_view import downsampled


def test_few_values_stay():
    assert downsampled([3.0, 1.0, 2.0], 4) == [0, 1, 2]


def test_ends_and_extremes_of_each_stretch():
    values = [5.0, 1, 9, 5, 5, 5, 5, 5, 2.0, 3, 4, 0, 8, 7, 6, 1]
    assert downsampled(values, 8) == [0, 1, 2, 7, 8, 11, 12, 15]


@given(st.integers(1, 5_000), st.integers(1, 50))
def test_no_spike_is_lost(count, quarter):
    values = np.zeros(count)
    values[count // 3] = 7.0
    values[count // 2] -= 9.0
    positions = downsampled(values.tolist(), 4 * quarter)
    assert len(positions) <= max(4 * quarter, count if count <= 4 * quarter else 0)
    assert positions == sorted(set(positions))
    assert {0, count - 1} <= set(positions)
    assert {values[at] for at in positions} >= {values.min(), values.max()}
