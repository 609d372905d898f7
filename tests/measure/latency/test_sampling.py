"""The sampling loop on a clock that the test moves."""

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.sampled_machine import MS, FakeClock, Machine, steady

from torchgauge.analyze.latency.stopping import Look
from torchgauge.analyze.statistics.autocorrelation import percentile_time
from torchgauge.analyze.statistics.percentiles import percentile_interval, samples_needed
from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.measure.latency import sampling
from torchgauge.measure.latency.latency_options import SamplingPlan
from torchgauge.measure.latency.sampling import sample


@pytest.fixture
def looked(monkeypatch):
    """Record the sizes of the looks, none of which is satisfied."""
    sizes = []

    def look(samples, target, **options):
        sizes.append(len(samples))
        return Look(enough=False, relative_error=0.5)

    monkeypatch.setattr(sampling, "look", look)
    return sizes


def test_looks_come_at_a_hundred_and_then_grow_by_half(looked):
    run = Machine(steady()).sample(SamplingPlan(budget=8))
    assert looked == [100, 150, 225, 337, 506, 759]
    assert run.stop == "time budget spent"


def test_first_look_waits_for_half_a_second(looked):
    """At 1 ms a call, 506 samples are the first look's size after 0.5 s."""
    Machine(steady(1 * MS)).sample(SamplingPlan(budget=1.0))
    assert looked == [506, 759]


def test_given_warmup_comes_before_the_looks(looked):
    Machine(steady()).sample(SamplingPlan(warmup=30, budget=2))
    assert looked == [130, 180]


def test_equal_samples_are_enough_at_the_first_look():
    run = Machine(steady()).sample()
    assert run.stop == "precision reached"
    assert run.samples == (0.01,) * 100
    assert (run.first_call, run.median, run.steady) == (0.04, 0.01, True)


def test_noise_asks_for_more_until_the_target_is_met():
    run = Machine(steady(spread=0.1)).sample(SamplingPlan(target_rel_error=0.01))
    assert len(run.samples) in {506, 759, 1139, 1708}
    assert run.interval.half_width <= 0.01 * run.median
    assert not run.interval.short


@pytest.mark.parametrize(
    ("fraction", "least", "samples"), [(0.90, 36, 100), (0.95, 72, 150), (0.99, 368, 506)]
)
def test_a_percentile_is_sampled_for_until_it_has_an_interval(fraction, least, samples):
    """The median alone would have been enough at the first look, with 100 samples."""
    assert samples_needed(fraction) == least
    run = Machine(steady(spread=0.001)).sample(SamplingPlan(independent=least))
    assert run.stop == "precision reached"
    assert len(run.samples) == samples
    tau = percentile_time(run.steady_samples, fraction)
    assert percentile_interval(run.steady_samples, fraction, tau) is not None


def test_the_budget_ends_what_a_percentile_needs():
    run = Machine(steady(spread=0.001)).sample(SamplingPlan(independent=368, budget=2))
    assert run.stop == "time budget spent"
    assert len(run.samples) == 200


def test_iterations_are_taken_exactly_whatever_a_percentile_needs():
    run = Machine(steady()).sample(SamplingPlan(independent=368, iterations=20, warmup=2))
    assert len(run.samples) == 22


def test_warmup_of_sixty_is_not_stopped_in():
    warm = itertools.chain([50 * MS], [13 * MS] * 60, itertools.repeat(10 * MS))
    run = Machine(warm).sample()
    assert run.stop == "precision reached"
    assert run.warmup == 65  # and one batch more
    assert set(run.steady_samples) == {0.01}


def test_budget_is_checked_between_calls_and_leaves_the_first_one_out():
    """After a first call of 4 s (a compilation), calls of 1 s: 1, 2, 3 s; the budget is 2.5 s."""
    run = Machine(steady(1000 * MS, first=4000 * MS)).sample(SamplingPlan(budget=2.5))
    assert run.stop == "time budget spent"
    assert len(run.samples) == 3


def test_one_sample_is_taken_whatever_the_budget():
    run = Machine(steady(4000 * MS)).sample(SamplingPlan(budget=1.0))
    assert (len(run.samples), run.stop, run.interval) == (1, "time budget spent", None)


def test_budget_leaves_the_interval_short():
    run = Machine(steady(spread=0.3)).sample(SamplingPlan(budget=2.0))
    assert run.stop == "time budget spent"
    assert run.interval.short


def test_default_budget_is_thirty_seconds_unless_iterations_are_given():
    assert Machine(steady(1000 * MS)).sample().stop == "time budget spent"
    run = Machine(steady(1000 * MS)).sample(SamplingPlan(iterations=50))
    assert (len(run.steady_samples), run.stop) == (50, "iterations done")
    run = Machine(steady(1000 * MS)).sample(SamplingPlan(iterations=50, budget=10))
    assert (len(run.samples), run.stop) == (10, "time budget spent")


@pytest.mark.parametrize("iterations", [1, 2, 3, 100])
@pytest.mark.parametrize("warmup", [0, 10])
def test_given_counts_are_kept_to_the_call(warmup, iterations):
    machine = Machine(steady(spread=0.3))
    run = machine.sample(SamplingPlan(warmup=warmup, iterations=iterations))
    assert machine.calls == 1 + warmup + iterations
    assert run.warmup == warmup
    assert len(run.steady_samples) == iterations
    assert run.stop == "iterations done"


def test_iterations_make_up_for_the_warmup_found():
    warm = itertools.chain([50 * MS], [13 * MS] * 20, itertools.repeat(10 * MS))
    run = Machine(warm).sample(SamplingPlan(iterations=100))
    assert (run.warmup, len(run.samples)) == (25, 125)
    assert set(run.steady_samples) == {0.01}


@given(st.integers(1, 200), st.integers(0, 1000), st.floats(0, 1))
@example(30, 3, 0.5)  # the warm-up found at 30 samples is none at 45
@settings(deadline=None, max_examples=50)
def test_iterations_are_exact_whatever_the_noise(iterations, seed, spread):
    run = Machine(steady(spread=spread, seed=seed)).sample(SamplingPlan(iterations=iterations))
    assert len(run.steady_samples) == iterations
    assert len(run.samples) <= 2 * iterations


def test_busy_time_belongs_to_the_warmup():
    """150 ms at 10 ms a call: 15 samples, then a batch (a tenth of 20; 5 of 100), then the rest."""
    run = Machine(steady()).sample(SamplingPlan(iterations=20), busy_warmup=0.15)
    assert (run.warmup, len(run.samples)) == (17, 37)
    run = Machine(steady()).sample(busy_warmup=0.15)
    assert run.warmup == 20
    run = Machine(steady()).sample(SamplingPlan(warmup=3), busy_warmup=0.15)
    assert run.warmup == 3


def test_looks_leave_the_busy_time_out(monkeypatch):
    given = []

    def look(samples, target, **options):
        given.append((target, options))
        return Look(enough=True, relative_error=0.0)

    monkeypatch.setattr(sampling, "look", look)
    Machine(steady()).sample(SamplingPlan(target_rel_error=0.02), busy_warmup=0.15)
    assert given == [(0.02, {"warmup": None, "least_warmup": 15})]


def test_device_time_of_the_first_call_is_busy_time():
    run = Machine(steady(first=260 * MS), stages=True).sample(busy_warmup=0.15)
    assert run.warmup == 2 + 5


def test_device_and_stages_are_kept_beside_the_samples():
    run = Machine(steady(), stages=True).sample(SamplingPlan(iterations=20))
    assert run.device_samples == (0.005,) * 22
    assert run.stage_samples == {"preprocess": (0.0025,) * 22, "model": (0.0075,) * 22}


def test_interrupt_keeps_what_was_measured():
    run = Machine(steady(), interrupt_at=32).sample()
    assert (len(run.samples), run.stop) == (30, "interrupted")


def test_interrupt_in_the_given_warmup_keeps_one_sample_and_calls_it_unsteady():
    run = Machine(steady(), interrupt_at=12).sample(SamplingPlan(warmup=50))
    assert (len(run.samples), run.warmup, run.steady) == (10, 9, False)


@pytest.mark.parametrize("call", [1, 2])
def test_interrupt_before_the_first_sample_passes_through(call):
    with pytest.raises(KeyboardInterrupt):
        Machine(steady(), interrupt_at=call).sample()


def test_interrupt_between_two_parts_of_a_sample_drops_it(monkeypatch):
    whole = sampling._Samples.add

    def add(taken, timing):
        if len(taken.totals) == 20:
            taken.totals.append(timing.total)
            raise KeyboardInterrupt
        whole(taken, timing)

    monkeypatch.setattr(sampling._Samples, "add", add)
    run = Machine(steady(), stages=True).sample()
    lengths = {len(run.samples), len(run.device_samples), len(run.stage_samples["model"])}
    assert lengths == {20}


def test_what_the_call_raises_passes_through():
    def broken():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sample(broken, FakeClock(), SamplingPlan())


def test_progress_is_told_between_calls_and_seldom():
    machine = Machine(steady(100 * MS, spread=0.1))
    told = []

    def on_progress(samples, relative_error, elapsed):
        assert not machine.inside
        assert samples == machine.calls - 1
        told.append((samples, relative_error, elapsed))

    machine.sample(SamplingPlan(budget=20), on_progress=on_progress)
    times = [elapsed for _, _, elapsed in told]
    assert len(told) > 40
    assert min(later - one for one, later in itertools.pairwise(times)) >= 0.3
    assert told[0][1] is None
    assert 0 < told[-1][1] < 0.1


def test_samples_are_bounded(monkeypatch):
    monkeypatch.setattr(sampling, "MOST_SAMPLES", 300)
    run = Machine(steady(spread=1.0)).sample()
    assert (len(run.samples), run.stop) == (300, "sample limit reached")
    assert run.interval.short


def test_calls_below_the_tick_are_measured_as_zero():
    run = Machine(steady(0)).sample(SamplingPlan(iterations=100), clock_resolution=1e-6)
    assert run.median == 0
    assert "timer-coarse" in {warning.id for warning in run.warnings}


@pytest.mark.parametrize(
    "options",
    [
        {"warmup": -1},
        {"iterations": 0},
        {"target_rel_error": 0.0},
        {"target_rel_error": 1.0},
        {"target_rel_error": float("nan")},
        {"budget": 0.0},
        {"budget": float("nan")},
    ],
)
def test_impossible_plans_are_refused(options):
    with pytest.raises(InputError) as caught:
        SamplingPlan(**options)
    assert caught.value.id == "option-invalid"
    assert isinstance(caught.value, TorchgaugeError)
    assert next(iter(options)) in str(caught.value)
