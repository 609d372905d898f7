"""Levels of load corrected by a simulation of the server, with the times that it tells."""

import msgspec
import numpy as np
import pytest
from tests.support import servings
from tests.support.queues import requests_of, sojourn

from torchgauge.analyze.capacity.service_times import of_requests, with_controls
from torchgauge.analyze.serving.arrivals import schedule
from torchgauge.analyze.serving.levels import level
from torchgauge.records.serving.capacity_plan import ServiceTimes
from torchgauge.records.serving.level import Arrivals, ClientLoad

SERVICE, RATE, SECONDS = 0.01, 80.0, 12.0


def measured(seed, *, last_in=False, client=None):
    """Return the record of a short run of one worker whose service times vary by a tenth."""
    arrivals = Arrivals(kind="poisson", rate=RATE, seed=seed)
    due = schedule(arrivals, duration=SECONDS)
    services = SERVICE * np.random.default_rng(seed).lognormal(-0.005, 0.1, due.size)
    latency = sojourn(due, services)
    if last_in:  # as of a server with another discipline
        latency = latency[::-1].copy()
    requests = msgspec.structs.replace(
        requests_of(due, latency), service=tuple(services.tolist()), batch=(1,) * due.size
    )
    made = level(requests, scenario="server", arrivals=arrivals, duration=SECONDS, client=client)
    batches, order = of_requests([requests])
    times = ServiceTimes(
        source="server", batches=batches, order=order, max_batch=1, max_delay=0.0, workers=1
    )
    return msgspec.structs.replace(servings.capacity_found(), levels=(made,), service_times=times)


def controlled(record):
    return with_controls(record).levels[0].controlled


@pytest.mark.thorough
def test_short_runs_come_nearer_to_the_long_one():
    due = np.cumsum(np.random.default_rng(0).exponential(1 / RATE, 1_000_000))
    services = SERVICE * np.random.default_rng(1).lognormal(-0.005, 0.1, due.size)
    truth = np.quantile(sojourn(due, services), 0.99)
    raw, corrected = [], []
    for seed in range(12):
        record = with_controls(measured(seed))
        raw.append(np.log(record.levels[0].latency.percentile(0.99).value / truth))
        corrected.append(np.log(record.levels[0].controlled.value / truth))
    assert np.sqrt(np.mean(np.square(corrected))) < 0.5 * np.sqrt(np.mean(np.square(raw)))
    assert record.levels[0].controlled.how == "estimated"


def test_the_measured_figure_stays_as_it_was():
    record = measured(3)
    assert with_controls(record).levels[0].latency == record.levels[0].latency


@pytest.mark.parametrize(
    "record",
    [
        measured(1, last_in=True),
        measured(1, client=ClientLoad(lateness=0.01, lateness_p99=0.05)),
        msgspec.structs.replace(measured(1), service_times=None),
    ],
    ids=["other-discipline", "late-client", "no-times"],
)
def test_what_the_simulation_does_not_follow_has_none(record):
    assert controlled(record) is None
    assert controlled(measured(1)) is not None


def test_batches_larger_than_any_that_ran_are_not_simulated():
    record = measured(1)
    times = msgspec.structs.replace(record.service_times, max_batch=8, max_delay=0.05)
    assert controlled(msgspec.structs.replace(record, service_times=times)) is not None


def test_service_times_of_an_overloaded_level_are_left_out():
    """An overload in which batches take three times as long changes nothing of the other level."""
    record = measured(1)
    level, times = record.levels[0], record.service_times
    slow = msgspec.structs.replace(
        level.requests, service=tuple(3 * seconds for seconds in level.requests.service)
    )
    overload = msgspec.structs.replace(
        level, requests=slow, saturation=msgspec.structs.replace(level.saturation, saturated=True)
    )
    batches, order = of_requests([level.requests, slow])
    both = msgspec.structs.replace(
        record, levels=(level, overload),
        service_times=msgspec.structs.replace(times, batches=batches, order=order),
    )  # fmt: skip
    assert controlled(both) == controlled(record)
