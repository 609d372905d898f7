"""Predictions beside worlds that are known, drawn with other seeds than the plan's."""

import tracemalloc

import numpy as np
import pytest
from scipy.signal import lfilter
from tests.support import capacity_worlds as worlds
from tests.support import queue_theory as theory

from torchgauge.analyze.capacity.batch_model import BatchModel
from torchgauge.analyze.capacity.capacity_options import CapacityOptions
from torchgauge.analyze.capacity.capacity_plans import knee
from torchgauge.analyze.capacity.prediction import Predictor, judged
from torchgauge.analyze.capacity.server_model import unit_arrivals
from torchgauge.analyze.capacity.simulation import Workers, simulate
from torchgauge.analyze.capacity.token_model import TokenModel
from torchgauge.errors import InputError
from torchgauge.records.serving.capacity_plan import LARGEST_BATCH, BatchTimes, ServiceTimes
from torchgauge.records.serving.requests import Goal


def predictor(times, effort=0.3, **options):
    known = {"rate": 1.0, "effort": effort}
    return Predictor(BatchModel.from_times(times), CapacityOptions(**{**known, **options}))


def latency(prediction):
    return prediction.distributions["latency"]


@pytest.mark.thorough
def test_mean_is_that_of_theory():
    # Constant service of 6 ms, a worker busy 80 % of the time.
    prediction = predictor(worlds.exact((1,))).predict(Workers(), 0.8 / 6e-3)
    mean = latency(prediction).mean
    assert mean.value == pytest.approx(6e-3 * theory.md1_latency(0.8), rel=0.01)
    assert mean.interval.low < 6e-3 * theory.md1_latency(0.8) < mean.interval.high
    assert prediction.utilization == pytest.approx(0.8, rel=0.01)


@pytest.mark.thorough
def test_light_load_waits_for_nothing():
    prediction = predictor(worlds.exact((1,), overhead=1e-3)).predict(Workers(4), 0.01)
    assert latency(prediction).percentile(0.99).value == pytest.approx(7e-3)


@pytest.mark.parametrize("workers", [Workers(), Workers(2, 2, 1e-3)])
def test_hardly_any_load_takes_what_a_single_request_takes(workers):
    """At one in 30 years the seconds of a schedule would not hold its milliseconds."""
    model = predictor(worlds.exact((1, 2), overhead=1e-3), effort=0.02)
    rare, light = (model.predict(workers, rate) for rate in (1e-9, 0.01))
    for fraction in (0.5, 0.99):
        expected = latency(light).percentile(fraction).value
        assert latency(rare).percentile(fraction).value == pytest.approx(expected, rel=1e-3)
    assert rare.utilization == pytest.approx(1e-7 * light.utilization, rel=0.01)


@pytest.mark.thorough
def test_full_queue_has_no_prediction():
    model = predictor(worlds.exact((1, 2)))
    assert model.predict(Workers(1, 2), 250.0) is None  # two in 8 ms are 250 a second
    assert model.predict(Workers(1, 2), 240.0) is not None
    (result,) = judged((worlds.P99,), None)
    assert (result.verdict, result.value) == ("missed", None)


def test_interval_is_absent_where_little_was_measured():
    prediction = predictor(worlds.measured((1,), count=3)).predict(Workers(), 50.0)
    figure = latency(prediction).percentile(0.99)
    assert figure.interval is None
    assert "Too few service times" in figure.reason


def test_interval_is_absent_where_resamples_have_no_end():
    # Eight values that scatter widely do not show whether a worker stands 95 %.
    times = worlds.measured((1,), count=12, spread=0.8)
    highest = BatchModel.from_times(times).highest_rate(Workers())
    prediction = predictor(times, effort=0.05).predict(Workers(), 0.95 * highest)
    figure = latency(prediction).percentile(0.5)
    assert figure.interval is None
    assert "without end" in figure.reason
    (result,) = judged((Goal(metric="latency", fraction=0.5, limit=1e3),), prediction)
    assert result.verdict == "unclear"


@pytest.mark.thorough
def test_verdicts():
    prediction = predictor(worlds.measured()).predict(Workers(1, 8, 5e-3), 150.0)
    figure = latency(prediction).percentile(0.99)
    limits = (0.5 * figure.interval.low, figure.value, 2 * figure.interval.high)
    goals = [Goal(metric="latency", fraction=0.99, limit=limit) for limit in limits]
    results = judged(goals, prediction)
    assert [result.verdict for result in results] == ["missed", "unclear", "met"]


def test_interpolates_between_measured_batches():
    model = BatchModel.from_times(worlds.exact((1, 2, 4, 8)))
    assert model.means == pytest.approx([4e-3 + 2e-3 * size for size in range(1, 9)])
    assert model.largest_batch == 8


def test_rare_batches_have_the_mean_of_their_neighbours():
    times = worlds.exact((1, 2, 4))
    rare = {part.batch: np.array(part.seconds) for part in times.batches} | {3: np.array([1.0])}
    assert BatchModel(rare).means[2] == pytest.approx(10e-3, rel=0.6)
    assert BatchModel(rare).means[0] == pytest.approx(6e-3)


def test_slow_drift_is_in_the_interval():
    """Times that move slowly say less of their mean than as many independent ones."""
    generator = np.random.default_rng(0)
    steps = np.repeat(generator.normal(0, 0.1, 20), 50)
    independent = generator.permutation(steps)

    def scatter(values):
        model = BatchModel({1: 1e-2 * np.exp(values)})
        return np.std([model.resampled(generator).means[0] for _ in range(200)])

    assert scatter(steps) > 3 * scatter(independent)


def slow_periods(count, seed):
    """Return by what factor each batch is slower: for tens of batches in a row by much."""
    generator = np.random.default_rng(seed)
    innovations = generator.normal(0, 0.25 * np.sqrt(1 - 0.97**2), count)
    return np.exp(lfilter([1], [1, -0.97], innovations))


def test_slow_periods_lengthen_the_queue():
    """Slow batches in a row are replayed in a row; drawn apart they would wait half as long."""
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / 75, 300_000))
    truth = simulate(arrivals, [iter((1e-2 * slow_periods(300_000, 2)).tolist())], Workers())
    p99 = np.quantile(truth.ends - arrivals, 0.99)
    seconds = 1e-2 * slow_periods(20_000, 3)
    model = BatchModel({1: seconds})
    shuffled = BatchModel({1: np.random.default_rng(4).permutation(seconds)})
    assert 50 < model.stretch < 1000
    assert shuffled.stretch < 3
    replayed, apart = (
        np.quantile(made.run(arrivals, Workers(), 0).latency, 0.99) for made in (model, shuffled)
    )
    assert replayed == pytest.approx(p99, rel=0.25)
    assert apart < 0.6 * p99


def test_slow_periods_are_slow_for_batches_of_all_sizes():
    factors = slow_periods(4000, 5)
    order = (1, 2) * 2000
    seconds = {1: 4e-3 * factors[::2], 2: 6e-3 * factors[1::2]}
    model = BatchModel(seconds, order=order)
    # Two that arrive at once, then one alone, which finds the worker free: sizes take turns.
    arrivals = np.repeat(np.arange(20_000.0), 2)
    arrivals[1::4] += 0.5
    latency = model.run(arrivals, Workers(1, 2, 0.0), 0).latency
    singles, pairs = latency[0::4], latency[3::4]
    assert np.median(singles) == pytest.approx(np.median(seconds[1]), rel=0.05)
    assert np.median(pairs) == pytest.approx(np.median(seconds[2]), rel=0.05)
    assert np.corrcoef(singles, pairs)[0, 1] > 0.8
    again = model.resampled(np.random.default_rng(0))
    latency = again.run(arrivals, Workers(1, 2, 0.0), 0).latency
    assert np.corrcoef(latency[0::4], latency[3::4])[0, 1] > 0.8


@pytest.mark.thorough
def test_another_run_is_as_much_faster_or_slower_as_parts_of_this_one_are():
    """Two minutes at one speed say nothing of the next ones; eight that differ say by how much."""
    generator = np.random.default_rng(7)
    noise = np.exp(generator.normal(0, 0.1, 4000))
    speeds = np.repeat(np.exp([0.12, -0.08, 0.1, -0.12, 0.08, -0.1, 0.05, -0.05]), 500)
    alike, differing = BatchModel({1: 1e-2 * noise}), BatchModel({1: 1e-2 * noise * speeds})
    assert alike.drift < 0.01
    assert differing.drift == pytest.approx(np.std(speeds[::500], ddof=1), rel=0.1)
    means = [differing.resampled(generator).means[0] for _ in range(400)]
    low, high = np.quantile(means, (0.025, 0.975)) / np.mean(1e-2 * noise * speeds)
    # t of 7 degrees of freedom, for a ninth beside eight.
    assert high == pytest.approx(np.exp(2.365 * differing.drift * np.sqrt(9 / 8)), rel=0.1)
    assert low == pytest.approx(1 / high, rel=0.1)


@pytest.mark.slow
def test_predictions_hold_in_other_worlds():
    """Of 48 worlds p50 is within 3 %, p99 within 8 %, and 90 % lie inside of the intervals."""
    inside, p50, p99 = [], [], []
    for number, workers in enumerate(worlds.SETTINGS):
        for load in (0.3, 0.7, 0.9, 0.95):
            truth = worlds.true_latencies(workers, load, 3_000_000, seed=900 + number)
            for seed in range(3):
                times = worlds.measured(tuple(range(1, 9)), 4000, seed=seed + 10 * number)
                made = predictor(times, effort=1.0, seed=seed).predict(
                    workers, load * worlds.highest_rate(workers)
                )
                for fraction, errors in ((0.5, p50), (0.99, p99)):
                    figure, true = latency(made).percentile(fraction), np.quantile(truth, fraction)
                    errors.append(abs(figure.value / true - 1))
                    parts = [np.quantile(part, fraction) for part in np.array_split(truth, 20)]
                    # Near the highest rate three million requests do not know it better.
                    error = 2 * np.std(parts, ddof=1) / np.sqrt(20)
                    low, high = figure.interval.low - error, figure.interval.high + error
                    inside.append(low <= true <= high)
    assert np.quantile(p50, 0.9) < 0.03
    assert np.quantile(p99, 0.9) < 0.08
    assert np.mean(inside) >= 0.9


@pytest.mark.thorough
def test_knee_is_where_the_goal_is_reached():
    # p99 of M/D/1 at 6 ms grows through 30 ms; there a run at that rate shows it.
    goals = (Goal(metric="latency", fraction=0.99, limit=0.03),)
    model = predictor(worlds.measured((1,), 4000), goals=goals, effort=1.0)
    shown = knee(model, Workers())
    load = shown.value * 6e-3
    truth = np.quantile(worlds.true_latencies(Workers(), load, 2_000_000, seed=5), 0.99)
    assert truth == pytest.approx(0.03, rel=0.1)
    assert shown.interval.low < shown.value < shown.interval.high
    assert shown.interval.high < 1.05 * shown.value


def test_knee_of_few_requests_is_corrected_by_a_long_run():
    # p95 of batches of eight at 80 % is 2.14 s, by 32 million requests.
    model = BatchModel({size: np.full(50, 0.5 + 0.0625 * size) for size in range(1, 9)})
    goals = (Goal(metric="latency", fraction=0.95, limit=2.14),)
    options = CapacityOptions(rate=1.0, goals=goals, effort=0.15, seed=1)
    shown = knee(Predictor(model, options), Workers(1, 8), interval=False)
    assert shown.value / model.highest_rate(Workers(1, 8)) == pytest.approx(0.8, rel=0.015)


def test_knee_of_a_goal_out_of_reach():
    goals = (Goal(metric="latency", fraction=0.5, limit=1e-3),)
    assert knee(predictor(worlds.exact((1,)), goals=goals), Workers()) is None
    assert knee(predictor(worlds.exact((1,))), Workers()) is None


@pytest.mark.parametrize(
    ("arrivals", "variation"), [("poisson", 1.0), ("constant", 0.0), ("gamma:2", 2.0)]
)
def test_arrivals(arrivals, variation):
    gaps = np.diff(unit_arrivals(CapacityOptions(rate=7.0, arrivals=arrivals), 200_000))
    assert gaps.mean() == pytest.approx(1.0, abs=0.02)
    assert gaps.std() == pytest.approx(variation, abs=0.05)


def test_arrivals_at_random_have_the_rate_without_chance():
    for arrivals in ("poisson", "gamma:2"):
        options = CapacityOptions(rate=7.0, arrivals=arrivals, seed=4)
        # All gaps but the first, which is left out: of one per second, 1 % are off by chance.
        assert unit_arrivals(options, 10_000)[-1] == pytest.approx(10_000, abs=15)


def test_recorded_arrivals_repeat():
    options = CapacityOptions(recorded=(5.0, 6.0, 10.0), file="day.txt")
    assert options.offered == pytest.approx(0.4)
    assert unit_arrivals(options, 5).tolist() == pytest.approx([0, 1.6, 2.0, 3.6, 4.0])


@pytest.mark.thorough
def test_tokens_are_predicted():
    times = worlds.tokens()
    model = TokenModel.from_times(times, (), 2048)
    options = CapacityOptions(rate=1.0, effort=0.3)
    made = Predictor(model, options).predict(Workers(1, 8), 0.5)
    # Nearly nobody else: 10 ms + 100 × 0.1 ms, then ten steps of 6 ms.
    assert made.distributions["ttft"].percentile(0.5).value == pytest.approx(0.02, rel=0.01)
    assert made.distributions["tpot"].percentile(0.5).value == pytest.approx(0.006, rel=0.01)
    assert latency(made).percentile(0.5).value == pytest.approx(0.08, rel=0.01)


def test_highest_rate_of_tokens():
    # Without prompts to speak of, eight sequences of 11 tokens take ten steps of 13 ms.
    times = worlds.tokens()
    rate = TokenModel.from_times(times, ((1, 2001),), 2048).highest_rate(Workers(2, 8))
    assert rate == pytest.approx(2 * 8 / (2000 * 0.013), rel=0.02)


def test_sizes_up_to_a_large_batch_take_no_memory_before_they_are_drawn():
    model = BatchModel({1: np.full(2000, 1e-3), LARGEST_BATCH: np.full(2000, 65.536)})
    assert model.largest_batch == LARGEST_BATCH
    assert model.means[99] == pytest.approx(0.1)
    arrivals = np.zeros(3)
    tracemalloc.start()
    outcome = model.run(arrivals, Workers(1, LARGEST_BATCH), seed=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert outcome.latency.tolist() == pytest.approx([3e-3] * 3)
    assert peak < 1 << 26


@pytest.mark.parametrize("size", [-1, 0, LARGEST_BATCH + 1, 500_000_000])
def test_a_batch_that_no_server_computes_is_refused(size):
    times = ServiceTimes(source="server", batches=(BatchTimes(batch=size, seconds=(1e-3,) * 9),))
    with pytest.raises(InputError) as raised:
        BatchModel.from_times(times)
    assert raised.value.id == "batch-implausible"


@pytest.mark.parametrize(
    ("seconds", "order"),
    [((1e-3,) * 9, (1,) * 8 + (2,)), ((1e-3,) * 9, (1,) * 10), ((1e-3, -1e-3), ())],
)
def test_batches_that_contradict_their_record_are_refused(seconds, order):
    times = ServiceTimes(
        source="server", batches=(BatchTimes(batch=1, seconds=seconds),), order=order
    )
    with pytest.raises(InputError) as raised:
        BatchModel.from_times(times)
    assert raised.value.id == "batch-implausible"
