"""Plans whose answer is known by arithmetic, and servers that no plan fits."""

import dataclasses
import math

import msgspec
import numpy as np
import pytest
from tests.support import capacity_worlds as worlds
from tests.support import generations, records, servings, sweeps

from torchgauge.analyze.capacity.capacity_options import CapacityOptions
from torchgauge.analyze.capacity.capacity_plans import Planner, smallest_enough, unbeaten
from torchgauge.analyze.capacity.service_times import of_requests, service_times
from torchgauge.analyze.capacity.verification import level_checks, plan
from torchgauge.errors import InputError
from torchgauge.records import codec
from torchgauge.records.serving.capacity_plan import BatchTimes, PlannedSetting, ServiceTimes
from torchgauge.records.serving.level import ClientLoad
from torchgauge.records.serving.requests import Goal, Requests
from torchgauge.records.serving.serving import ServedBy


def planned(times, **options):
    known = {"goals": (worlds.P99,), "effort": 0.1}
    planner = Planner(times, CapacityOptions(**{**known, **options}))
    return planner.plan(servings.target(), records.environment())


@pytest.mark.thorough
def test_fewest_workers_by_arithmetic():
    # Eight requests take 20 ms: a worker stands 400 a second, so 900 need three. Batches fill.
    made = planned(worlds.exact((1, 2, 4, 8)), rate=900, price=2.0, max_delay=0.03, effort=0.05)
    assert made.needed.workers == 3
    assert [setting.workers for setting in made.settings] == [1, 2, 3, 4, 5]
    assert [setting.stable for setting in made.settings] == [False, False, True, True, True]
    assert made.needed.utilization == pytest.approx(900 / 1200, rel=0.05)
    assert made.needed.price == 6.0
    assert made.needed.price_per_million == pytest.approx(6.0 / (900 * 3600) * 1e6)
    assert 900 < made.needed.knee.value < 1200
    assert made.failure.workers == 2
    assert not made.failure.stable
    assert made.needed.goals[0].verdict == "met"
    assert made.discipline == "batches"
    # The queue of two grows by 900 − 800 requests a second.
    (finding,) = [f for f in made.findings if f.id == "capacity-failure"]
    assert "800 requests/s at most: 100 more" in finding.evidence


@pytest.mark.thorough
def test_worker_that_may_fail():
    made = planned(worlds.exact((1, 2, 4, 8)), rate=900, failures=1, effort=0.03)
    assert made.needed.workers == 4
    assert made.failure.workers == 3
    assert made.failure.goals[0].verdict == "met"


@pytest.mark.thorough
def test_goal_out_of_reach():
    goal = Goal(metric="latency", fraction=0.99, limit=1e-3)
    made = planned(worlds.exact((1, 2)), rate=100, goals=(goal,))
    assert made.needed is None
    assert made.findings[0].id == "capacity-none"


def test_without_goals_the_queue_stays_finite():
    made = planned(worlds.exact((1,)), rate=160, goals=(), effort=0.03)  # 6 ms each: 167 a second
    assert made.needed.workers == 1
    assert made.needed.knee is None
    assert made.discipline == "one by one"


@pytest.mark.thorough
def test_given_workers():
    made = planned(worlds.exact((1,)), rate=200, workers=1, effort=0.03)
    assert made.needed is None
    assert [setting.workers for setting in made.settings] == [1]
    made = planned(worlds.exact((1,)), rate=200, workers=4, effort=0.03)
    assert made.needed.workers == 4


@pytest.mark.thorough
def test_limit_within_the_uncertainty_of_the_service_time_is_out_of_reach():
    """No number of workers makes the time of a request itself more certain."""
    seconds = np.random.default_rng(1).lognormal(math.log(0.0485), 0.05, 40)
    times = msgspec.structs.replace(
        worlds.exact((1,)), batches=(BatchTimes(batch=1, seconds=tuple(seconds)),)
    )
    goal = Goal(metric="latency", limit=1.003 * float(seconds.mean()))
    tried = []
    planner = Planner(times, CapacityOptions(rate=50.0, goals=(goal,), effort=0.02), tried.append)
    made = planner.plan(servings.target(), records.environment())
    assert made.needed is None
    assert made.findings[0].title == "No number of workers meets the goals for sure"
    assert len(set(tried)) < 20


def test_smallest_is_the_first_that_is_enough():
    for begin, most, first in [(1, 1, 1), (3, 40, 3), (3, 40, 17), (3, 40, 40), (9, 10, 10)]:
        assert smallest_enough(lambda count, first=first: count >= first, begin, most) == first


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate": 1e8}, "10,000 workers are not enough"),
        ({"rate": 10, "failures": 10**9}, "10,000 workers are not enough"),
        ({"rate": 200, "workers": 1}, "The queue of 1 worker does not come to rest"),
        ({"rate": 200, "workers": 1, "goals": ()}, "The queue of 1 worker does not come to rest"),
        ({"rate": 159, "workers": 1}, "1 worker misses the goals"),
        ({"rate": 200, "workers": 2, "failures": 1}, "too few where 1 fail"),
    ],
)
def test_why_no_setting_is_enough(options, words):
    made = planned(worlds.exact((1,)), effort=0.02, **options)  # 167 requests/s a worker at most
    assert made.needed is None
    assert words in made.findings[0].title
    assert words in str(made)


def test_a_request_a_day():
    made = planned(worlds.exact((1,)), rate=1e-5, workers=1, effort=0.02)
    assert made.needed.latency.percentile(0.99).value == pytest.approx(6e-3, rel=0.01)


def test_worker_less_that_is_nearly_enough():
    # Two stand 333.3 a second: of 332 none piles up without end, and yet nothing comes to rest.
    made = planned(worlds.exact((1,)), rate=332, workers=3, effort=0.02)
    (finding,) = [finding for finding in made.findings if finding.id == "capacity-failure"]
    assert finding.evidence == "2 answer 333.3 requests/s at most: 332 are more than 99 % of that."


@pytest.mark.slow
def test_front():
    made = planned(worlds.exact((1, 2, 4)), rate=300, tune=True, effort=0.03)
    assert made.front
    assert len({(s.workers, s.max_batch, s.max_delay) for s in made.front}) == len(made.front)

    def costs(setting):
        return -setting.knee.value, setting.latency.percentile(0.99).value, setting.workers

    for one in made.front:
        for other in made.front:
            better = [a <= b for a, b in zip(costs(other), costs(one), strict=True)]
            assert not all(better) or costs(one) == costs(other)


def test_front_keeps_what_is_planned():
    made = planned(worlds.exact((1,)), rate=100, tune=True, workers=1, effort=0.02)
    assert made.front == made.settings


@pytest.mark.thorough
def test_few_batches_near_the_highest_rate_are_a_warning():
    def warnings(count, rate):
        times = worlds.measured((1,), count=count, spread=0.5)
        made = planned(times, rate=rate, workers=1, effort=0.05)
        return [warning for warning in made.warnings if warning.id == "batches-few"]

    (warning,) = warnings(1000, 150)
    assert "in place of 1,000 show it to 10 %" in warning.remedy
    assert warnings(1000, 40) == []


@pytest.mark.parametrize("source", ["sweep", "call"])
def test_times_of_another_place_name_a_load_that_measures_them(source):
    times = msgspec.structs.replace(worlds.exact((1, 2)), source=source)
    made = planned(times, rate=100, workers=2, effort=0.02)
    (warning,) = [w for w in made.warnings if w.id == "times-outside-server"]
    assert "torchgauge load model.py:make --rate 25,50 --max-batch 2 -o load.json" in warning.remedy


@pytest.mark.thorough
def test_planned_tokens_are_in_the_plan():
    made = planned(worlds.tokens(), rate=2, workers=1, tokens=((50, 5),), goals=(), effort=0.1)
    assert made.times.shapes == ((50, 5),)
    assert "50 + 5 tokens of prompt and answer" in str(made)


def test_unbeaten():
    settings = [PlannedSetting(workers=number, rate=1.0) for number in (2, 1, 3)]
    assert [setting.workers for setting in unbeaten(settings)] == [1]


@pytest.mark.slow
def test_plan_of_tokens():
    goal = Goal(metric="ttft", fraction=0.95, limit=0.2, text="ttft_p95<200ms")
    made = planned(worlds.tokens(), rate=60, goals=(goal,))
    assert made.discipline == "continuous"
    assert made.needed.ttft.percentile(0.95).interval.high <= 0.2
    assert any(warning.id == "cache-unlimited" for warning in made.warnings)


def test_request_that_no_cache_holds():
    with pytest.raises(InputError, match="does not fit") as error:
        planned(worlds.tokens(memory=1000), rate=1, goals=())
    assert error.value.id == "request-too-long"


@pytest.mark.parametrize(
    ("options", "id"),
    [
        ({}, "rate-missing"),
        ({"rate": 0.0}, "option-invalid"),
        ({"rate": 1.0, "arrivals": "gamma"}, "arrivals-unknown"),
        ({"rate": 1.0, "arrivals": "gamma:x"}, "arrivals-unknown"),
        ({"rate": 1.0, "arrivals": "gamma:0.009"}, "arrivals-unknown"),
        ({"rate": 1.0, "arrivals": "uniform"}, "arrivals-unknown"),
        ({"rate": 1.0, "workers": 1, "failures": 1}, "option-invalid"),
        ({"recorded": (0.0, float("inf"))}, "option-invalid"),
        ({"rate": 1.0, "workers": 0}, "option-invalid"),
        ({"rate": 1.0, "workers": 10_001}, "option-invalid"),
        ({"rate": 1e300}, "option-invalid"),
        ({"rate": 1.0, "max_delay": -1.0}, "option-invalid"),
        ({"rate": 1.0, "failures": -1}, "option-invalid"),
        ({"recorded": (1.0,)}, "option-invalid"),
        ({"recorded": (1.0, 1.0)}, "option-invalid"),
        ({"recorded": (2.0, 1.0)}, "option-invalid"),
        ({"rate": 1.0, "goals": (Goal(metric="errors", limit=0.01),)}, "goal-unfit"),
    ],
)
def test_invalid_options(options, id):
    with pytest.raises(InputError) as error:
        CapacityOptions(**options)
    assert error.value.id == id


def test_batches_that_were_not_measured():
    with pytest.raises(InputError) as error:
        planned(worlds.exact((1, 2)), rate=1, max_batch=4)
    assert error.value.id == "batch-unmeasured"


def test_first_token_of_what_makes_none():
    with pytest.raises(InputError) as error:
        planned(worlds.exact((1,)), rate=1, goals=(Goal(metric="ttft", limit=1.0),))
    assert error.value.id == "goal-unfit"


def test_service_times_of_a_sweep():
    times = service_times(sweeps.sweep())
    assert times.source == "sweep"
    assert [part.batch for part in times.batches] == sorted({p.batch for p in times.batches})


def grid(*settings):
    """Return a sweep of two batches for each of these settings; later ones are faster."""
    cells = [
        sweeps.cell(batch, 0.01 * batch / (1 + number), **chosen)
        for number, chosen in enumerate(settings)
        for batch in (1, 2)
    ]
    return sweeps.sweep(cells)


def test_rows_of_other_work_are_no_choice_of_throughput():
    record = grid({"seq_len": 2048}, {"seq_len": 128})
    with pytest.raises(InputError) as error:
        service_times(record)
    assert error.value.id == "row-missing"
    assert "--row, of 'length 2048', 'length 128'" in error.value.remedy
    assert service_times(record, "length 2048").settings == "length 2048"
    with pytest.raises(InputError) as error:
        service_times(record, "length 64")
    assert error.value.id == "row-unknown"


def test_the_fastest_of_several_rows_is_said():
    record = grid({"precision": "fp32"}, {"precision": "bf16", "compile": "default"})
    options = CapacityOptions(rate=1.0, effort=0.02, workers=1)
    (warning,) = [w for w in plan(record, options).warnings if w.id == "row-chosen"]
    assert "Of 2 rows" in warning.message
    assert "planned for: bf16, compile default" in warning.message
    named = plan(record, dataclasses.replace(options, row="compile default"))
    assert all(warning.id != "row-chosen" for warning in named.warnings)


def test_a_row_of_what_has_none():
    with pytest.raises(InputError) as error:
        service_times(records.profile(), "bf16")
    assert error.value.id == "row-unknown"


def test_calls_of_the_target_are_outside_of_a_server():
    record = worlds.load_record("fifo", 60, count=400)
    called = ServedBy(kind="call", api="call", version="", max_batch=1)
    record = msgspec.structs.replace(record, served_by=called, service_times=None)
    made = plan(record, CapacityOptions(rate=10.0, effort=0.02, workers=1))
    assert made.times.source == "call"
    assert any(warning.id == "times-outside-server" for warning in made.warnings)


def test_no_request_waits_for_a_batch_of_one():
    """It takes 1 ms beside its 10 ms of service, whatever delay the server was given."""
    times = {"scheduled": (0.0, 1.0), "sent": (0.0, 1.0), "last": (0.011, 1.011)}
    made = Requests(**times, fate=("done",) * 2, batch=(1, 1), service=(0.01, 0.01))
    level = msgspec.structs.replace(
        worlds.load_record("fifo", 60, count=60).levels[0], requests=made
    )
    for batch, overhead in [(1, 1e-3), (2, 0.0)]:
        served = ServedBy(kind="reference", max_batch=batch, max_delay=5e-3)
        record = servings.serving([level], served_by=served)
        assert service_times(record).overhead == pytest.approx(overhead)


def test_answers_that_name_no_batch_are_one_each():
    made = Requests(scheduled=(0.0,) * 3, service=(1e-3, 2e-3, None), last=(0.1, 0.2, 0.3))
    (batch,), order = of_requests([made])
    assert (batch.batch, batch.seconds, order) == (1, (1e-3, 2e-3), (1, 1))


@pytest.mark.parametrize("workers", [1, 4])
def test_workers_of_an_endpoint_are_said_or_asked_for(workers):
    """Four workers at three times the rate of one: no server of a single worker."""
    record = worlds.load_record("fifo", 300, workers=4)
    times = msgspec.structs.replace(record.service_times, workers=workers)
    record = msgspec.structs.replace(
        record, service_times=times, served_by=ServedBy(kind="endpoint", workers=workers)
    )
    _, reason = level_checks(record, service_times(record))
    assert ("load it with --workers" in reason) == (workers == 1)


@pytest.mark.parametrize("collects", [False, True])
@pytest.mark.parametrize("said", [{}, {"max_delay": 0.01}, {"max_batch": 8, "max_delay": 0.01}])
def test_an_endpoint_that_batches_is_planned_as_its_requests_show(collects, said):
    """With a delay of 10 ms and 1 ms beside; Triton's begins with the request, LitServe's later."""
    record = worlds.batching_record(250, delay=0.01, collects=collects, count=700)
    made = plan(record, CapacityOptions(rate=300.0, effort=0.01, workers=1, **said))
    assert made.refused == ""
    assert made.times.collects == collects
    assert made.times.max_batch == made.settings[0].max_batch == 8
    assert [check.inside for check in made.checks] == [True] * 2
    estimated = "delay-estimated" in [warning.id for warning in made.warnings]
    if said:
        assert not estimated
        assert (made.times.max_delay, made.times.overhead) == (0.01, pytest.approx(1e-3))
    else:
        assert estimated
        assert (made.times.max_delay, made.times.overhead) == (pytest.approx(0.011), 0.0)


def test_settings_of_an_endpoint_may_be_said_with_its_load():
    said = {"max_batch": 8, "max_delay": 0.01}
    record = worlds.batching_record(250, delay=0.01, collects=True, count=700, **said)
    made = plan(record, CapacityOptions(rate=300.0, effort=0.01, workers=1, max_delay=0.0))
    assert (made.times.max_delay, made.settings[0].max_delay) == (0.01, 0.0)
    assert made.refused == ""


@pytest.mark.thorough
def test_an_endpoint_that_is_slower_than_its_batches_has_no_more_workers():
    record = worlds.batching_record(250, delay=0.01, collects=True, count=700)
    halved = tuple(
        msgspec.structs.replace(part, seconds=tuple(0.3 * second for second in part.seconds))
        for part in service_times(record).batches
    )
    times = ServiceTimes(source="server", batches=halved, max_batch=8)
    made = plan(msgspec.structs.replace(record, service_times=times), CapacityOptions(rate=300.0))
    assert "times as long" in made.refused
    assert "workers" not in made.refused


def test_service_times_of_a_profile():
    profile = records.profile()
    times = service_times(profile)
    assert [(part.batch, part.seconds) for part in times.batches] == [(1, profile.latency.samples)]


def test_service_times_of_a_generation():
    generation = generations.grid()
    times = service_times(generation)
    prefill, decode = times.tokens
    fit = generation.fit("decode", "dynamic")
    assert (prefill.stage, decode.stage) == ("prefill", "decode")
    assert decode.per_token == fit.per_token.value
    assert times.how == "estimated"


def test_service_times_of_answers():
    # A batch of two that took 3 ms is named by both of its requests.
    requests = Requests(
        scheduled=(0.0,) * 5, batch=(1, 2, 2, None, 1), service=(1e-3, 3e-3, 3e-3, None, 2e-3)
    )
    (one, two), order = of_requests([requests])
    assert (one.seconds, two.seconds) == ((1e-3, 2e-3), (3e-3,))
    assert order == (1, 1, 2)


def test_service_times_are_in_the_order_of_answers():
    """Slow batches in a row stay in a row: what they say of the mean depends on it."""
    requests = Requests(
        scheduled=(0.0,) * 4, last=(0.4, 0.1, 0.3, 0.2), batch=(1,) * 4,
        service=(4e-3, 9e-3, 5e-3, 1e-3),
    )  # fmt: skip
    (batch,), _ = of_requests([requests])
    assert batch.seconds == (9e-3, 1e-3, 5e-3, 4e-3)


def test_alike_times_of_a_coarse_clock_keep_their_order():
    """Two workers whose batches of two end together; of one batch only one request was answered."""
    requests = Requests(
        scheduled=(0.0,) * 9, last=(0.1, 0.101, 0.102, 0.103, 0.2, 0.3, 0.301, 0.4, 0.401),
        batch=(2,) * 9,
        service=tuple(ms / 1000 for ms in (12, 13, 12, 13, 14, 12, 12, 13, 13)),
    )  # fmt: skip
    (batch,), order = of_requests([requests])
    assert batch.seconds == (0.012, 0.013, 0.014, 0.012, 0.013)
    assert order == (2,) * 5


@pytest.mark.parametrize("seconds", [(0.0, 0.0), (0.0, 1e-3), (1e-3, 0.0)])
def test_a_clock_that_shows_no_time_gives_none(seconds):
    times = ServiceTimes(
        source="server", max_batch=2,
        batches=tuple(
            BatchTimes(batch=size, seconds=(took,) * 30) for size, took in enumerate(seconds, 1)
        ),
    )  # fmt: skip
    with pytest.raises(InputError) as error:
        planned(times, rate=10)
    assert error.value.id == "no-service-times"


def test_nothing_to_plan_from():
    with pytest.raises(InputError) as error:
        service_times(msgspec.structs.replace(records.profile(), latency=None))
    assert error.value.id == "no-service-times"


@pytest.mark.parametrize(("rate", "workers"), [(20, 1), (70, 1), (90, 1), (140, 2), (180, 2)])
def test_one_queue_is_accepted(rate, workers):
    record = worlds.load_record("fifo", rate, workers=workers)
    checks, reason = level_checks(record, service_times(record))
    assert reason == ""
    assert [check.figure for check in checks] == ["latency p50", "latency p99"]
    assert all(check.inside for check in checks)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("order", "rate", "workers", "words"),
    [
        ("lifo", 70, 1, "does not keep their order"),
        ("lifo", 150, 2, "does not keep their order"),
        ("two queues", 120, 2, "a queue each"),
        ("two queues", 160, 2, "a queue each"),
    ],
)
def test_other_orders_are_refused(order, rate, workers, words, seed):
    record = worlds.load_record(order, rate, workers=workers, seed=seed)
    made = plan(record, CapacityOptions(rate=100.0))
    assert words in made.refused
    assert made.settings == ()
    assert made.needed is None


@pytest.mark.parametrize(("order", "jitter"), [("fifo", 8e-3), ("lifo", 3e-4)])
def test_a_late_client_still_shows_the_order(order, jitter):
    record = worlds.load_record(order, 70, jitter=jitter)
    late = ClientLoad(lateness_p99=4e-3, limited=True)
    level = msgspec.structs.replace(record.levels[0], client=late)
    record = msgspec.structs.replace(record, levels=(level,))
    checks, reason = level_checks(record, service_times(record))
    assert checks == ()
    assert bool(reason) == (order == "lifo")


def test_shedding_is_refused():
    made = plan(worlds.load_record("fifo", 105, room=4), CapacityOptions(rate=50.0))
    assert "turns requests away" in made.refused


def test_server_that_is_slower_than_it_says_is_refused():
    record = worlds.load_record("fifo", 60)
    times = service_times(record)
    halved = tuple(
        msgspec.structs.replace(part, seconds=tuple(0.4 * second for second in part.seconds))
        for part in times.batches
    )
    _, reason = level_checks(record, msgspec.structs.replace(times, batches=halved))
    assert "times as long" in reason


@pytest.mark.thorough
def test_plan_is_saved():
    made = planned(worlds.exact((1, 2)), rate=100, effort=0.02)
    assert codec.decode(codec.encode(made)) == made


def test_times_of_direct_calls_are_not_those_of_a_server():
    level = servings.open_level(50, 40)
    called = ServedBy(kind="call", api="call", version="", max_batch=1)
    times = service_times(servings.serving([level], served_by=called))
    assert times.source == "call"
    assert service_times(servings.serving([level])).source == "server"
