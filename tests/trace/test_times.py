"""Microseconds as text to nanoseconds, against exact decimals."""

from __future__ import annotations

import decimal

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import example, given, settings

from torchgauge.trace.times import nanoseconds

digits = st.text("0123456789", min_size=1, max_size=22)
numbers = st.one_of(
    digits,
    st.builds("{}.{}".format, digits, digits),
    st.builds("-{}.{}".format, digits, digits),
    st.builds("{}.{}e{}".format, digits, digits, st.integers(-12, 12)),
)


def exact(text):
    value = decimal.Decimal(text) * 1000
    return int(value.to_integral_value(decimal.ROUND_HALF_UP))


@settings(max_examples=500, derandomize=True, deadline=None)
@given(st.lists(numbers, max_size=4))
@example(["0.0005", "9223372036854775.807", "1790857026123456.789", "12345.67891"])
@example(["18446744073709551.616"])  # 2⁶⁴ ns, which wraps around to 0
@example(["18446744073709551616.5"])
def test_any_number_is_exact_or_refused(texts):
    raw = [msgspec.Raw(text.encode()) for text in texts]
    truth = [exact(text) for text in texts]
    if all(abs(value) < 2**63 for value in truth):
        assert nanoseconds(raw).tolist() == truth
    else:
        with pytest.raises(ValueError, match="no time"):
            nanoseconds(raw)


def test_what_is_absent_lasts_no_time():
    assert nanoseconds([msgspec.Raw(), msgspec.Raw(b"1.5")]).tolist() == [0, 1500]
    assert nanoseconds([msgspec.Raw()]).tolist() == [0]
    assert nanoseconds([]).tolist() == []
