"""The control variate: nearer to the truth where it applies, and absent where it does not."""

import math

import msgspec
import numpy as np
import pytest
from tests.support.queues import requests_of, sojourn

from torchgauge.analyze.serving.arrivals import schedule
from torchgauge.analyze.serving.goals import judged, parse_goals
from torchgauge.analyze.serving.levels import level
from torchgauge.analyze.serving.request_times import with_control
from torchgauge.records.serving.level import Arrivals

SERVICE = 0.01


def services(count, variation, seed):
    sigma = math.sqrt(math.log(1 + variation**2))
    draws = np.random.default_rng(seed).lognormal(-(sigma**2) / 2, sigma, count)
    return SERVICE * draws


def simulation(variation, factor=1.0):
    def simulated(arrivals, seed):
        drawn = services(arrivals.size, variation, 10_000 + seed)
        return sojourn(arrivals, factor * drawn)

    return simulated


def measured(load, variation, seed, seconds=12.0):
    arrivals = Arrivals(kind="poisson", rate=load / SERVICE, seed=seed)
    due = schedule(arrivals, duration=seconds)
    latency = sojourn(due, services(due.size, variation, seed))
    requests = requests_of(due, latency)
    return level(requests, scenario="server", arrivals=arrivals, duration=seconds)


@pytest.mark.thorough
def test_a_short_run_comes_much_nearer_to_the_long_one():
    """Utilization 0.8, services that vary by a tenth: some 1,000 requests each, 25 runs."""
    due = np.cumsum(np.random.default_rng(0).exponential(SERVICE / 0.8, 1_000_000))
    truth = np.quantile(sojourn(due, services(due.size, 0.1, 1)), 0.99)
    raw, controlled = [], []
    for seed in range(25):
        short = with_control(measured(0.8, 0.1, seed), simulation(0.1))
        assert short.controlled.how == "estimated"
        assert short.controlled.interval is None
        raw.append(math.log(short.latency.percentile(0.99).value / truth))
        controlled.append(math.log(short.controlled.value / truth))
    assert np.sqrt(np.mean(np.square(controlled))) < 0.5 * np.sqrt(np.mean(np.square(raw)))


@pytest.mark.parametrize(
    ("load", "variation", "simulated"),
    [
        (0.5, 0.1, simulation(0.1, factor=1.2)),  # another server
        (0.5, 0.4, simulation(0.4)),  # the schedule explains little
        (0.8, 0.1, simulation(0.1, factor=1.3)),  # a queue without end
    ],
)
def test_it_is_absent_where_simulation_and_measurement_disagree(load, variation, simulated):
    assert with_control(measured(load, variation, 3), simulated).controlled is None


def test_it_is_absent_where_requests_were_not_answered_or_the_backlog_grew():
    steady = measured(0.8, 0.1, 4)
    fates = ("timeout", *steady.requests.fate[1:])
    failed = msgspec.structs.replace(
        steady, requests=msgspec.structs.replace(steady.requests, fate=fates), window=(0.0, 11.0)
    )
    assert with_control(failed, simulation(0.1)).controlled is None
    assert with_control(measured(1.3, 0.1, 4), simulation(0.1)).controlled is None
    closed = msgspec.structs.replace(steady, arrivals=Arrivals(kind="closed", users=1))
    assert with_control(closed, simulation(0.1)).controlled is None


def test_it_takes_the_highest_percentile_of_a_goal():
    short = measured(0.8, 0.1, 5)
    results = tuple(judged(goal, short) for goal in parse_goals("p90<1s p95<2s ttft_p99<1s"))
    short = msgspec.structs.replace(short, goals=results)
    assert with_control(short, simulation(0.1)).controlled.fraction == 0.95
