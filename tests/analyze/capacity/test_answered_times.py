"""Servers that tell no service times, planned from when they answered."""

import msgspec
import numpy as np
import pytest
from tests.support import capacity_worlds as worlds

from torchgauge.analyze.capacity import prediction, server_model
from torchgauge.analyze.capacity.answered_times import inferred_times
from torchgauge.analyze.capacity.batch_model import BatchModel
from torchgauge.analyze.capacity.capacity_options import CapacityOptions
from torchgauge.analyze.capacity.capacity_plans import Planner
from torchgauge.analyze.capacity.service_times import service_times
from torchgauge.analyze.capacity.simulation import Workers
from torchgauge.analyze.capacity.verification import plan, verifying_load
from torchgauge.errors import InputError
from torchgauge.records.serving.capacity_plan import BatchTimes, ServiceTimes
from torchgauge.records.serving.level import ClientLoad, Saturation
from torchgauge.records.serving.requests import Goal
from torchgauge.records.serving.serving import ServedBy

LATE = ClientLoad(lateness_p99=1.0, limited=True)


def goal(limit):
    return Goal(metric="latency", fraction=0.95, limit=limit)


def one_worker(*rates, **changes):
    """Return loads at these rates of a worker that takes 10.05 ms on average."""
    return worlds.untold(*(worlds.load_record("fifo", r, count=400, **changes) for r in rates))


def with_late_client(record):
    levels = [msgspec.structs.replace(level, client=LATE) for level in record.levels]
    return msgspec.structs.replace(record, levels=tuple(levels))


def slower(record):
    (level,) = record.levels
    last = tuple(3 * moment for moment in level.requests.last)
    requests = msgspec.structs.replace(level.requests, last=last, first=last)
    return msgspec.structs.replace(
        record, levels=(msgspec.structs.replace(level, requests=requests),)
    )


@pytest.fixture
def short_simulations(monkeypatch):
    """How exact figures are is tested beside the simulation."""
    for name in ("FEWEST_REQUESTS", "MOST_REQUESTS", "FEWEST_RESAMPLED", "MOST_RESAMPLED"):
        monkeypatch.setattr(prediction, name, 4_000)
    monkeypatch.setattr(prediction, "RESAMPLES", 20)
    monkeypatch.setattr(server_model, "REFERENCE", 50_000)
    monkeypatch.setattr(server_model, "RESAMPLES", 20)


def test_of_one_worker_a_service_is_what_it_answers_at_most():
    times = service_times(one_worker(20, 300))
    assert (times.source, times.at_once, times.max_batch) == ("answers", 1, 1)
    assert np.mean(times.batches[0].seconds) == pytest.approx(0.01005, rel=0.02)
    assert np.std(times.batches[0].seconds) == pytest.approx(0.001, rel=0.2)
    assert times.overhead < 1e-3
    assert times.queues == "unknown"


@pytest.mark.parametrize(
    ("said", "at_once", "queues"), [(None, 3, ["unknown"]), (3, 1, ["one", "bound", "random"])]
)
def test_several_at_once(said, at_once, queues):
    served_by = ServedBy(kind="endpoint", workers=said)
    levels = [worlds.load_record("fifo", rate, workers=3, count=900) for rate in (20, 900)]
    ways = list(inferred_times(worlds.untold(*levels, served_by=served_by)))
    right = [w for w in ways if w.at_once * w.workers == 3 and w.max_batch == 1]
    assert [way.queues for way in right] == queues
    for way in right:
        assert way.at_once == at_once
        assert np.mean(way.batches[0].seconds) == pytest.approx(0.01005, rel=0.02)


@pytest.mark.parametrize("collects", [False, True])
def test_batches_are_requests_that_are_answered_together(collects):
    record = worlds.batching_record(20, 150, 250, 600, delay=5e-3, collects=collects, count=800)
    ways = [way for way in inferred_times(worlds.untold(record)) if way.max_batch == 8]
    (right,) = (
        way
        for way in ways
        if way.collects == collects
        and way.max_delay > 4e-3
        and np.mean(way.batches[1].seconds) == pytest.approx(8e-3, rel=0.1)
    )
    for part in right.batches:  # of one alone, what is outside may be in it
        error = 0.2 if part.batch == 1 else 0.1
        assert np.mean(part.seconds) == pytest.approx(4e-3 + 2e-3 * part.batch, rel=error)
    assert right.max_delay + right.overhead == pytest.approx(6e-3, rel=0.15)  # 1 ms is outside


def test_a_delay_that_was_given_is_taken():
    record = worlds.batching_record(20, 150, 600, delay=5e-3, collects=True, count=800)
    ways = [way for way in inferred_times(worlds.untold(record), 5e-3) if way.max_batch == 8]
    assert [(way.max_delay, way.collects) for way in ways] == [(5e-3, False), (5e-3, True)]


def test_levels_of_a_late_client_say_nothing():
    right, slow = one_worker(20, 300), with_late_client(one_worker(20, 30, seed=1))
    both = msgspec.structs.replace(right, levels=(*right.levels, *slow.levels))
    assert service_times(both) == service_times(right)


@pytest.mark.parametrize(
    ("record", "cause"),
    [
        (one_worker(300), "idle, at 1 levels"),
        (one_worker(20, 25), "No level let requests wait"),
        (worlds.untold(worlds.unlimited_record(20), worlds.unlimited_record(900)), "No level let"),
        (with_late_client(one_worker(20, 300)), "a client that was in time"),
        (
            # 10 ms alone, and 30 ms as soon as requests wait.
            worlds.untold(worlds.unlimited_record(20), slower(worlds.load_record("fifo", 300))),
            "they slow each other down",
        ),
    ],
)
def test_what_a_load_does_not_show_is_not_planned(record, cause):
    with pytest.raises(InputError) as error:
        plan(record, CapacityOptions(rate=50.0))
    assert error.value.id == "no-service-times"
    assert cause in error.value.cause


@pytest.mark.parametrize("at_once", [1, 2])
def test_workers_to_which_requests_come_at_random_serve_their_own(at_once):
    arrivals = np.cumsum(np.full(400, 0.004))
    kinds = {
        kind: BatchModel({1: np.full(50, 0.01)}, overhead=0.001, queues=kind)
        for kind in ("one", "random")
    }
    workers = Workers(3, at_once=at_once)
    shared, apart = (kinds[kind].run(arrivals, workers, seed=0) for kind in ("one", "random"))
    assert shared.latency == pytest.approx(0.011)  # three of 10 ms answer one each 4 ms
    assert apart.batches == shared.batches == 400
    assert [apart.busy, shared.busy] == pytest.approx([4.0, 4.0])
    owners = np.random.default_rng((0, 0)).integers(3, size=400)
    for owner in range(3):
        free, ends = [0.0] * at_once, []
        for due in arrivals[owners == owner]:
            ends.append(max(due, min(free)) + 0.01)
            free[free.index(min(free))] = ends[-1]
        waited = np.array(ends) - arrivals[owners == owner] + 0.001
        assert apart.latency[owners == owner] == pytest.approx(waited)


def test_a_request_waits_at_the_worker_of_its_connection():
    # Each takes 10 ms. The first three open a connection each: to A, to B, and to A, which is free
    # first. That of the third, answered last, takes the fourth, and the fifth, at the same time as
    # the sixth, that of the second, to B. All are idle then but that of A: the seventh, at 36 ms,
    # takes that of the first and waits for A until 40 ms, although B is free.
    arrivals = np.array([0.0, 1.0, 2.0, 30.0, 36.0, 36.5]) / 1e3
    served = BatchModel({1: np.full(50, 0.01)}, queues="bound").run(arrivals, Workers(2), seed=0)
    assert served.latency == pytest.approx([0.01, 0.01, 0.018, 0.01, 0.01, 0.0135])
    assert (served.batches, served.busy) == (6, pytest.approx(0.06))


def test_a_resample_of_unknown_queues_has_one_kind():
    model = BatchModel({1: np.full(50, 0.01)}, queues="unknown")
    generator = np.random.default_rng(0)
    assert {model.resampled(generator).queues for _ in range(20)} == {"one", "bound"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("queues", "fewest", "needed"), [("one", 3, 3), ("unknown", 3, 4), ("bound", 4, 4)]
)
def test_the_fewest_workers_are_those_of_one_queue(
    queues, fewest, needed, short_simulations, monkeypatch
):
    # One request each 7 ms on average, and 10 ms of service. p95 of workers with one queue: 31 ms
    # of two, 15 ms of three; of those to which connections are bound 28 ms of three, 19 ms of four.
    monkeypatch.setattr(prediction, "FEWEST_REQUESTS", 30_000)
    monkeypatch.setattr(prediction, "MOST_REQUESTS", 30_000)
    times = ServiceTimes(
        source="answers", batches=(BatchTimes(batch=1, seconds=(0.01,) * 50),), max_batch=1,
        queues=queues,
    )  # fmt: skip
    options = CapacityOptions(rate=1 / 0.007, goals=(goal(0.022),))
    record = one_worker(20, 300)
    made = Planner(times, options).plan(record.target, record.environment)
    assert (made.fewest_workers, made.needed.workers) == (fewest, needed)
    assert made.idle_latency.value == pytest.approx(0.01)
    assert made.highest_rate.value == pytest.approx(100)


def test_queues_that_are_given_are_planned():
    options = CapacityOptions(rate=10.0, queues="random")
    planner = Planner(service_times(one_worker(20, 300)), options)
    assert planner.times.queues == planner.model.queues == "random"
    unfit = CapacityOptions(rate=10.0, queues="lifo")
    for times, chosen in ((planner.times, unfit), (worlds.tokens(), options)):
        with pytest.raises(InputError) as error:
            Planner(times, chosen)
        assert error.value.id == "option-invalid"


@pytest.mark.parametrize(("order", "queues"), [("fifo", "one"), ("two queues", "random")])
def test_levels_of_several_workers_show_their_queues(order, queues, short_simulations):
    records = [worlds.load_record(order, r, workers=2, count=600) for r in (30, 120, 150, 500)]
    record = worlds.untold(*records, served_by=ServedBy(kind="endpoint", workers=2))
    made = plan(record, CapacityOptions(rate=100.0))
    assert made.refused == ""
    assert made.times.queues == queues


@pytest.mark.thorough
def test_a_plan_says_what_it_rests_on_and_holds_replicas_of_both_kinds(
    short_simulations, monkeypatch
):
    for name in ("FEWEST_REQUESTS", "MOST_REQUESTS", "FEWEST_RESAMPLED", "MOST_RESAMPLED"):
        monkeypatch.setattr(prediction, name, 20_000)
    made = plan(one_worker(20, 60, 300), CapacityOptions(rate=150.0, goals=(goal(0.1),)))
    assert made.refused == ""
    assert "times-inferred" in {warning.id for warning in made.warnings}
    assert made.idle_latency.interval.low < 0.01005 + 0.00015 < made.idle_latency.interval.high
    assert made.highest_rate.value == pytest.approx(99.5, rel=0.02)
    p95 = {s.workers: s.latency.percentile(0.95) for s in made.settings if s.stable}
    # Of workers that take 10 ms each 6.7 ms, in 400,000 requests.
    assert 0.95 * p95[2].interval.low < 0.036 < 0.050 < 1.05 * p95[2].interval.high
    assert 0.95 * p95[3].interval.low < 0.016 < 0.028 < 1.05 * p95[3].interval.high
    # Behind the address that was measured there is one worker, which has its share.
    load = verifying_load(made, None, made.times.workers)
    assert (load.workers, load.rate * made.needed.workers) == (1, pytest.approx(150))


def test_answers_that_fit_no_simulated_server_refuse_the_plan(short_simulations):
    record = one_worker(20, 80, 300)
    low = record.levels[0].requests  # of which every fourth takes five times as long
    last = tuple(end + 0.04 * (i % 4 == 0) for i, end in enumerate(low.last))
    requests = msgspec.structs.replace(low, last=last, first=last)
    level = msgspec.structs.replace(record.levels[0], requests=requests)
    other = msgspec.structs.replace(record, levels=(level, *record.levels[1:]))
    made = plan(other, CapacityOptions(rate=50.0))
    assert made.needed is None
    assert made.refused


def test_a_server_that_takes_the_newest_first_refuses_the_plan(short_simulations):
    record = worlds.untold(*(worlds.load_record("lifo", r, count=600) for r in (20, 85, 300)))
    assert plan(record, CapacityOptions(rate=50.0)).refused


def test_without_a_level_to_compare_nothing_is_planned():
    growing = Saturation(saturated=True, slope=10.0)
    levels = [msgspec.structs.replace(x, saturation=growing) for x in one_worker(20, 300).levels]
    record = worlds.untold(msgspec.structs.replace(one_worker(20, 300), levels=tuple(levels)))
    made = plan(record, CapacityOptions(rate=50.0))
    assert made.needed is None
    assert made.checks == ()
    assert "shows its kind" in made.refused
