"""Microseconds as text to nanoseconds, against exact decimals."""

from __future__ import annotations

import decimal

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import example, given, settings

from torchgauge.readers.kineto.times import nanoseconds

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


@pytest.mark.thorough
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
        with pytest.raises(ValueError, match="not a time"):
            nanoseconds(raw)


usual = st.builds(
    "{}{}".format,
    st.integers(0, 9 * 10**15),
    st.sampled_from(["", ".0", ".5", ".25", ".001", ".489", ".999"]),
)


@pytest.mark.thorough
@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.lists(usual, min_size=1, max_size=4))
@example(["999999999999999.999", "8999999999999999.999"])  # as large as what is read at once
@example(["9223372036854775.807", "9000000000000000", "9000000000000000.5"])
@example(["-3", "1669783687464301", "", "12.75"])
@example(["9223372036854775"])
@example(["4398046511103.999", "4398046511104.001", "8796093022208.001"])  # 2⁴² and 2⁴³ µs
@example(["0.001", "1.000", "007"])
@example(["1.0004", "1.0005", "1.001"])
def test_what_torch_writes_is_read_at_once_and_exactly(texts):
    raw = [msgspec.Raw(text.encode()) for text in texts]
    assert nanoseconds(raw).tolist() == [exact(text or "0") for text in texts]


@pytest.mark.parametrize("text", ["9223372036854775.808", "9999999999999999", "9300000000000000.5"])
def test_what_an_int64_does_not_hold_is_no_time(text):
    with pytest.raises(ValueError, match="not a time"):
        nanoseconds([msgspec.Raw(text.encode()), msgspec.Raw(b"1.5")])


@pytest.mark.parametrize("texts", [["1.2.3"], ["1.2.3", "4"], ["1,5"], ["1,5", ""], [".", "1"]])
def test_dots_and_commas_too_many_are_no_time(texts):
    with pytest.raises(ValueError, match="not a time"):
        nanoseconds([msgspec.Raw(text.encode()) for text in texts])


def test_what_is_absent_lasts_no_time():
    assert nanoseconds([msgspec.Raw(), msgspec.Raw(b"1.5")]).tolist() == [0, 1500]
    assert nanoseconds([msgspec.Raw()]).tolist() == [0]
    assert nanoseconds([]).tolist() == []
