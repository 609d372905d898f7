"""Records of load are compared and gated level by level, against files and by growth under load."""

import math

import msgspec
import pytest
from tests.support import servings
from tests.support.serving_levels import distribution, open_level

import torchgauge as tg
from torchgauge.analyze.compare.compared_levels import compare_servings, level_pairs
from torchgauge.analyze.gate.evidence import growth
from torchgauge.analyze.gate.repeated_runs import load_test
from torchgauge.analyze.gate.stored import HostNoise, uncalibrated
from torchgauge.errors import InputError
from torchgauge.records.record import Interval
from torchgauge.records.serving.level import Arrivals, Level, Saturation, Sending
from torchgauge.records.serving.requests import Capacity, Distribution, Estimate, Percentile
from torchgauge.records.serving.serving import ServedBy

FOUND = servings.capacity_found()
QUIET = HostNoise(1e-9, sessions=1_000)


def estimate(value, low, high):
    return Estimate(value=value, interval=Interval(low=low, high=high))


def slower(record, factor):
    """Return a record whose latencies are `factor` times as long."""

    def level(old):
        times = [last - due for due, last in zip(
            old.requests.scheduled, old.requests.last, strict=True)]  # fmt: skip
        made = distribution([factor * time for time in times], 1.5)
        return msgspec.structs.replace(old, latency=made)

    return msgspec.structs.replace(record, levels=tuple(map(level, record.levels)))


def mm1(rate, capacity=100.0):
    """Return a level of an M/M/1 server: its time in the system is exponential."""
    mean = 1 / (capacity - rate)
    percentiles = tuple(
        Percentile(fraction=share, value=-math.log(1 - share) * mean) for share in (0.5, 0.99)
    )
    latency = Distribution(
        count=100, mean=Estimate(value=mean), low=1e-4, high=9 * mean, percentiles=percentiles
    )
    return Level(
        arrivals=Arrivals(kind="poisson", rate=rate), duration=10.0, window=(0.0, 10.0),
        count=1000, offered=rate, latency=latency,
    )  # fmt: skip


def test_arms_of_the_intervals_add_as_squares():
    test = load_test(estimate(1.0, 0.9, 1.3), estimate(2.0, 1.6, 2.2), QUIET)
    down = math.hypot(math.log(2.0 / 1.6), math.log(1.3))
    up = math.hypot(math.log(2.2 / 2.0), math.log(1 / 0.9))
    assert test.change == pytest.approx(1.0)
    assert test.interval.low == pytest.approx(2 * math.exp(-down) - 1, rel=1e-6)
    assert test.interval.high == pytest.approx(2 * math.exp(up) - 1, rel=1e-6)
    assert (test.reversed.down, test.reversed.up) == (test.up, test.down)


def test_sessions_widen_by_what_load_adds():
    """Of exact estimates the interval is the assumed 20 %, to the power of the growth."""
    exact = estimate(1.0, 1.0, 1.0)
    alone, grown = (load_test(exact, exact, uncalibrated(), factor) for factor in (1.0, 5.0))
    assert alone.interval.high == pytest.approx(0.2)
    assert grown.interval.high == pytest.approx(1.2**5 - 1)
    assert alone.p_above(0.0) == pytest.approx(0.5)


def test_what_has_no_interval_has_no_test():
    bare = Estimate(value=1.0)
    assert load_test(bare, estimate(1, 0.9, 1.1), QUIET) is None
    assert load_test(estimate(1, 0.9, 1.1), estimate(1, 0.0, 1.1), QUIET) is None


@pytest.mark.parametrize(("rate", "expected"), [(20.0, 1.25), (50.0, 2.0), (80.0, 5.0)])
def test_growth_is_exact_for_mm1(rate, expected):
    """T = 1 ÷ (μ − λ) changes by μ ÷ (μ − λ) % with each % of μ."""
    levels = [mm1(20.0), mm1(50.0), mm1(80.0)]
    level = next(made for made in levels if made.arrivals.rate == rate)
    assert growth("latency_p99", level, levels) == pytest.approx(expected)
    assert growth("completed", level, levels) == 1.0


def test_growth_of_a_single_level_is_over_its_fastest_request():
    level = mm1(80.0)
    assert growth("latency_p50", level, [level]) == pytest.approx(math.log(2) / 20 / 1e-4)


def test_saturated_levels_tell_no_growth():
    saturated = msgspec.structs.replace(mm1(90.0), saturation=Saturation(saturated=True))
    levels = [mm1(50.0), mm1(80.0)]
    assert growth("latency_p99", levels[0], [levels[0], saturated, levels[1]]) == growth(
        "latency_p99", levels[0], levels
    )


def test_goodput_hardly_changes_where_nearly_all_are_within_the_goals():
    good, bad = (
        msgspec.structs.replace(mm1(80.0), goodput=Estimate(value=value)) for value in (80.0, 40.0)
    )
    levels = [mm1(20.0)]
    assert growth("goodput", good, [*levels, good]) < 0.05
    assert growth("goodput", bad, [*levels, bad]) == pytest.approx(math.log(2) * 5.0)


def changes(baseline, current):
    return {change.label: change for change in compare_servings(baseline, current).changes}


def test_every_load_of_either_side_is_named():
    labels = changes(FOUND, servings.healthy())
    assert labels["capacity"].current == 75.0
    assert labels["latency, 100 requests/s"].reason == "the current run did not record it"
    assert labels["latency, 75 requests/s"].reason == "the baseline did not record it"
    assert labels["latency, 25 requests/s"].judgement == "inconclusive"
    assert labels["latency, 25 requests/s"].change == 0.0


def test_a_change_beyond_what_sessions_differ_by_is_judged():
    change = changes(FOUND, slower(FOUND, 2.0))["latency, 25 requests/s"]
    assert (change.judgement, change.change) == ("worse", pytest.approx(1.0))
    assert change.interval.low < 1.0 < change.interval.high
    back = changes(slower(FOUND, 2.0), FOUND)["latency, 25 requests/s"]
    assert back.judgement == "better"


def test_saturated_and_client_limited_levels_are_not_judged():
    change = changes(FOUND, FOUND)["latency, 150 requests/s"]
    assert change.reason == "the baseline was saturated: times are of its window alone"
    limited = changes(servings.client_limited(), servings.client_limited())
    reasons = {change.reason for label, change in limited.items() if "errors" not in label}
    assert reasons == {"the client was too slow in the baseline: it measured itself"}


def test_what_a_percentile_lacks_is_said():
    change = changes(FOUND, FOUND)["p99, 25 requests/s"]
    needed = FOUND.levels[0].latency.percentile(0.99).needed
    assert change.reason == f"the baseline has no interval, which takes {needed:,} requests"


def test_other_machines_are_not_judged():
    environment = FOUND.environment
    machine = msgspec.structs.replace(environment.machine, cpu="Another CPU")
    there = msgspec.structs.replace(environment, machine=machine)
    comparison = compare_servings(FOUND, msgspec.structs.replace(FOUND, environment=there))
    assert not comparison.timing_comparable
    assert {change.judgement for change in comparison.changes} == {"unknown"}


def test_of_an_endpoint_the_clients_software_does_not_matter():
    record = servings.streamed()
    software = msgspec.structs.replace(record.environment.software, torch="1.0")
    there = msgspec.structs.replace(record.environment, software=software)
    comparison = compare_servings(record, msgspec.structs.replace(record, environment=there))
    assert comparison.timing_comparable
    assert [difference.name for difference in comparison.differences] == ["torch"]


def test_settings_of_the_server_are_told_and_compared():
    batching = ServedBy(kind="reference", api="torchgauge", max_batch=16, workers=2)
    comparison = compare_servings(FOUND, msgspec.structs.replace(FOUND, served_by=batching))
    names = {difference.name for difference in comparison.differences}
    assert {"server's max_batch", "server's max_delay", "server's workers"} <= names
    assert comparison.timing_comparable


def sending(record, **changes):
    """Return the record with what its levels sent."""
    sent = Sending(**changes)
    levels = tuple(msgspec.structs.replace(level, sending=sent) for level in record.levels)
    return msgspec.structs.replace(record, levels=levels)


@pytest.mark.parametrize(
    "changes", [{"tokens": (128, 64)}, {"body": "ab12"}, {"in_flight": 4}, {"timeout": 5.0}]
)
def test_other_requests_are_another_load(changes):
    comparison = compare_servings(sending(FOUND), sending(FOUND, **changes))
    assert not comparison.timing_comparable
    assert "requests sent" in {difference.name for difference in comparison.differences}
    both_sides = [p for p in level_pairs(sending(FOUND), sending(FOUND, **changes))
                  if p.name and p.is_on_both_sides]  # fmt: skip
    assert both_sides == []
    names = [change.shape for change in comparison.changes if change.metric == "errors"]
    assert len(names) == len(set(names)) == 2 * len(FOUND.levels)
    assert f"{FOUND.levels[0].label} (as usual)" in names
    sides = sending(FOUND), sending(FOUND, **changes)
    targets = {side.profile(side.levels[0]).target for side in sides}
    assert len(targets) == 2  # of a history, too
    assert compare_servings(FOUND, sending(FOUND)).timing_comparable  # as usual, of an older file


def test_capacities_under_other_goals_say_so():
    other = msgspec.structs.replace(FOUND, goals=(servings.TTFT,))
    comparison = compare_servings(FOUND, other)
    assert "goals" in {difference.name for difference in comparison.differences}


def gate(baseline, current, **options):
    return tg.gate(baseline, current, **options)


def outcomes(verdict):
    return {ruling.label: ruling.outcome for ruling in verdict.rulings}


def test_a_run_against_itself_never_fails():
    for record in servings.every().values():
        assert gate(record, record).outcome in ("pass", "inconclusive"), record


def test_a_gate_fails_where_it_got_slower():
    verdict = gate(FOUND, slower(FOUND, 3.0))
    assert verdict.outcome == "fail"
    assert outcomes(verdict)["latency, 25 requests/s"] == "fail"
    assert outcomes(verdict)["throughput, 25 requests/s"] != "fail"


def test_a_gate_passes_where_the_refused_change_is_excluded():
    assert gate(FOUND, FOUND, metrics=["throughput"], tolerance="throughput:10%:60%").passed
    verdict = gate(FOUND, FOUND, metrics=["latency"])
    assert verdict.outcome == "inconclusive"
    assert "differ by up to 20 % at this load" in verdict.rulings[0].reason


def test_a_lower_capacity_fails():
    half = Capacity(rate=52.0, interval=Interval(low=50.0, high=54.0))
    verdict = gate(FOUND, msgspec.structs.replace(FOUND, capacity=half), metrics=["capacity"])
    (ruling,) = verdict.rulings
    assert (ruling.metric, ruling.outcome, ruling.shape) == ("capacity", "fail", "")
    assert ruling.change == pytest.approx(1.0)  # half the rate, twice as bad
    at_least = servings.healthy()
    assert gate(at_least, at_least, metrics=["capacity"]).outcome == "inconclusive"


def test_loads_of_one_side_are_no_matter_of_a_gate():
    verdict = gate(servings.healthy(), FOUND, metrics=["latency"])
    assert {ruling.shape for ruling in verdict.rulings} == {"25 requests/s", "50 requests/s"}


def test_limits_are_of_the_current_run():
    limits = ["p99:100ms", "capacity:50requests/s", "throughput:20requests/s"]
    verdict = gate(FOUND, FOUND, metrics=["throughput"], tolerance="throughput:10%:60%",
                   thresholds=limits)  # fmt: skip
    failed = [ruling for ruling in verdict.rulings if ruling.outcome == "fail"]
    assert [ruling.label for ruling in failed] == ["p99, 150 requests/s"]


def test_a_metric_that_no_load_has_is_inconclusive():
    verdict = gate(FOUND, FOUND, metrics=["ttft"])
    assert verdict.outcome == "inconclusive"
    assert verdict.rulings[0].reason == "no load of both runs has it"


def test_many_loads_share_the_error():
    """A change that fails alone is no failure among many loads (Holm)."""
    steady = [open_level(rate, 400, seed=rate) for rate in range(10, 40)]
    levels = [open_level(50, 400, seed=50)]
    alone = servings.serving(levels)
    both = servings.serving([*levels, *steady])
    factor = 1.27
    changed = slower(alone, factor).levels
    alone_verdict = gate(slower(alone, 1.0), servings.serving(changed), metrics=["latency"])
    among = gate(slower(both, 1.0),
                 servings.serving([*changed, *slower(both, 1.0).levels[1:]]),
                 metrics=["latency"])  # fmt: skip
    assert (alone_verdict.outcome, among.outcome) == ("fail", "inconclusive")


def test_a_level_that_ran_twice_is_compared_by_its_first():
    twice = servings.serving([FOUND.levels[0], FOUND.levels[0]])
    assert [pair.name for pair in level_pairs(twice, twice)] == ["", "25 requests/s"]


def test_files_are_compared_and_gated(tmp_path):
    old, new = FOUND.save(tmp_path / "old.json"), slower(FOUND, 3.0).save(tmp_path / "new.json")
    assert tg.compare(old, new).change_of("capacity").judgement == "inconclusive"
    verdict = tg.gate(old, new)
    assert verdict.outcome == "fail"
    assert "25 requests/s" in str(verdict)


def test_load_and_a_profile_are_not_compared(tmp_path):
    from tests.support import records

    with pytest.raises(InputError) as caught:
        tg.compare(records.profile(), FOUND.save(tmp_path / "load.json"))
    assert caught.value.id == "not-a-profile"
    assert "torchgauge load" in caught.value.remedy


def repeated(factor, minute, **parts):
    """A run of a load whose latencies are `factor` times as long, recorded at a minute."""
    record = slower(FOUND, factor)
    created = f"2026-01-01T03:{minute:02}:00+00:00"
    environment = msgspec.structs.replace(record.environment, created=created)
    return msgspec.structs.replace(record, environment=environment, **parts)


RUNS = [repeated(1 + 0.01 * step, step % 7) for step in (0, 2, -2, 1, -1, 3)]


def rulings_of(current, runs=RUNS):
    verdict = tg.gate(runs, current, metrics=("latency",), tolerance="latency:5%:25%")
    return {ruling.shape: ruling for ruling in verdict.rulings}


def test_a_load_is_held_to_how_far_several_runs_differ():
    """The same change is inconclusive against one run: sessions may differ by so much."""
    slow, alike = repeated(1.25, 8), repeated(1.005, 8)
    against_runs, against_run = rulings_of(slow), rulings_of(slow, RUNS[0])
    decided = [
        name for name, ruling in against_runs.items() if "one run against 6" in ruling.method
    ]
    failed = [name for name in decided if against_runs[name].outcome == "fail"]
    assert failed
    assert {against_run[name].outcome for name in failed} == {"inconclusive"}
    assert {rulings_of(alike)[name].outcome for name in failed} == {"pass"}
    ruling = against_runs[failed[0]]
    logs = [math.log(1 + 0.01 * step) for step in (0, 2, -2, 1, -1, 3)]
    assert ruling.change == pytest.approx(1.25 / math.exp(sum(logs) / 6) - 1, rel=1e-6)


def test_a_late_client_counts_where_the_others_were_not():
    def late(record):
        levels = tuple(
            msgspec.structs.replace(
                level, client=msgspec.structs.replace(level.client, limited=True)
            )
            for level in record.levels
        )
        return msgspec.structs.replace(record, levels=levels)

    slow = late(repeated(1.25, 8))
    beside_quiet = rulings_of(slow).values()
    assert not any("one run against" in ruling.method for ruling in beside_quiet)
    beside_late = rulings_of(slow, [late(run) for run in RUNS]).values()
    assert any(ruling.outcome == "fail" for ruling in beside_late)


def test_runs_of_different_kinds_are_refused():
    with pytest.raises(InputError) as raised:
        tg.gate([*RUNS, servings.capacity_found().profile()], RUNS[0])
    assert raised.value.id == "baseline-runs"
