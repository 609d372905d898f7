"""What forbids a verdict on two times: too few samples, overlap, other load, drift."""

import math

import msgspec
import pytest
from tests.support.latency_runs import timed

from torchgauge.analyze.compare.compare import compare
from torchgauge.analyze.compare.regressions import regressions
from torchgauge.analyze.gate.stored import HostNoise
from torchgauge.analyze.gate.stored_gate import gate
from torchgauge.analyze.gate.tolerances import default_tolerance
from torchgauge.analyze.latency.correction import Correction
from torchgauge.records.record import Interval, MeasurementWarning

TEN = (0.0100, 0.0101, 0.0099, 0.0100, 0.0101, 0.0100)
FIFTEEN = tuple(1.5 * median for median in TEN)
QUIET = HostNoise(between=0.001, sessions=20)


def changed(record, **changes):
    latency = msgspec.structs.replace(record.latency, **changes)
    return msgspec.structs.replace(record, latency=latency)


def warned(record, *ids):
    found = tuple(MeasurementWarning(id=name, message="", probe="latency") for name in ids)
    return changed(record, warnings=found)


def lengthened(record, samples, p99=None):
    """Return the record with so many samples in each process, the last ones far out."""
    runs = [
        msgspec.structs.replace(run, samples=(run.median,) * (samples - 1) + (127 * run.median,))
        for run in record.latency.processes
    ]
    record = changed(record, processes=tuple(runs))
    return record if p99 is None else changed(record, p99=p99)


def latency_of(baseline, current, noise=None):
    return compare(baseline, current, noise=noise).change_of("latency")


@pytest.mark.parametrize("medians", [(TEN[:1], FIFTEEN[:1]), (TEN, FIFTEEN)])
def test_overlapping_intervals_are_inconclusive(medians):
    old, new = (timed(*side) for side in medians)
    apart = latency_of(old, changed(new, interval=Interval(low=0.0149, high=0.0151)))
    assert apart.judgement == "worse"
    wide = Interval(low=0.0095, high=0.025)
    found = latency_of(changed(old, interval=wide), changed(new, interval=wide))
    assert found.judgement == "inconclusive"
    assert found.reason == "the intervals of the two runs overlap"
    both = regressions(changed(old, interval=wide), changed(new, interval=wide))
    assert not both
    assert "latency" in [one.metric for one in both.undecided]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("count", [1, 6])
def test_other_load_on_a_side_is_inconclusive_unless_it_is_known_what_it_does(side, count):
    sides = [timed(*TEN[:count]), timed(*FIFTEEN[:count])]
    assert latency_of(*sides).judgement == "worse"
    sides[side] = warned(sides[side], "other-load")
    found = latency_of(*sides)
    assert found.judgement == "inconclusive"
    assert ("the current run" if side else "the baseline") in found.reason
    assert not regressions(*sides)
    seen = HostNoise(between=0.02, sessions=20, remembered=True, busy=True)
    assert latency_of(*sides, seen).judgement == "worse"


def test_a_drift_within_few_processes_is_inconclusive():
    few = warned(timed(*TEN[:2]), "drift"), timed(*FIFTEEN[:2])
    assert latency_of(*few).reason == "the latency drifted in the baseline"
    many = warned(timed(*TEN), "drift"), timed(*FIFTEEN)
    assert latency_of(*many).judgement == "worse"


def test_a_percentile_of_too_few_samples_is_never_judged():
    old = lengthened(timed(0.010), 30, p99=0.010)
    new = lengthened(timed(0.010), 30, p99=1.27)
    found = compare(old, new).change_of("p99")
    assert found.change == pytest.approx(126)
    assert found.judgement == "inconclusive"
    assert found.reason == "n too small: p99 has no interval in the baseline and the current run"
    known = {**old.latency.percentile_intervals, "p99": Interval(low=0.009, high=0.011)}
    half = compare(changed(old, percentile_intervals=known), new).change_of("p99")
    assert half.reason == "n too small: p99 has no interval in the current run"
    whole = [changed(one, percentile_intervals=known) for one in (old, new)]
    assert compare(*whole).change_of("p99").judgement == "worse"


def test_of_several_processes_each_must_have_samples_beyond_a_percentile():
    for samples, judgement in ((199, "inconclusive"), (200, "worse")):
        sides = [lengthened(timed(*medians), samples) for medians in (TEN, FIFTEEN)]
        assert compare(*sides, noise=QUIET).change_of("p99").judgement == judgement
        tolerance = default_tolerance("p99")
        verdict = gate(*sides, [tolerance], noise=QUIET)
        assert verdict.outcome == ("inconclusive" if samples < 200 else "fail")


def test_a_gate_fails_no_run_for_what_others_did():
    tolerances = [default_tolerance("latency")]
    old, new = timed(*TEN), timed(*FIFTEEN)
    assert gate(old, new, tolerances, noise=QUIET).outcome == "fail"
    verdict = gate(old, warned(new, "other-load"), tolerances, noise=QUIET)
    assert verdict.outcome == "inconclusive"
    assert "other processes" in verdict.rulings[0].reason


def corrected_noise(log_ratio, between=0.01):
    explained = Correction(
        log_ratio=log_ratio, error=math.sqrt(2) * between, between=between, before=0.1, runs=15
    )
    return HostNoise(between=0.1, sessions=16, remembered=True, busy=True, correction=explained)


def test_what_the_machine_explains_is_taken_out_and_shown_beside_the_measured_change():
    old, new = timed(*TEN[:3]), timed(*(1.2 * median for median in TEN[:3]))
    comparison = compare(old, new, noise=corrected_noise(math.log(1.2)))
    latency = comparison.change_of("latency")
    assert latency.change == pytest.approx(0.2)
    assert latency.corrected == pytest.approx(0.0, abs=1e-9)
    # t of 14 degrees at 99 % is 2.977, times √2 · 0.01.
    reach = math.expm1(2.9768 * math.sqrt(2) * 0.01)
    assert latency.corrected_interval.high == pytest.approx(reach, rel=1e-3)
    assert latency.corrected_interval.confidence == 0.99
    assert latency.judgement == "inconclusive"
    throughput = comparison.change_of("throughput")
    assert throughput.corrected == pytest.approx(0.0, abs=1e-9)
    assert comparison.change_of("first_call").corrected is None
    slow = compare(old, new, noise=corrected_noise(0.0))
    assert slow.change_of("latency").judgement == "worse"
    assert slow.change_of("throughput").judgement == "worse"


def test_a_gate_judges_the_corrected_change_and_says_both():
    from torchgauge.report.content.rulings import line
    from torchgauge.report.content.rulings import render as regression_lines

    tolerances = [default_tolerance("latency")]
    old, new = timed(*TEN[:3]), timed(*(1.2 * median for median in TEN[:3]))
    for log_ratio, outcome in ((0.0, "fail"), (math.log(1.2), "pass"), (math.log(1.4), "pass")):
        noise = corrected_noise(log_ratio, between=0.004)
        verdict = gate(old, new, tolerances, noise=noise)
        assert verdict.outcome == outcome
        (ruling,) = verdict.rulings
        assert ruling.change == pytest.approx(0.2)
        assert math.log1p(ruling.corrected) == pytest.approx(math.log(1.2) - log_ratio)
        assert "+20.0 %" in line(ruling)
        assert "at the machine's usual speed, estimated" in line(ruling)
    for text in (
        regression_lines(regressions(old, new, noise=corrected_noise(0.0))),
        compare(old, new, noise=corrected_noise(0.0)).to_markdown(),
        str(compare(old, new, noise=corrected_noise(0.0))),
        compare(old, new, noise=corrected_noise(0.0)).to_html(),
    ):
        assert "usual speed, estimated" in " ".join(text.replace("\\u0027", "'").split())
