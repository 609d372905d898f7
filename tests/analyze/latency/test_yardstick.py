"""The yardstick of a run, and the machine's speed that earlier runs make of it."""

import math

import msgspec
import pytest
from scipy.special import stdtrit
from tests.support.records import latency

from torchgauge.analyze.latency.noise import MIN_KINDS, STUDENT_T, with_speed, yardstick_of
from torchgauge.records.latency.latency import PastRun, Yardstick

WORK = {"matmul": 1e-4, "copy": 2e-5, "python": 5e-5, "dispatch": 4e-5}


def slower(factor, **more):
    return {kind: factor * time for kind, time in WORK.items()} | more


def past(factors, target="mlp"):
    return [
        PastRun(target=target, created="", medians=(1.0,), yardstick=slower(factor, waiting=1.0))
        for factor in factors
    ]


def test_the_times_of_a_run_are_the_medians_over_its_processes():
    (run,) = latency().processes
    runs = [
        msgspec.structs.replace(run, yardstick=found)
        for found in ({"matmul": 1.0, "copy": 4.0}, {"matmul": 3.0}, {"matmul": 2.0, "copy": 6.0})
    ]
    assert yardstick_of(runs) == Yardstick(times={"matmul": 2.0, "copy": 5.0})
    assert yardstick_of([run]) is None


def test_the_speed_is_the_usual_time_over_this_ones():
    usual = [0.9, 1.0, 1.0, 1.0, 1.3]
    found = with_speed(Yardstick(times=slower(1.25)), past(usual), "mlp")
    assert found.speed == pytest.approx(0.8)
    assert (found.runs, found.how) == (5, "estimated")
    assert found.speed_interval.low == pytest.approx(0.8)  # all kinds agree
    assert found.unusual


def test_kinds_that_disagree_leave_the_speed_open_and_waiting_is_no_part_of_it():
    times = slower(1.0, waiting=5.0) | {"matmul": 2e-4, "copy": 1e-5}
    found = with_speed(Yardstick(times=times), past([1.0] * 5), "mlp")
    assert found.speed == pytest.approx(1.0)
    # ln 2 and −ln 2 of four kinds: standard error ln 2 · √(2/3) / 2, times t = 3.182.
    reach = 3.1824 * math.log(2) * math.sqrt(2 / 3) / 2
    assert found.speed_interval.high == pytest.approx(math.exp(reach), rel=1e-3)
    assert not found.unusual


def test_the_targets_own_runs_count_where_there_are_five():
    others = past([2.0] * 9, "lstm")
    own = past([1.0] * 5)
    assert with_speed(Yardstick(times=WORK), others + own, "mlp").speed == pytest.approx(1.0)
    assert with_speed(Yardstick(times=WORK), others + own[:4], "mlp").speed == pytest.approx(2.0)


def test_without_enough_runs_or_kinds_the_speed_is_unknown():
    alone = Yardstick(times=WORK)
    plain = [PastRun(target="mlp", created="", medians=(1.0,))]
    assert with_speed(alone, past([1.0] * 4), "mlp") == alone
    assert with_speed(alone, plain * 9, "mlp") == alone
    two = Yardstick(times={"matmul": 1.0, "copy": 1.0})
    assert with_speed(two, past([1.0] * 9), "mlp") == two
    assert not alone.unusual


def test_the_quantiles_are_those_of_student_s_t():
    assert min(STUDENT_T) == MIN_KINDS - 1
    for degrees, quantile in STUDENT_T.items():
        assert quantile == pytest.approx(stdtrit(degrees, 0.975), abs=1e-6)
