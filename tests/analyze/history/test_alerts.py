"""Rules against series whose answer is known by hand."""

import datetime

import pytest
from tests.support.alert_series import change, rule, series

from torchgauge.analyze.history.alerts import alerts
from torchgauge.errors import InputError
from torchgauge.records.trend import CONFIRM


def test_a_threshold_looks_at_the_newest_run():
    assert alerts(rule(), [series([0.02, 0.009])]) == []
    (found,) = alerts(rule(), [series([0.001, 0.012], bounds=(0.99, 1.01))])
    assert (found.value, found.limit, found.unit, found.borderline) == (0.012, 0.010, "s", False)
    assert found.message == "12.00 ms is above 10.00 ms (11.88 ms … 12.12 ms)"
    (found,) = alerts(rule(side="below"), [series([0.009])])
    assert "9.000 ms is below 10.00 ms" in found.message
    assert alerts(rule(side="below"), [series([0.010])]) == []


def test_a_limit_within_the_interval_is_borderline():
    (found,) = alerts(rule(), [series([0.0101], bounds=(0.98, 1.02))])
    assert found.borderline
    assert found.message.endswith("borderline")


def test_only_what_a_rule_is_about_is_held_against_it():
    slow = [series([9.0]), series([9.0], branch="feature"), series([9.0], target="other")]
    layers = [series([9.0], layer="body.0"), series([9.0], layer="head")]
    assert len(alerts(rule(), slow + layers)) == 3
    assert [a.branch for a in alerts(rule(branch="feat*"), slow)] == ["feature"]
    assert [a.target for a in alerts(rule(target="o*"), slow)] == ["other"]
    assert [a.layer for a in alerts(rule(layer="body.*"), slow + layers)] == ["body.0"]
    assert alerts(rule(metric="memory_peak"), slow) is None


def test_a_change_is_news_for_so_many_runs():
    stayed = series([1.0] * 30, changes=(change(20, 0.05),))
    moved = rule("change", 0.03, "ratio")
    (found,) = alerts(moved, [stayed])
    assert found.message == f"changed by +5.0 % after aaaaaaaaaa … bbbbbbbbbb. {CONFIRM}"
    assert (found.value, found.unit) == (0.05, "ratio")
    corrected = series([1.0] * 30, changes=(change(20, 0.05),), changes_in="corrected")
    (found,) = alerts(moved, [corrected])
    assert "bbbbbbbbbb, at the machine's usual speed. Advice" in found.message
    assert alerts(rule("change", 0.06, "ratio"), [stayed]) == []
    assert alerts(rule("change", 0.03, "ratio", within=9), [stayed]) == []
    assert len(alerts(rule("change", 0.03, "ratio", within=10), [stayed])) == 1


def test_what_went_away_or_became_better_alarms_nobody():
    moved = rule("change", 0.01, "ratio")
    gone = change(10, 0.05, lasting="went away")
    back = change(15, -0.05, lasting="return")
    assert alerts(moved, [series([1.0] * 20, changes=(gone, back))]) == []
    assert alerts(moved, [series([1.0] * 20, changes=(change(10, -0.05),))]) == []
    neither = change(10, -0.05, worse=None)  # better or worse is not known: somebody must look
    assert len(alerts(moved, [series([1.0] * 20, changes=(neither,))])) == 1


def test_a_sum_is_of_the_newest_run():
    parts = [
        series([5, 1], metric="flops", unit="", layer="a"),
        series([5, 2], metric="flops", unit="", layer="b"),
        series([9], metric="flops", unit="", layer="gone"),
    ]
    total = rule("sum", 2.5, "", metric="flops", layer="*")
    (found,) = alerts(total, parts)
    assert (found.value, found.layer) == (3, "*")
    assert "2 add up to 3, above 2" in found.message
    assert alerts(rule("sum", 3, "", metric="flops", layer="*"), parts) == []


def test_a_sum_counts_what_is_within_another_once():
    parts = [
        series([value], metric="flops", unit="", layer=path)
        for path, value in {"a": 7, "a.b": 4, "a.b.c": 2, "ab": 1, "d.e": 3, "d.e.f.g": 3}.items()
    ]
    total = rule("sum", 0, "", metric="flops", layer="*")
    assert [found.value for found in alerts(total, parts)] == [7 + 1 + 3]
    whole = [*parts, series([11], metric="flops", unit="", layer="")]
    assert [found.value for found in alerts(total, whole)] == [11]
    inner = rule("sum", 0, "", metric="flops", layer="a.*")
    assert [found.value for found in alerts(inner, parts)] == [4]


def test_growth_is_between_medians_within_the_time():
    month = datetime.timedelta(days=30)
    grown = rule("growth", 0.10, "ratio", over=month)
    values = [50.0] * 10 + [100.0] * 10 + [104, 500, 104] + [112.0, 111, 112, 10, 112]
    (found,) = alerts(
        rule("growth", 0.10, "ratio", over=datetime.timedelta(days=17)), [series(values)]
    )
    assert found.value == pytest.approx(0.12)  # 112 over 100: single runs decide nothing
    assert alerts(grown, [series(values)])[0].value == pytest.approx(1.24)
    assert alerts(grown, [series([100.0] * 20 + [109.0] * 5)]) == []


def test_too_few_runs_are_unknown_and_no_pass():
    month = datetime.timedelta(days=30)
    assert alerts(rule("growth", 0.10, "ratio", over=month), [series([100.0])]) is None
    assert alerts(rule("growth", 0.10, "ratio", over=month), [series([100.0, 100.0])]) == []
    moved = rule("change", 0.01, "ratio")
    assert alerts(moved, [series([1.0] * 9)]) is None
    assert alerts(moved, [series([1.0] * 9), series([1.0] * 10, branch="old")]) == []
    assert alerts(moved, [series([1.0] * 2, how="counted")]) == []


def test_a_limit_in_another_unit_is_refused():
    with pytest.raises(InputError, match="does not fit latency_median") as error:
        alerts(rule(unit="B"), [series([1.0])])
    assert error.value.id == "alert-unit"
    assert alerts(rule(unit="", metric="x"), [series([1.0], metric="x", unit="ratio")]) != []
