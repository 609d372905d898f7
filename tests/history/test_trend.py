"""Series of a store: never two machines, branches or workloads in one, and changes by commit."""

import math

import pytest
from tests.support import history_runs as runs

from torchgauge.errors import InputError
from torchgauge.history.content import entry
from torchgauge.history.store import Selection, Store
from torchgauge.history.trend import trend
from torchgauge.records import codec
from torchgauge.records.run import Facts
from torchgauge.records.trend import Trend


@pytest.fixture
def store(location):
    with Store.open(location) as opened:
        yield opened


def fill(store, days, **figures):
    for day in days:
        store.add(runs.run(day, **{k: v(day) if callable(v) else v for k, v in figures.items()}))


def step(day):
    return (0.010 if day < 20 else 0.011) * (1.003 if day % 2 else 0.997)


def test_a_step_is_between_two_commits(store):
    fill(store, reversed(range(40)), latency=step, torch=lambda day: "2.12" if day < 20 else "2.13")
    found = trend(store, metrics=["latency_median"])
    (series,) = found.series
    assert [point.commit for point in series.points] == [f"c{day}" for day in range(40)]
    assert series.values == tuple(step(day) for day in range(40))
    assert series.points[0].low == 0.99 * step(0)
    (change,) = series.changes
    assert (change.likeliest, change.after, change.until) == (20, "c19", "c20")
    assert change.size == pytest.approx(0.1)
    assert change.worse is True
    assert change.how == "estimated"
    assert "confirms" in change.note
    assert change.software == "torch 2.12 → 2.13"
    assert codec.decode(codec.encode(found)) == found


def test_machines_branches_and_workloads_are_never_mixed(store):
    fill(store, range(4))
    fill(store, range(10, 13), memory=64_000_000_000)
    fill(store, range(20, 22), branch="feature")
    fill(store, range(30, 31), target="other.py:make")
    found = trend(store, metrics=["latency_median"]).series
    assert [len(series.points) for series in found] == [4, 3, 2, 1]
    assert len({series.machine for series in found}) == 2
    (only,) = trend(store, Selection(branch="feature"), ["latency_median"]).series
    assert [point.commit for point in only.points] == ["c20", "c21"]


def test_layers_have_trends_of_their_own(store):
    fill(
        store,
        range(30),
        layers=lambda day: {"a.0": 1000, "a.1": 1000 if day < 15 else 1500, "b": 7},
    )
    found = {series.layer: series for series in trend(store, layer="a.*").series}
    assert set(found) == {"a.0", "a.1"}
    assert found["a.0"].changes == ()
    (change,) = found["a.1"].changes
    assert (change.after, change.until, change.size) == ("c14", "c15", pytest.approx(0.5))
    (one,) = trend(store, layer="b").series
    assert one.values == pytest.approx([7e-9] * 30)
    assert [series.layer for series in trend(store, layer="").series] == [""]


def test_counted_figures_change_exactly(store):
    for day in range(6):
        made = runs.profile(day)
        size = runs.replace(made.size, parameters=100 if day < 2 else 120)
        store.add(entry(runs.replace(made, size=size), Facts(commit=f"c{day}")))
    (series,) = trend(store, metrics=["parameters"]).series
    (change,) = series.changes
    assert (change.after, change.until, change.interval) == ("c1", "c2", None)
    assert (change.how, change.note, change.size) == ("counted", "", pytest.approx(0.2))


def test_what_cannot_be_told_says_why(store):
    fill(store, range(9))
    (series,) = trend(store, metrics=["latency_median"]).series
    assert series.changes == ()
    assert series.unknown == "changes are detected from at least 10 runs"


def test_an_unknown_figure_is_named(store):
    fill(store, range(1))
    with pytest.raises(InputError, match="latency_medium") as error:
        trend(store, metrics=["latency_medium"])
    assert error.value.id == "metric-unknown"
    assert "latency_median" in error.value.remedy
    with pytest.raises(InputError, match="latency_median") as error:
        trend(store, metrics=["latency_median"], layer="*")
    assert "host_time" in error.value.remedy
    assert trend(store, Selection(target="nothing")).series == ()


def speed(day):
    """Return the logarithm of a machine's slowness: it is slower from day 14 to 26."""
    return (0.15 if 14 <= day < 27 else 0.0) + 0.02 * ((7 * day) % 5 - 2)


def on_changing_machine(store, days=40, factor=lambda day: 1.0, without=()):
    for day in range(days):
        slow = math.exp(speed(day))
        work = None if day in without else {"python": 0.001 * slow, "matmul": 0.002 * slow}
        noise = 1.002 if day % 2 else 0.998
        store.add(runs.run(day, latency=0.010 * slow * noise * factor(day), work=work))
    (series,) = trend(store, metrics=["latency_median"]).series
    return series


def test_a_slower_machine_is_no_change_of_the_corrected_latency(store):
    series = on_changing_machine(store)
    assert series.changes == ()
    assert series.changes_in == "corrected"
    assert series.correction.runs == 40
    assert series.correction.after < 0.2 * series.correction.before
    usual = sorted(speed(day) for day in range(40))
    usual = (usual[19] + usual[20]) / 2
    for day, point in enumerate(series.points):
        # The ridge leaves nearly all of the weight.
        assert point.corrected == pytest.approx(0.010 * math.exp(usual), rel=0.02)
        assert point.value / point.corrected == pytest.approx(
            math.exp(speed(day) - usual), rel=0.02
        )
    record = Trend(store="", series=(series,))
    assert codec.decode(codec.encode(record)) == record


def test_a_true_step_is_found_beside_a_slower_machine(store):
    series = on_changing_machine(store, factor=lambda day: 1.1 if day >= 20 else 1.0)
    (change,) = series.changes
    assert (change.likeliest, change.after, change.until) == (20, "c19", "c20")
    assert change.interval.low <= 0.1 <= change.interval.high


def test_with_a_run_without_yardstick_the_measured_values_are_judged(store):
    series = on_changing_machine(store, without=(3,))
    assert series.changes_in == "measured"
    assert series.correction.runs == 39
    assert series.points[3].corrected is None
    assert series.points[4].corrected is not None
    assert [change.after for change in series.changes] == ["c13", "c26"]


def test_other_figures_are_never_corrected(store):
    for day in range(20):
        slow = math.exp(speed(day))
        layers = {"a": round(1e6 * slow)}
        made = runs.profile(day, latency=slow, layers=layers, work={"python": slow})
        made = runs.replace(made, memory=runs.replace(made.memory, peak=round(1e6 * slow)))
        store.add(entry(made, Facts(commit=f"c{day}")))
    latency, memory = trend(store, metrics=["latency_median", "memory_peak"]).series
    assert latency.correction is not None
    (layer,) = trend(store, layer="a").series
    for series in (memory, layer):
        assert series.correction is None
        assert series.changes_in == "measured"
        assert {point.corrected for point in series.points} == {None}
