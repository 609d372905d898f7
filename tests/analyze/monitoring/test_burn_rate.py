"""Burn rates, by arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.histograms import histogram_of

from torchgauge.analyze.monitoring.window_alerts import Objective, bad_calls, burn_rate
from torchgauge.records.monitoring.window import Window

NOW = 1_000_000.0
OBJECTIVE = Objective(0.99, 0.1)


def window(end, fast=0, slow=0, **fields):
    values = [0.01] * fast + [1.0] * slow
    usual = {"count": len(values), "begin": NOW + end - 60, "end": NOW + end}
    return Window(series="latency", histogram=histogram_of(values), **(usual | fields))


def test_an_hour_that_burns_and_five_minutes_that_do_not():
    # 30 of 200 calls in the hour are bad, 1 of 100 in the last five minutes.
    windows = [window(-1800, fast=71, slow=29), window(0, fast=99, slow=1)]
    rate = burn_rate(windows, OBJECTIVE, NOW)
    assert rate.long == pytest.approx(30 / 200 / 0.01)
    assert rate.short == pytest.approx(1 / 100 / 0.01)
    assert rate.bad == pytest.approx(30)
    assert not rate.exceeds(14.4)
    assert rate.exceeds(0.9)


def test_both_must_burn_and_by_more_than_single_calls():
    assert burn_rate([window(0, fast=80, slow=20)], OBJECTIVE, NOW).exceeds()
    assert not burn_rate([window(0, fast=1, slow=4)], OBJECTIVE, NOW).exceeds()
    old = burn_rate([window(-900, fast=80, slow=20)], OBJECTIVE, NOW)
    assert old.short is None
    assert not old.exceeds()


def test_failed_and_untimed_calls_count():
    # 100 calls, 10 failed; of 10 timed ones 2 were slow, so 18 of the 90 that did not fail.
    half = window(0, fast=8, slow=2, count=100, errors={"ValueError": 10})
    assert bad_calls(half, OBJECTIVE) == pytest.approx(28)
    assert bad_calls(half, Objective(0.99)) == 10


def test_windows_belong_to_the_span_that_has_their_middle():
    windows = [window(-3640 + 30, slow=1), window(-3640, slow=10)]
    assert burn_rate(windows, OBJECTIVE, NOW).long is None
    assert burn_rate([window(-3569, slow=1)], OBJECTIVE, NOW).long == pytest.approx(100)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=9))
def test_a_rate_lies_between_none_and_all_bad(minutes):
    windows = [window(-60 * n, fast, slow) for n, (fast, slow) in enumerate(minutes)]
    rate = burn_rate(windows, OBJECTIVE, NOW)
    for value in (rate.short, rate.long):
        assert value is None or -1e-9 <= value <= 100 + 1e-9
