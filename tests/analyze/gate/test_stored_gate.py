"""The gate against a stored baseline: each outcome by a run made for it."""

import math
import random

import msgspec
import pytest
from scipy import stats
from tests.support import pages, records
from tests.support.latency_runs import (
    ELEVEN,
    QUIET,
    TEN,
    changed_tree,
    gate,
    layer_times,
    layered,
    timed,
)

import torchgauge as tg
from torchgauge.analyze.gate.limits import parse_limit
from torchgauge.analyze.gate.stored import HostNoise


def outcomes(verdict):
    return {one.metric: one.outcome for one in verdict.rulings}


def scaled(factor):
    return tuple(factor * median for median in TEN)


def ruling(verdict, metric="latency"):
    return next(one for one in verdict.rulings if one.metric == metric)


def test_the_same_run_passes_where_the_host_is_quiet():
    verdict = gate(timed(*TEN), timed(*TEN), noise=QUIET)
    assert outcomes(verdict) == {"params": "pass", "memory": "pass", "latency": "pass"}
    assert (verdict.outcome, int(verdict.exit_code)) == ("pass", 0)
    assert verdict.regressed_layers == ()


def test_a_tenth_slower_fails_with_the_interval_above_what_is_accepted():
    verdict = gate(timed(*TEN), timed(*ELEVEN), noise=QUIET)
    assert outcomes(verdict)["latency"] == "fail"
    assert int(verdict.exit_code) == 3
    found = ruling(verdict)
    assert found.change == pytest.approx(0.1)
    assert found.interval.low > found.tolerance.accepted == 0.01


def test_between_accepted_and_refused_it_is_neither():
    verdict = gate(timed(*TEN), timed(*scaled(1.02)), noise=QUIET)
    assert outcomes(verdict)["latency"] == "inconclusive"
    assert int(verdict.exit_code) == 4
    assert "--base-ref" in ruling(verdict).reason


def test_a_host_never_calibrated_decides_nothing_small_and_says_how_to_go_on():
    verdict = gate(timed(*TEN), timed(*ELEVEN))
    assert outcomes(verdict)["latency"] == "inconclusive"
    assert "--calibrate" in ruling(verdict).reason
    assert gate(timed(*TEN), timed(*scaled(1.5))).outcome == "fail"


def test_throughput_is_worse_where_it_is_less():
    slower = gate(timed(*TEN), timed(*ELEVEN), metrics=["throughput"], noise=QUIET)
    assert outcomes(slower) == {"throughput": "fail"}
    assert ruling(slower, "throughput").change == pytest.approx(0.1)
    assert gate(timed(*ELEVEN), timed(*TEN), metrics=["throughput"], noise=QUIET).passed


def test_five_processes_are_too_few_and_exact_metrics_still_count():
    bigger = msgspec.structs.replace(records.profile().size, parameters=101)
    verdict = gate(timed(*TEN[:5]), timed(*ELEVEN), noise=QUIET)
    assert outcomes(verdict)["latency"] == "inconclusive"
    assert "--processes 10" in ruling(verdict).reason
    worse = gate(timed(*TEN[:5]), timed(*TEN, size=bigger), noise=QUIET)
    assert outcomes(worse)["params"] == "fail"
    assert worse.outcome == "fail"


def test_another_machine_is_no_verdict_on_time():
    where = records.environment()
    other = msgspec.structs.replace(
        where, machine=msgspec.structs.replace(where.machine, cpu="Another CPU")
    )
    verdict = gate(timed(*TEN), timed(*ELEVEN, environment=other), noise=QUIET)
    assert outcomes(verdict)["latency"] == "not comparable"
    assert (verdict.outcome, int(verdict.exit_code)) == ("not comparable", 5)
    exact = gate(timed(*TEN), timed(*ELEVEN, environment=other), metrics=["params"])
    assert exact.passed


def test_an_exact_metric_fails_beyond_its_tolerance_alone():
    size = records.profile().size
    two_percent = msgspec.structs.replace(size, parameters=102)
    assert gate(timed(*TEN), timed(*TEN, size=two_percent), metrics=["params"]).outcome == "fail"
    told = ["params:5%"]
    assert gate(
        timed(*TEN), timed(*TEN, size=two_percent), tolerances=told, metrics=["params"]
    ).passed
    smaller = msgspec.structs.replace(size, parameters=98)
    assert gate(timed(*TEN), timed(*TEN, size=smaller), metrics=["params"]).passed


def test_a_metric_asked_for_and_absent_is_inconclusive_and_one_by_default_is_left_out():
    assert "flops" not in outcomes(gate(timed(*TEN), timed(*TEN), noise=QUIET))
    asked = gate(timed(*TEN), timed(*TEN), metrics=["flops"])
    assert outcomes(asked) == {"flops": "inconclusive"}
    lost = gate(timed(*TEN), timed(*TEN, memory=None), metrics=["memory"])
    assert outcomes(lost) == {"memory": "inconclusive"}


def test_limits_join_the_verdict():
    verdict = gate(timed(*TEN), timed(*TEN), noise=QUIET, limits=[parse_limit("latency:9ms")])
    assert [one.outcome for one in verdict.rulings if one.limit] == ["fail"]
    assert verdict.outcome == "fail"


def test_the_guilty_layer_is_named_with_its_interval():
    old = timed(*TEN, tree=layered(), layers=layer_times(noise=0.01))
    new = timed(*ELEVEN, tree=layered(1.3), layers=layer_times(1.3, noise=0.01))
    (named,) = gate(old, new, noise=QUIET).regressed_layers
    assert named.startswith("layer3 (Linear) +30.0 % [+2")
    assert named.endswith("+300 µs")


def test_without_a_test_the_largest_contribution_is_named_as_unproven():
    new = timed(*ELEVEN, tree=changed_tree(host=4 * pages.MS))
    (named,) = gate(timed(*TEN), new, noise=QUIET).regressed_layers
    assert named.startswith("head (Linear) +60.0 %")
    assert named.endswith("(not proven)")


@pytest.mark.slow
def test_false_alarms_over_sessions_stay_below_one_in_forty():
    """Sessions of one build: the level differs by 2 %, processes by 1 %; noise is known."""
    rng = random.Random(3)
    noise = HostNoise(between=0.02, sessions=30)

    def session():
        level = rng.gauss(0, 0.02)
        return timed(*(0.01 * math.exp(level + rng.gauss(0, 0.01)) for _ in range(6)), tree=None)

    trials = 400
    verdicts = [
        gate(session(), session(), metrics=["latency"], noise=noise).outcome for _ in range(trials)
    ]
    alarms = verdicts.count("fail")
    assert stats.binomtest(alarms, trials, 0.025, alternative="greater").pvalue > 0.01
    assert verdicts.count("inconclusive") > trials // 2  # so much noise resolves no 3 %


def test_regressions_are_falsy_where_there_are_none_and_print():
    none = tg.detect_regressions(timed(*TEN), timed(*TEN))
    assert not none
    assert "No regression" in str(none)
    assert "latency is inconclusive" in str(none)
    found = tg.detect_regressions(timed(0.010), timed(0.013))
    assert found
    assert [change.metric for change in found] == ["latency"]
    assert "latency got worse: 10.00 ms → 13.00 ms (+30.0 %)" in str(found)
    assert not tg.detect_regressions(timed(0.010), timed(0.0115))


def test_a_baseline_is_loaded_and_gated_by_path(tmp_path):
    from torchgauge.api.gates import gate

    old, new = timed(*TEN).save(tmp_path / "a.json"), timed(*scaled(1.5)).save(tmp_path / "b.json")
    assert tg.load_baseline(old).latency.median == pytest.approx(0.01)
    verdict = gate(old, new, tolerance="latency:5%:10%", thresholds=["memory:1GB"])
    assert outcomes(verdict)["latency"] == "fail"
    assert ruling(verdict).tolerance.refused == pytest.approx(0.1)
