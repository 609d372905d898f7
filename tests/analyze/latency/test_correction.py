"""What the machine explains of the difference of two runs: fast processes, weights, and neither."""

import itertools
import json
import math
import statistics

import msgspec
import numpy as np
import pytest
from tests.support.paths import DATA

from torchgauge.analyze.gate.stored import corrected
from torchgauge.analyze.latency.correction import MIN_ERROR, correction
from torchgauge.records.latency.latency import PastRun

KINDS = ("copy", "dispatch", "matmul", "python")
BOUND = {"mlp": (0.0, 0.6, 0.0, 0.5), "conv": (0.3, 0.0, 0.8, 0.0), "lstm": (0.1, 0.6, 0.3, 0.0)}


def run(target, log_times, log_works=()):
    """Return a run of one process for each log time, with the logs of its reference work."""
    return PastRun(
        target=target,
        created="",
        medians=tuple(map(math.exp, log_times)),
        yardsticks=tuple(
            dict(zip(KINDS, map(math.exp, logs), strict=True)) | {"waiting": 1.0}
            for logs in log_works
        ),
    )


def host(runs, noise=0.01, spread=0.1, seed=0, processes=6):
    """Return runs of a host whose speed changes, of targets that follow it by their weights."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(runs):
        for target, weights in BOUND.items():
            works = spread * (random.normal() + 0.3 * random.normal(size=(processes, len(KINDS))))
            times = works @ weights + noise * random.normal(size=processes)
            found.append(run(target, times, works))
    return found


def of(target, runs):
    return [known for known in runs if known.target == target]


def test_by_hand_without_reference_work():
    """Three fast processes of six tell the level; equal errors leave the plain deviation."""
    levels = (-0.05, -0.03, -0.01, 0.01, 0.03, 0.05)
    slow = (1.0, 0.2, 0.7, 0.4, 0.9, 0.1)
    past = [
        run("a", (level, level, level, level + late, level + late, level + late))
        for level, late in zip(levels, slow, strict=True)
    ]
    old, new = run("a", (0.0, 0.0, 0.0, 0.6)), run("a", (0.2, 0.2, 0.2, 0.2))
    found = correction(old, new, past)
    assert found.log_ratio == pytest.approx(0.2 - 0.15 - 0.2)
    assert found.between == pytest.approx(statistics.stdev(levels), rel=1e-3)
    variance = statistics.variance(levels) - MIN_ERROR**2
    assert found.error == pytest.approx(math.sqrt(2 * variance + 2 * MIN_ERROR**2), rel=1e-3)
    assert found.runs == 6
    left = corrected(old.medians, new.medians, found)
    assert left.estimate == pytest.approx(0.2)


def test_a_run_without_a_quiet_moment_decides_little():
    random = np.random.default_rng(1)
    past = [
        run("a", 0.005 * random.normal(size=6) + (0, 0, 0, *random.uniform(0.1, 1, size=3)))
        for _ in range(8)
    ]
    quiet, disturbed = run("a", (0.0,) * 6), run("a", (0.1, 0.3, 0.5, 0.6, 0.8, 0.9))
    usual, unsure = (correction(past[0], new, past) for new in (quiet, disturbed))
    assert usual.error < 0.02
    assert unsure.error == pytest.approx(math.hypot(usual.error, 0.2), abs=0.01)
    assert not corrected(past[0].medians, quiet.medians, usual).interval(0.99).low > 0
    assert corrected(past[0].medians, disturbed.medians, unsure).interval(0.99).low < 0


def test_a_hosts_changes_of_speed_are_taken_out():
    past = host(17)
    old, new, *_ = of("conv", past)
    found = correction(old, new, past)
    assert found.between < 0.4 * found.before
    left = corrected(old.medians, new.medians, found)
    assert abs(left.estimate) <= 4 * found.error


def test_page_faults_of_the_calls_are_taken_out():
    """Processes that give memory back and take it again are 30 % slower; no work tells it."""
    random = np.random.default_rng(3)

    def made(faulting):
        works = 0.1 * random.normal(size=(6, len(KINDS)))
        times = 0.001 * (1 + 0.3 * faulting) * np.exp(0.005 * random.normal(size=6))
        known = run("mlp", np.log(times), works)
        faults = {"faulting": 0.0002 * faulting}  # 200 of them, of 1.5 µs each
        return msgspec.structs.replace(known, yardsticks=[y | faults for y in known.yardsticks])

    past = [made(number % 3 == 0) for number in range(18)]
    known = correction(made(False), made(True), past)
    assert known.log_ratio == pytest.approx(math.log(1.3), abs=0.02)
    assert known.before > 0.1
    assert known.between < 0.02
    # Where no earlier process took any, nothing is known of what they take.
    calm = [run for number, run in enumerate(past) if number % 3]
    unknown = correction(made(False), made(True), calm)
    assert unknown is None or unknown.error > 10 * known.error


def test_what_was_never_seen_to_help_is_not_used():
    random = np.random.default_rng(3)
    past = [
        run("mlp", [0.1 * random.normal()] * 6, 0.1 * random.normal(size=(6, len(KINDS))))
        for _ in range(20)
    ]
    assert correction(past[0], past[1], past) is None


def test_the_runs_compared_are_not_learnt_from():
    past = host(12)
    own = of("conv", past)
    found = correction(own[0], own[1], past)
    assert found == correction(own[0], own[1], [known for known in past if known not in own[:2]])
    assert found.runs == 10


def test_six_other_runs_of_three_processes_are_needed():
    old, new, *others = of("conv", host(12))
    assert correction(old, new, others[:6]) is not None
    assert correction(old, new, others[:5]) is None
    two = run("conv", (0.0, 0.0))
    assert correction(old, new, [*others[:5], two]) is None
    assert correction(two, new, others) is None


def test_reference_work_that_one_side_lacks_is_left_out():
    old, new, *others = of("conv", host(12))
    plain = msgspec.structs.replace(new, yardsticks=())
    without = [msgspec.structs.replace(known, yardsticks=()) for known in others]
    assert correction(old, plain, others) == correction(old, plain, without)


def test_work_that_moved_further_than_ever_leaves_more_open():
    old, *others = of("conv", host(16))
    near, far = (run("conv", (0.05,) * 6, [(shift, 0, 0, 0)] * 6) for shift in (0.05, 9.0))
    usual, unusual = (correction(old, new, others) for new in (near, far))
    assert unusual.error > 2 * usual.error


@pytest.mark.thorough
def test_simulated_runs_of_one_build_rarely_differ_and_a_tenth_more_is_found():
    alarms = found = 0
    for seed in range(40):
        past = host(20, seed=seed)
        old, new = of("conv", past)[-2:]
        known = correction(old, new, past)
        for factor in (1.0, 1.1):
            times = tuple(factor * time for time in new.medians)
            interval = corrected(old.medians, times, known).interval(0.99)
            if factor == 1.0:
                alarms += not interval.low <= 0 <= interval.high
            else:
                found += interval.low > 0
    assert alarms <= 1
    assert found >= 30


@pytest.fixture(scope="module")
def recorded():
    """Runs of six models on two quiet cores, and of a ResNet-18 while one core was taken."""
    text = (DATA / "past_runs_by_process.json").read_text()
    return msgspec.convert(json.loads(text), list[PastRun])


def test_on_a_real_host_fast_processes_halve_the_spread_of_runs(recorded):
    quiet = [known for known in recorded if not known.busy]
    factors = []
    for target in dict.fromkeys(known.target for known in quiet):
        old, new = of(target, quiet)[:2]
        found = correction(old, new, quiet)
        factors.append(1.0 if found is None else found.before / found.between)
    assert len(factors) == 6
    assert statistics.median(factors) >= 2


def test_on_a_real_host_a_tenth_more_is_found_in_runs_that_had_quiet_moments(recorded):
    """No pair of an MLP's twenty runs differs, and each one that takes a tenth more is found."""
    own = [known for known in recorded if known.target == "mlp"]
    assert len(own) == 20
    for old, new in itertools.pairwise(own):
        known = correction(old, new, own)
        test = corrected(old.medians, new.medians, known)
        assert test.interval(0.99).low <= 0 <= test.interval(0.99).high
        slower = tuple(1.1 * median for median in new.medians)
        assert corrected(old.medians, slower, known).interval(0.99).low > 0


def test_on_a_real_host_that_is_busy_the_spread_is_halved_as_well(recorded):
    own = [known for known in recorded if known.target == "resnet18" and known.busy]
    found = [correction(old, new, own) for old, new in itertools.pairwise(own)]
    assert statistics.median(known.before / known.between for known in found) >= 2
