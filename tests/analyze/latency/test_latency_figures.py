"""From samples to the record: figures by hand, what is honest for 1, 2, 3 processes, warnings."""

import math
import statistics

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from torchgauge.analyze.latency.latency import combine, run_figures
from torchgauge.analyze.latency.run_spread import RunSpread, headline, process_interval, run_spread
from torchgauge.errors import MeasurementError
from torchgauge.records.latency.latency import Latency, PastRun
from torchgauge.records.record import Interval, MeasurementWarning


def run_of(samples, **options):
    options = {"first_call": 0.5, "stop": "precision reached", **options}
    return run_figures(samples, **options)


def noise(count, seed=0, spread=0.03, median=0.01):
    return median * np.exp(spread * np.random.default_rng(seed).normal(size=count))


def ids(record):
    return {warning.id for warning in record.warnings}


def test_figures_of_one_process_by_hand():
    samples = np.random.default_rng(1).permutation(np.arange(1.0, 101.0))
    latency = combine([run_of(samples, warmup=0)])
    assert (latency.median, latency.p50, latency.mean) == (50.5, 50.5, 50.5)
    assert (latency.min, latency.max) == (1.0, 100.0)
    assert latency.std == pytest.approx(statistics.stdev(samples))
    assert latency.p90 == pytest.approx(90.1)
    assert latency.first_call == 0.5
    assert latency.interval.low <= 39.7
    assert latency.interval.high >= 61.3
    assert latency.percentile_intervals["p50"] == latency.interval
    assert latency.percentile_intervals["p99"] is None
    assert "one process" in latency.interval_method


def test_warmup_is_kept_and_counts_for_nothing():
    run = run_of([0.02] * 20 + [0.01] * 80)
    assert (len(run.samples), run.warmup, run.steady) == (100, 25, True)
    assert combine([run]).max == 0.01


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 9, 10, 11])
def test_any_count_gives_a_record(count):
    latency = combine([run_of([0.01] * count)])
    assert latency.median == latency.p99 == 0.01
    assert latency.mean == 0.01
    assert latency.std is None if count == 1 else latency.std < 1e-15
    assert (latency.interval is None) == (count < 6)
    assert latency.steady == (count >= 10)
    assert ("too-few-samples" in ids(latency)) == (count < 10)
    assert "p99-n-too-small" in ids(latency)


@given(
    st.lists(st.floats(0, 1e4, allow_subnormal=False), min_size=1, max_size=150),
    st.one_of(st.none(), st.integers(0, 200)),
    st.integers(1, 4),
)
@settings(deadline=None)
def test_any_samples_give_a_valid_record(samples, warmup, processes):
    latency = combine([run_of(samples, warmup=warmup)] * processes)
    assert latency.processes[0].samples == tuple(samples)
    assert 1 <= len(latency.processes[0].steady_samples) <= len(samples)
    assert latency.min <= latency.median <= latency.max
    assert latency.min <= latency.p90 <= latency.p95 <= latency.p99 <= latency.max
    if latency.interval is not None:
        assert latency.interval.low <= latency.median <= latency.interval.high
    assert msgspec.json.decode(msgspec.json.encode(latency), type=Latency).median == latency.median


@given(st.integers(0, 500), st.integers(1, 300), st.sampled_from([0.25, 1024.0]))
@settings(deadline=None, max_examples=30)
def test_unit_does_not_matter(seed, count, factor):
    samples = noise(count, seed)
    one, other = run_of(samples), run_of(samples * factor)
    assert one.median * factor == other.median
    assert (one.warmup, one.steady, one.autocorrelation) == (
        other.warmup,
        other.steady,
        other.autocorrelation,
    )
    assert ids(one) == ids(other)


@pytest.mark.parametrize("samples", [[], [0.01, -0.01], [0.01, math.nan], [math.inf]])
def test_what_is_no_duration_is_refused(samples):
    with pytest.raises(MeasurementError) as caught:
        run_of(samples)
    assert caught.value.id == "samples-invalid"


def test_no_process_is_refused():
    with pytest.raises(MeasurementError):
        combine([])


def test_three_processes_have_a_t_interval_on_the_logs_of_their_medians():
    """Log medians 0, 0.1, 0.2 and a constant: s = 0.1; t(2) = 4.3027; ± 4.3027·0.1/√3."""
    runs = [run_of(noise(200, seed, median=0.01 * math.exp(seed / 10))) for seed in range(3)]
    runs = [msgspec.structs.replace(run, median=math.exp(i / 10)) for i, run in enumerate(runs)]
    latency = combine(runs, target_rel_error=0.01)
    assert latency.median == pytest.approx(math.exp(0.1))
    reach = 4.302653 * 0.1 / math.sqrt(3)
    assert latency.interval.low == pytest.approx(math.exp(0.1 - reach))
    assert latency.interval.high == pytest.approx(math.exp(0.1 + reach))
    assert latency.interval.short
    assert latency.interval_method == "Student's t on the log medians of 3 processes"
    assert set(latency.percentile_intervals) == {"p50", "p90", "p95", "p99"}
    assert (latency.interval_scope, latency.interval.scope) == ("runs", "runs")
    assert latency.percentile_intervals["p90"].scope == "runs"
    assert latency.percentile_intervals["p99"] is None  # fewer than two samples are beyond it
    assert len(latency.samples) == sum(len(run.steady_samples) for run in runs)


def test_two_processes_have_no_interval_and_say_so():
    latency = combine([run_of(noise(200, seed)) for seed in range(2)])
    assert latency.interval is None
    assert "two processes" in latency.interval_method
    assert "no-interval" in ids(latency)


@given(st.lists(st.floats(1e-9, 1e3), min_size=3, max_size=30))
def test_process_interval_holds_the_median(medians):
    interval = process_interval(medians)
    assert interval.low <= statistics.median(medians) <= interval.high


@pytest.mark.parametrize(("with_drift", "told"), [(1, False), (2, False), (3, True), (5, True)])
def test_what_few_of_several_processes_have_is_part_of_their_spread(with_drift, told):
    drift = MeasurementWarning(id="drift", message="It drifts.", probe="latency")
    load = MeasurementWarning(id="other-load", message="Others.", probe="latency")
    calm = msgspec.structs.replace(run_of(noise(200)), warnings=(load,))
    moved = msgspec.structs.replace(calm, warnings=(drift, load))
    latency = combine([moved] * with_drift + [calm] * (5 - with_drift))
    assert ("drift" in ids(latency)) == told
    assert "other-load" in ids(latency)


def test_process_interval_needs_positive_medians():
    assert process_interval([0.0, 1.0, 1.0]) is None


def test_a_calibrated_interval_by_hand():
    """Three processes at ln 0, 0.1, 0.2 (variance 0.01) of a host whose runs differ by 20 %.

    Of processes of one run it tells no more. V = 0.2² + 0.01/3, degrees of freedom after
    Satterthwaite V² ÷ (0.04²/10 + 0.00333²/2) = 11.3, t = 2.1937.
    """
    spread = RunSpread(between=0.2, runs=10.0, within=None, within_freedom=0.0)
    found = headline([1.0, math.exp(0.1), math.exp(0.2)], None, spread)
    assert found.scope == found.interval.scope == "calibrated"
    variance = 0.04 + 0.01 / 3
    freedom = variance**2 / (0.04**2 / 10 + (0.01 / 3) ** 2 / 2)
    reach = stats.t.ppf(0.975, freedom) * math.sqrt(variance)
    assert found.interval.low == pytest.approx(math.exp(0.1 - reach))
    assert found.interval.high == pytest.approx(math.exp(0.1 + reach))


def test_what_earlier_processes_differ_by_counts_for_eight_degrees_of_freedom_at_most():
    """Variance 0.01 of 2 degrees, and 0.04 of 100 that count as 8: (0.02 + 0.32) ÷ 10 = 0.034."""
    spread = RunSpread(between=1e-9, runs=10.0, within=0.2, within_freedom=100.0)
    found = headline([1.0, math.exp(0.1), math.exp(0.2)], None, spread)
    reach = stats.t.ppf(0.975, 10) * math.sqrt(0.034 / 3)
    assert found.interval.high == pytest.approx(math.exp(0.1 + reach), rel=1e-6)


def test_one_process_is_calibrated_only_where_it_is_known_what_processes_differ_by():
    within = Interval(low=0.99, high=1.01, scope="process")
    alone = headline([1.0], within, None)
    assert (alone.interval, alone.scope) == (within, "process")
    unknown = RunSpread(between=0.1, runs=9.0, within=None, within_freedom=0.0)
    assert headline([1.0], within, unknown) == alone
    known = RunSpread(between=0.1, runs=9.0, within=0.05, within_freedom=30.0)
    found = headline([1.0], within, known)
    assert found.scope == "calibrated"
    assert found.interval.high > math.exp(1.96 * math.hypot(0.1, 0.05))


def test_two_processes_have_an_interval_where_the_host_remembers():
    spread = RunSpread(between=0.1, runs=9.0, within=0.05, within_freedom=30.0)
    assert headline([1.0, 1.1], None).interval is None
    assert headline([1.0, 1.1], None, spread).interval.low < 1.0


def test_processes_that_drift_widen_the_interval():
    steady = process_interval(np.exp([0.0, 0.04, 0.01, 0.03, 0.02, 0.0]))
    drifting = process_interval(np.exp([0.0, 0.0, 0.01, 0.02, 0.03, 0.04]))
    assert drifting.half_width > 1.5 * steady.half_width


@pytest.mark.parametrize(("remembered", "least", "most"), [(False, 0.1, 0.6), (True, 0.9, 0.995)])
def test_only_with_what_the_host_remembers_the_interval_holds_the_next_runs(
    remembered, least, most
):
    """Runs differ by 10 %, processes of a run by 4 %: the run alone cannot see the former."""
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(400):
        runs = [
            PastRun(
                target="model", created="", medians=tuple(np.exp(shift + rng.normal(0, 0.04, 6)))
            )
            for shift in rng.normal(0, 0.1, 9)
        ]
        spread = run_spread(runs[:-1], "model", busy=None) if remembered else None
        interval = headline(runs[-1].medians, None, spread).interval
        held += interval.low <= 1 <= interval.high
    assert least <= held / 400 <= most


def test_process_interval_covers_the_truth():
    rng = np.random.default_rng(0)
    found = [process_interval(np.exp(0.1 * rng.normal(size=5))) for _ in range(1000)]
    assert 0.93 < np.mean([one.low <= 1 <= one.high for one in found]) < 0.97


def test_worst_end_of_the_processes_is_the_end():
    runs = [run_of([0.01] * 20, stop=stop) for stop in ("precision reached", "time budget spent")]
    assert combine(runs).stop == "time budget spent"
    assert combine([*runs, run_of([0.01] * 20, stop="interrupted")]).stop == "interrupted"


def test_device_time_and_stages_leave_the_warmup_out():
    samples = [0.02] * 20 + [0.01] * 80
    stages = {"model": [0.019] * 20 + [0.009] * 80, "postprocess": [0.001] * 100}
    device = [float(number) for number in range(100)]
    run = run_of(samples, device_samples=device, stage_samples=stages)
    latency = combine([run])
    assert latency.device_time == 62.0
    assert [(stage.name, stage.median) for stage in latency.stages] == [
        ("model", 0.009),
        ("postprocess", 0.001),
    ]
    assert latency.stages[0].interval.low == 0.009
    assert combine([run, run]).stages[0].interval is None
    assert combine([run_of(samples)]).device_time is None


def test_slow_start_longer_than_half_is_flagged_as_moving():
    samples = noise(100)
    samples[:60] *= 1.3
    assert {"drift", "several-modes", "not-steady"} & ids(run_of(samples))


def test_step_up_that_the_data_take_for_a_warmup_is_flagged():
    samples = noise(400)
    samples[120:] *= 1.1
    run = run_of(samples)
    assert 100 <= run.warmup <= 130
    assert [warning.message for warning in run.warnings if "were faster" in warning.message]
    assert "drift" in ids(run_of(samples, keep=270))


def test_given_warmup_that_is_too_short_is_flagged():
    samples = noise(300)
    samples[:60] *= 1.3
    assert "warm-up-short" in ids(run_of(samples, warmup=10))
    assert "warm-up-short" not in ids(run_of(samples, warmup=60))
    assert "warm-up-short" not in ids(run_of(samples))


def test_endless_warmup_is_not_steady():
    run = run_of(noise(200) * np.linspace(2, 1, 200))
    assert not run.steady
    assert "not-steady" in ids(run)


def test_modes_are_named_with_their_places():
    samples = np.where(np.random.default_rng(0).random(400) < 0.5, 1.0, 1.5) * noise(400)
    run = run_of(samples)
    message = next(one.message for one in run.warnings if one.id == "several-modes")
    assert "% of the calls near 9.9" in message
    assert "% near 14.9" in message


def test_coarse_clock_is_named():
    assert "timer-coarse" in ids(run_of(noise(100), clock_resolution=2e-4))
    assert "timer-coarse" not in ids(run_of(noise(100), clock_resolution=5e-5))
    assert "timer-coarse" in ids(run_of([0.0] * 100))


def test_interval_wider_than_asked_for_is_short_and_said():
    wide = combine([run_of(noise(100, spread=0.2))])
    assert wide.interval.short
    assert "interval-short" in ids(wide)
    near = combine([run_of(noise(100, spread=0.2), target_rel_error=0.5)], target_rel_error=0.5)
    assert not near.interval.short
    assert "interval-short" not in ids(near)


def test_percentiles_say_what_they_need():
    few, enough = (combine([run_of(noise(count), warmup=0)]) for count in (300, 3000))
    assert few.percentile_intervals["p99"] is None
    assert "p99-n-too-small" in ids(few)
    assert enough.percentile_intervals["p99"] is not None
    assert "p99-n-too-small" not in ids(enough)


def test_slow_calls_in_a_row_are_few_events_for_a_percentile():
    """Forty slow calls among 3,000: alone, or in two rows. The median sees no difference."""
    alone, rows = noise(3000), noise(3000)
    alone[::75] = rows[500:520] = rows[2000:2020] = 0.1
    spread, bunched = (combine([run_of(samples, warmup=0)]) for samples in (alone, rows))
    assert spread.percentile_intervals["p99"] is not None
    assert bunched.percentile_intervals["p99"] is None
    assert "p99-n-too-small" in ids(bunched)
    assert bunched.processes[0].autocorrelation < 1.5


def test_warnings_of_several_processes_are_said_once_with_their_number():
    stepped = noise(300)
    stepped[150:] *= 1.2
    runs = [run_of(stepped, warmup=0), run_of(noise(300)), run_of(stepped, warmup=0)]
    found = [warning for warning in combine(runs).warnings if warning.id == "drift"]
    assert len(found) == 1
    assert found[0].message.startswith("In 2 of 3 processes: ")
    assert found[0].probe == "latency"


def test_many_page_faults_of_calls_are_told_with_what_to_try():
    # 10 ms with 3,000 page faults, and with 100.
    faulting, calm = {"faulting": 0.003}, {"faulting": 0.0001}

    def told(*yardsticks):
        runs = [msgspec.structs.replace(run_of([0.01] * 60), yardstick=y) for y in yardsticks]
        return [one for one in combine(runs).warnings if one.id == "page-faults"]

    (always,) = told(faulting)
    assert always.message == "Each call takes about 3,000 page faults."
    assert "malloc-keep" in always.remedy
    (sometimes,) = told(faulting, calm, faulting)
    assert sometimes.message == "Each call takes about 3,000 page faults in 2 of 3 processes."
    assert told(calm, {}, calm) == []
