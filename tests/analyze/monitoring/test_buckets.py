"""Bounds of buckets: what they are by default, whose limits they have, what counts below them."""

import itertools
import statistics

import pytest
from tests.support.histograms import histogram_of

from torchgauge.analyze.history.alerts import Rule
from torchgauge.analyze.monitoring.buckets import bounds_of, default_bounds, with_limits
from torchgauge.analyze.monitoring.window_alerts import Objective, WindowRule
from torchgauge.records.monitoring.window import Window


def window(series="latency", unit="s", **fields):
    labels = {"monitor": "api"} | fields.pop("labels", {})
    return Window(series=series, unit=unit, labels=labels, begin=0, end=1, **fields)


@pytest.mark.parametrize(
    ("unit", "first", "last", "has"),
    [
        ("s", 1e-5, 100.0, {0.1, 0.2, 0.25, 0.5, 1.0}),
        ("", 1.0, 1e6, {*range(1, 11), 100.0, 250.0}),
        ("B", 1e3, 1e12, {1e9}),
        ("W", 1e-6, 1e6, {1.0}),
    ],
)
def test_ten_bounds_a_decade_of_what_a_unit_usually_has(unit, first, last, has):
    bounds = default_bounds(unit)
    assert (bounds[0], bounds[-1]) == (first, last)
    assert has <= set(bounds)
    assert all(a < b for a, b in itertools.pairwise(bounds))
    for decade in [bound for bound in bounds[:-1] if f"{bound:e}".startswith("1.000000e")]:
        inside = [bound for bound in bounds if decade <= bound < 10 * decade * 0.999]
        assert 9 <= len(inside) <= 10
        assert unit == "" or max(b / a for a, b in itertools.pairwise(inside)) <= 1.28


OBJECTIVE = WindowRule(name="o", kind="objective", monitor="ap*", objective=Objective(0.99, 0.123))
THRESHOLD = Rule(name="t", kind="threshold", metric="monitor_latency_p99", limit=0.222, unit="s")


@pytest.mark.parametrize(
    ("rule", "about", "has"),
    [
        (OBJECTIVE, window(), 0.123),
        (OBJECTIVE, window("request"), None),
        (OBJECTIVE, window(labels={"monitor": "batch"}), None),
        (WindowRule(name="o", kind="objective"), window(), None),
        (WindowRule(name="l", kind="level"), window(), None),
        (THRESHOLD, window(), 0.222),
        (THRESHOLD, window("request"), None),
        (THRESHOLD, window(unit="B"), None),
    ],
)
def test_limits_of_rules_on_the_series_are_bounds(rule, about, has):
    added = set(bounds_of(with_limits(about, [rule]))) - set(default_bounds(about.unit))
    assert added == ({has} if has else set())


def test_given_bounds_replace_the_usual_ones_and_keep_the_limits():
    given = window(buckets=(1.0, 0.05))  # of a file that is not ours
    assert bounds_of(given) == (0.05, 1.0)
    assert with_limits(given, [OBJECTIVE]).buckets == (0.05, 0.123, 1.0)


def test_what_does_not_exceed_a_bound_is_counted_within_its_bucket_of_two_per_cent():
    # By hand: 0.0, 0.07 and 0.25 do not exceed 0.25, which ends its bucket exactly.
    histogram = histogram_of([0.0, 0.07, 0.25, 0.26, 3.0])
    assert list(histogram.counts_to([0.05, 0.1, 0.25, 1.0, 100.0])) == [1, 2, 3, 4, 5]
    # 0.1 is inside of (0.09850, 0.10066]: of values there 69 % count, rounded down; counts of more
    # never decrease.
    counts = [next(histogram_of([0.1] * number).counts_to([0.1])) for number in range(200)]
    assert counts == sorted(counts)
    assert counts[199] / 199 == pytest.approx(0.69, abs=0.01)


def test_whole_numbers_are_counted_exactly_below_45():
    numbers = [number for number in range(1, 45) for _ in range(number)]
    counts = list(histogram_of(numbers).counts_to(range(1, 45), of_integers=True))
    assert counts == list(itertools.accumulate(range(1, 45)))


def promql_quantile(share, bounds, counts, total):
    """Return what histogram_quantile of PromQL does: a bucket's values count as spread evenly."""
    position = next(i for i, count in enumerate(counts) if count >= share * total)
    low, before = (bounds[position - 1], counts[position - 1]) if position else (0.0, 0)
    within = (share * total - before) / (counts[position] - before)
    return low + (bounds[position] - low) * within


@pytest.mark.parametrize(("share", "within"), [(0.5, 0.02), (0.95, 0.09)])
def test_a_fifth_more_moves_the_quantiles_that_prometheus_computes(share, within):
    spread = statistics.NormalDist(0, 0.1)
    quantiles = []
    for level in (0.070, 0.084):
        values = [level * 2.718281828 ** spread.inv_cdf((i + 0.5) / 1000) for i in range(1000)]
        bounds = default_bounds("s")
        counts = list(histogram_of(values).counts_to(bounds))
        quantiles.append(promql_quantile(share, bounds, counts, 1000))
    assert quantiles[1] / quantiles[0] == pytest.approx(1.2, abs=within)
