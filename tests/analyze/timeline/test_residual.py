"""How far a tree is from its bare steps and from the headline latency: by hand."""

import msgspec
import pytest

from torchgauge.analyze.timeline.residual import residual_warnings, with_headline_ratio
from torchgauge.records.latency.latency import Latency, LatencyRun, Stage
from torchgauge.records.record import Interval, MeasurementWarning
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Pass, Tree

MS = 1_000_000


def latency(*medians, interval=None, **others):
    """Return a headline of 10 ms, of processes with these medians in ms."""
    runs = tuple(
        LatencyRun(
            samples=(median * 1e-3,) * 2, warmup=1, steady=True, first_call=0.02,
            median=median * 1e-3, interval=None, autocorrelation=1.0, stop="iterations done",
        )
        for median in medians or (10,)
    )  # fmt: skip
    figures = dict.fromkeys(("median", "mean", "min", "max", "p50", "p90", "p95", "p99"), 0.010)
    known = {
        "interval_method": "by hand", "percentile_intervals": {}, "first_call": 0.02,
        "steady": True, "stop": "iterations done", "device_time": None,
    }  # fmt: skip
    bounds = None if interval is None else Interval(low=interval[0] * 1e-3, high=interval[1] * 1e-3)
    return Latency(**figures, std=None, interval=bounds, processes=runs, **known, **others)


def tree(total, bare=None, interval=None, device=None):
    """Return a tree of so many ms in two rows, beside bare steps and their interval in ms."""
    bounds = None if interval is None else Interval(low=interval[0] * 1e-3, high=interval[1] * 1e-3)
    stamps = Pass(
        name="stamps",
        steps=9,
        duration=0.011,
        bare=None if bare is None else bare * 1e-3,
        bare_interval=bounds,
    )
    rows = (
        TreeRow(name="Net", kind="model", parent=-1, calls=1, host=1 * MS),
        TreeRow(name="a", kind="layer", parent=0, calls=1, host=round((total - 1) * MS)),
    )
    if device is not None:
        rows = (rows[0], msgspec.structs.replace(rows[1], device=device))
    known = MeasurementWarning(id="known", message="Known.", probe="timeline")
    return Tree(rows=rows, passes=(stamps,), warnings=(known,))


def said(found):
    return [warning.id for warning in found.warnings]


@pytest.mark.parametrize(("residual", "warned"), [(0.05, 0), (-0.099, 0), (0.11, 1), (-0.2, 1)])
def test_parts_far_from_the_step_are_said(residual, warned):
    assert len(residual_warnings(residual, 1.0)) == warned
    assert residual_warnings(None, 1.0) == ()


def test_a_tree_of_slower_calls_than_the_headline_s_says_by_how_much():
    found = with_headline_ratio(
        tree(10.9, bare=10.8, interval=(10.7, 10.9)), latency(interval=(9.9, 10.1))
    )
    assert found.headline_ratio == pytest.approx(1.09)
    assert said(found) == ["known", "tree-headline"]
    warning = found.warnings[-1]
    assert "1.09× the headline latency" in warning.message
    assert "10.9 ms, the headline is 10.0 ms" in warning.message
    assert "calls without instruments 1.08×" in warning.cause
    assert "divide its times by 1.09" in warning.remedy
    assert (warning.probe, warning.failed) == ("timeline", False)


def test_faster_calls_are_said_as_well():
    found = with_headline_ratio(tree(8, bare=8, interval=(7.9, 8.1)), latency(interval=(9.9, 10.1)))
    assert found.headline_ratio == pytest.approx(0.8)
    assert said(found) == ["known", "tree-headline"]


@pytest.mark.parametrize(
    ("headline", "bare"),
    [
        ((9.0, 11.0), (10.7, 10.9)),  # between runs the headline varies by as much
        ((9.9, 10.1), (9.0, 12.0)),  # the machine was busy while the tree was measured
        ((9.9, 10.1), (10.05, 12.0)),  # its parts' sum is 10.1 times 10.9 ÷ 10.85 at least
    ],
)
def test_what_the_intervals_explain_is_no_warning(headline, bare):
    found = with_headline_ratio(tree(10.9, bare=10.85, interval=bare), latency(interval=headline))
    assert found.headline_ratio == pytest.approx(1.09)
    assert said(found) == ["known"]


def test_the_tree_s_own_distance_from_its_bare_steps_does_not_explain_it():
    """The interval is the bare steps', moved to where the tree's sum is."""
    found = with_headline_ratio(
        tree(12, bare=10, interval=(9.8, 10.2)), latency(interval=(9.9, 10.1))
    )
    assert said(found) == ["known", "tree-headline"]


def test_a_small_difference_is_shown_and_no_warning():
    found = with_headline_ratio(
        tree(10.4, bare=10.4, interval=(10.39, 10.41)), latency(interval=(9.99, 10.01))
    )
    assert found.headline_ratio == pytest.approx(1.04)
    assert said(found) == ["known"]


def test_two_processes_without_an_interval_have_the_range_of_their_medians():
    assert said(with_headline_ratio(tree(11), latency(9, 11.2))) == ["known"]
    assert said(with_headline_ratio(tree(11), latency(9, 10.2))) == ["known", "tree-headline"]


@pytest.mark.parametrize(
    "others", [{"cold_cache": True}, {"stages": (Stage(name="model", median=1, interval=None),)}]
)
def test_a_latency_of_other_calls_is_no_headline_of_the_tree(others):
    found = with_headline_ratio(tree(15), latency(**others))
    assert found.headline_ratio is None
    assert said(found) == ["known"]


def test_without_a_latency_or_with_a_device_s_time_nothing_is_compared():
    assert with_headline_ratio(tree(15), None).headline_ratio is None
    assert with_headline_ratio(tree(15, device=5 * MS), latency()).headline_ratio is None
