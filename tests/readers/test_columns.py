"""Columns that grow: narrow where all fits, exact where something does not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.kineto_events import copy, launch, op, read

from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.readers.columns import Narrow, Numbers, Parts, Triples

integers = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.lists(integers, max_size=5), max_size=8))
def test_every_number_is_kept(chunks):
    column = Numbers(np.int64)
    for chunk in chunks:
        column.add(chunk, len(chunk))
    assert column.finish().tolist() == [number for chunk in chunks for number in chunk]
    assert column.finish().tolist() == []  # it is empty afterwards


def test_small_numbers_take_four_bytes_and_one_large_one_widens_all():
    column = Numbers(np.int64)
    column.add([1, 2**31 - 1], 2)
    column.add([-(2**31)], 1)
    assert column.finish().dtype == np.int32
    column.add([1], 1)
    column.add([2**31], 1)
    column.add([3], 1)
    found = column.finish()
    assert (found.dtype, found.tolist()) == (np.int64, [1, 2**31, 3])


def test_floats_and_flags_keep_their_types():
    for dtype, values in ((np.float64, [0.5, 1e300]), (np.bool_, [True, False])):
        column = Narrow(dtype)
        column.append(np.array(values, dtype))
        found = column.finish()
        assert (found.dtype, found.tolist()) == (dtype, values)


def test_times_stay_wide():
    column = Parts(np.int64)
    column.append(np.array([1, 2]))
    assert column.finish().dtype == np.int64


def test_triples_are_rows():
    column = Triples()
    column.add([(1, 2, 3), (4, 5, 2**40)], 2)
    assert column.finish().tolist() == [[1, 2, 3], [4, 5, 2**40]]


def test_sums_of_narrow_columns_are_not_cut():
    gigabytes = 2_000_000_000  # two of them are more than four bytes hold
    found, _ = rank_trace(
        read(
            op("aten::copy_", 0, 50),
            *([launch(n, n), copy("Memcpy HtoD (Pinned -> Device)", 100 * n, 50, n, gigabytes)]
              for n in (1, 2)),
        ),
        "made.json",
    )  # fmt: skip
    (copies,) = found.copies
    assert copies.bytes == 2 * gigabytes
    assert copies.bandwidth == pytest.approx(gigabytes / 50e-6)
