"""Changes of level in simulated days; benchmarks/monitor_alerts.py has the shares."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.histograms import histogram_of

from torchgauge.analyze.monitoring import level_change
from torchgauge.analyze.monitoring.level_blocks import Block, blocks_of, trimmed_mean
from torchgauge.analyze.monitoring.level_change import DAY, Budget, level_changes
from torchgauge.records.monitoring.window import Window

EVERY = 600.0


def days(count, seed=0, noise=0.01, step=0.0, at=0.0, until=math.inf):
    """Return blocks of 100 calls every ten minutes, by day up to a fifth slower than by night."""
    rng = np.random.default_rng(seed)
    ends = 1.7e9 + np.arange(1, int(count * DAY / EVERY) + 1) * EVERY
    levels = 0.2 * np.sin(2 * np.pi * ends / DAY) + rng.normal(0, noise, len(ends))
    since = ends - 1.7e9
    levels[(since > at * DAY) & (since <= until * DAY)] += math.log1p(step)
    return [
        Block(end, 100, level, 0.04)
        for end, level in zip(ends.tolist(), levels.tolist(), strict=True)
    ]


def test_the_time_of_day_is_no_change():
    result = level_changes(days(20))
    assert result.changes == ()
    assert result.smallest == pytest.approx(0.1)


def test_a_step_is_found_with_its_size_and_its_begin():
    (change,) = level_changes(days(12, step=0.1, at=8.5)).changes
    assert change.begin == pytest.approx(1.7e9 + 8.5 * DAY, abs=3600)
    assert change.size == pytest.approx(0.1, abs=0.02)
    assert 0 < change.calls <= 1000
    assert change.detected >= change.begin


def test_a_step_and_its_return_are_two_changes():
    rise, fall = level_changes(days(14, step=0.2, at=8, until=10)).changes
    assert rise.size == pytest.approx(0.2, abs=0.03)
    assert fall.size == pytest.approx(-1 / 6, abs=0.03)


def test_a_bad_minute_is_no_change():
    blocks = days(10)
    for index in (1000, 1100, 1234):
        blocks[index] = blocks[index]._replace(level=blocks[index].level + math.log(5))
    assert level_changes(blocks).changes == ()


def test_too_few_days_are_unknown():
    result = level_changes(days(4))
    assert result.changes == ()
    assert result.smallest is None
    assert "5 days" in result.unknown
    assert "0.0" in level_changes([]).unknown


def test_a_larger_budget_finds_sooner():
    blocks = [b._replace(variance=1.0) for b in days(10, step=0.25, at=8.5, noise=0.05)]
    strict = level_changes(blocks, budget=Budget(1, 10_000)).changes
    loose = level_changes(blocks, budget=Budget(10, 1)).changes
    assert strict
    assert loose[0].detected < strict[-1].detected


def test_hours_that_differ_much_raise_the_step_that_can_be_told():
    blocks = days(12)
    rng = np.random.default_rng(1)
    hours = rng.normal(0, 0.1, 12 * 24 + 1)
    blocks = [b._replace(level=b.level + hours[int((b.end - 1.7e9) // 3600)]) for b in blocks]
    assert level_changes(blocks).smallest > 0.2


@pytest.mark.thorough
def test_a_level_that_jumps_each_day_at_an_hour_is_no_change_then_and_one_at_other_hours(
    monkeypatch,
):
    jumps = np.random.default_rng(2).normal(0, 0.05, 17)

    def rises(**step):
        blocks = [
            block._replace(level=block.level + jumps[int((block.end - 1.7e9) // DAY)])
            for block in days(16, **step)
        ]
        return [change for change in level_changes(blocks).changes if change.size > 0]

    assert rises() == []
    (change,) = rises(step=0.1, at=12.5)
    assert change.begin == pytest.approx(1.7e9 + 12.5 * DAY, abs=3600)
    monkeypatch.setattr(level_change, "UNEQUAL_HOURS", math.inf)
    assert rises()


def test_the_sum_is_reached_as_seldom_as_the_budget_allows():
    """Hours do not differ, blocks are independent: simulated, and Siegmund's mean."""
    plan = level_change._plan(0.1, 0.0, 0.05**2, allowed=300.0)
    rng, alarms, blocks = np.random.default_rng(0), 0, 60_000
    total = 0.0
    for difference in rng.normal(0, 0.05, blocks).tolist():
        step, low = plan.step, plan.low
        total = max(total + (step - low) * (difference - (step + low) / 2) / 0.05**2, 0.0)
        if total >= plan.threshold:
            alarms, total = alarms + 1, 0.0
    assert plan.low == 0.0
    assert blocks / alarms == pytest.approx(300.0, rel=0.25)


def window(begin, values, seconds=60.0):
    histogram = histogram_of(values)
    return Window(
        series="latency", begin=begin, end=begin + seconds, count=len(values), histogram=histogram
    )


def test_small_windows_are_joined_and_too_small_hours_left_out():
    few = [window(60 * n, [0.1] * 20) for n in range(4)]
    assert [(block.end, block.calls) for block in blocks_of(few)] == [(180.0, 60)]
    assert blocks_of([window(4000 * n, [0.1] * 20) for n in range(4)]) == []
    assert blocks_of([window(0, [0.0] * 100)]) == []


def test_slow_calls_do_not_move_a_block_s_level():
    values = np.random.default_rng(0).lognormal(math.log(0.1), 0.2, 500).tolist()
    plain = blocks_of([window(0, values)])[0]
    slow = blocks_of([window(0, values[:490] + [10.0] * 10)])[0]
    assert plain.level == pytest.approx(math.log(0.1), abs=0.02)
    assert slow.level == pytest.approx(plain.level, abs=0.01)


def test_trimmed_mean_by_hand():
    # Of ten values the outer two are left out: 2 … 9; winsorized 2, 2, 3 … 8, 9, 9.
    level, variance = trimmed_mean(np.arange(1.0, 11.0), np.ones(10, np.int64))
    assert level == pytest.approx(5.5)
    winsorized = [2, 2, 3, 4, 5, 6, 7, 8, 9, 9]
    assert variance == pytest.approx(np.var(winsorized) / 0.64)


@settings(max_examples=20)
@given(st.lists(st.floats(1e-6, 1e3), min_size=50, max_size=60), st.floats(0.1, 10))
def test_a_level_moves_with_its_values(values, factor):
    first = blocks_of([window(0, values)])[0].level
    second = blocks_of([window(0, [value * factor for value in values])])[0].level
    assert second - first == pytest.approx(math.log(factor), abs=0.05)
