"""The simulation beside sums by hand, queueing theory and another simulator."""

import random

import numpy as np
import pytest
from tests.support import queue_theory as theory

from torchgauge.analyze.capacity.simulation import Workers, at_random, drawn, highest_rate, simulate

# The mean over so many requests, and how near to theory it is then.
ACCURACY = pytest.mark.parametrize(
    ("count", "rel"), [(300_000, 0.01), pytest.param(1_000_000, 0.005, marks=pytest.mark.slow)]
)


def constant(*seconds):
    """Services that always take so long, by batch size."""
    return [drawn(np.array([value]), at_random(np.random.default_rng(0))) for value in seconds]


def ends(arrivals, services, workers):
    return simulate(np.array(arrivals, dtype=float), services, workers).ends.tolist()


def stratified(quantile, seed, count):
    """Return quantiles at evenly spaced shares in random order: their mean is exact."""
    shares = (np.arange(count) + 0.5) / count
    return np.random.default_rng(seed).permutation(quantile(shares))


def exponential(seed, count):
    return stratified(lambda share: -np.log1p(-share), seed, count)


def mean_latency(count, load, services, workers=None, *, capacity=None):
    """Return the mean; of a million requests chance leaves some 0.3 %."""
    workers = workers or Workers()
    arrivals = np.cumsum(exponential(0, count) / (load * (capacity or workers.count)))
    served = simulate(arrivals, services, workers)
    return float((served.ends - arrivals).mean())


def test_one_worker_by_hand():
    assert ends([0, 1, 2, 9], constant(2.0), Workers()) == [2, 4, 6, 11]


def test_two_workers_by_hand():
    assert ends([0, 0.5, 1, 1.5], constant(2.0), Workers(2)) == [2, 2.5, 4, 4.5]


def test_batches_by_hand():
    # 0 alone at its delay, 1; then 1.2, 2 and 2.5 of which two fill a batch at 3 = its end.
    services = constant(2.0, 3.0)
    assert ends([0, 1.2, 2, 2.5], services, Workers(1, 2, 1.0)) == [3, 6, 6, 8]


def test_full_batch_starts_at_once():
    assert ends([0, 0.25, 0.5], constant(1, 1, 1), Workers(1, 3, 5.0)) == [1.5, 1.5, 1.5]


def test_last_batch_waits_for_its_delay():
    assert ends([0, 0.25], constant(1, 1, 1), Workers(1, 3, 5.0)) == [6, 6]


def test_a_delay_may_begin_when_a_worker_takes_the_first_request():
    """The second one comes at 2.5 and is taken at 3; at 4 the third is there too."""
    workers = Workers(1, 3, 1.0, collects=True)
    assert ends([0, 2.5, 3.8], constant(2.0, 2.0, 2.0), workers) == [3, 6, 6]
    workers = Workers(1, 3, 1.0)
    assert ends([0, 2.5, 3.8], constant(2.0, 2.0, 2.0), workers) == [3, 5.5, 7.5]


def test_no_delay_takes_who_waits():
    # One starts at once; the two that came meanwhile go together.
    served = simulate(np.array([0, 0.1, 0.2]), constant(1.0, 1.5), Workers(1, 2))
    assert served.ends.tolist() == [1, 2.5, 2.5]
    assert (served.busy, served.batches) == (2.5, 2)


def test_no_requests():
    assert ends([], constant(1.0), Workers()) == []
    assert ends([], constant(1.0, 1.0), Workers(2, 2)) == []


def test_one_worker_is_the_general_case():
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1.3, 500))
    times = np.random.default_rng(2).exponential(1.0, 500).tolist()
    quick = simulate(arrivals, [iter(times)], Workers())
    # A worker that is never free again: the general loop, and the same queue.
    general = simulate(arrivals, [iter([1e12, *times])], Workers(2))
    shifted = simulate(arrivals[:-1], [iter(times)], Workers())
    assert general.ends[1:].tolist() == pytest.approx(
        simulate(arrivals[1:], [iter(times)], Workers()).ends.tolist()
    )
    assert quick.ends[:-1].tolist() == shifted.ends.tolist()


@ACCURACY
@pytest.mark.parametrize("load", [0.5, 0.7])
def test_mean_latency_of_constant_service(load, count, rel):
    mean = mean_latency(count, load, constant(1.0))
    assert mean == pytest.approx(theory.md1_latency(load), rel=rel)


@ACCURACY
@pytest.mark.parametrize("load", [0.3, 0.5])
def test_mean_latency_of_exponential_service(load, count, rel):
    mean = mean_latency(count, load, [iter(exponential(7, count))])
    assert mean == pytest.approx(theory.mm1_latency(load), rel=rel)


@ACCURACY
@pytest.mark.parametrize(
    "workers", [4, *(pytest.param(count, marks=pytest.mark.thorough) for count in (2, 16))]
)
def test_mean_latency_of_several_workers(workers, count, rel):
    mean = mean_latency(count, 0.6, [iter(exponential(9, count).tolist())], Workers(workers))
    assert mean == pytest.approx(theory.mmk_latency(workers, 0.6), rel=rel)


@ACCURACY
@pytest.mark.parametrize("most", [8, pytest.param(2, marks=pytest.mark.thorough)])
def test_mean_latency_of_batches(most, count, rel):
    service = iter(exponential(5, count).tolist())
    mean = mean_latency(count, 0.6, [service] * most, Workers(1, most), capacity=most)
    assert mean == pytest.approx(theory.bulk_latency(0.6 * most, most), rel=rel)


@ACCURACY
def test_mean_latency_of_a_delay(count, rel):
    mean = mean_latency(count, 1.0, constant(*[0.0] * 60), Workers(1, 60, 3.0))
    assert mean == pytest.approx(theory.delayed_latency(1.0, 3.0), rel=rel)


def test_theory_of_one_is_that_of_several():
    assert theory.mmk_latency(1, 0.6) == pytest.approx(theory.mm1_latency(0.6))
    assert theory.bulk_latency(0.6, 1) == pytest.approx(theory.mm1_latency(0.6))


def test_highest_rate():
    # Two workers with batches of four, each in half a second.
    assert highest_rate([0.2, 0.3, 0.4, 0.5], Workers(2, 4)) == 16


def test_resembling_samples_draw_alike():
    values = np.sort(np.random.default_rng(0).normal(5, 1, 400))
    pairs = zip(
        drawn(values, at_random(np.random.default_rng(3))),
        drawn(values * 1.5, at_random(np.random.default_rng(3))),
        range(50),
        strict=False,
    )
    assert all(second == 1.5 * first for first, second, _ in pairs)


def test_agrees_with_simpy():
    simpy = pytest.importorskip("simpy")
    generator = random.Random(4)
    arrivals, clock = [], 0.0
    for _ in range(400):
        clock += generator.expovariate(1.6)
        arrivals.append(clock)
    times = [generator.expovariate(1.0) for _ in arrivals]
    ended = {}
    environment = simpy.Environment()
    desk = simpy.Resource(environment, capacity=2)

    def customer(number):
        yield environment.timeout(arrivals[number])
        with desk.request() as turn:
            yield turn
            yield environment.timeout(times[number])
        ended[number] = environment.now

    for number in range(len(arrivals)):
        environment.process(customer(number))
    environment.run()
    ours = simulate(np.array(arrivals), [iter(times)], Workers(2)).ends
    assert ours.tolist() == pytest.approx([ended[number] for number in range(len(arrivals))])


def test_batches_agree_with_a_plain_account():
    generator = random.Random(8)
    for _ in range(60):
        arrivals = sorted(generator.uniform(0, 20) for _ in range(generator.randint(1, 40)))
        workers = Workers(generator.randint(1, 3), generator.randint(1, 5), generator.random())
        times = [0.3 + 0.2 * size for size in range(1, 6)]
        expected = _event_by_event(arrivals, times, workers)
        assert ends(arrivals, constant(*times), workers) == pytest.approx(expected)


def _event_by_event(arrivals, times, workers):
    """Look at the queue at every arrival, end and delay: slow, and nothing is clever."""
    free = [0.0] * workers.count
    queue, ended = list(range(len(arrivals))), {}
    delay = workers.max_delay if workers.max_batch > 1 else 0.0
    moments = sorted({*arrivals, *(arrival + delay for arrival in arrivals)})
    while queue:
        now = moments.pop(0)
        while True:
            waiting = [number for number in queue if arrivals[number] <= now]
            idle = [place for place, end in enumerate(free) if end <= now]
            due = waiting and arrivals[waiting[0]] + delay <= now
            if not idle or not (due or len(waiting) >= workers.max_batch):
                break
            batch = waiting[: workers.max_batch]
            end = free[idle[0]] = now + times[len(batch) - 1]
            moments = sorted({*moments, end})
            for number in batch:
                queue.remove(number)
                ended[number] = end
    return [ended[number] for number in range(len(arrivals))]
