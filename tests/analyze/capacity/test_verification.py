"""Plans of language models held to a load on a server, and loads that show nothing."""

import functools

import msgspec
import numpy as np
import pytest
from tests.support import capacity_worlds as worlds
from tests.support import records, servings
from tests.support.serving_levels import requests

from torchgauge.analyze.capacity import server_model as load_checks
from torchgauge.analyze.capacity.capacity_options import CapacityOptions
from torchgauge.analyze.capacity.capacity_plans import Planner
from torchgauge.analyze.capacity.simulation import Workers
from torchgauge.analyze.capacity.token_model import TokenModel
from torchgauge.analyze.capacity.verification import verified, verifying_load
from torchgauge.errors import InputError
from torchgauge.records.serving.level import Arrivals, ClientLoad, Level, Saturation
from torchgauge.records.serving.requests import Goal, GoalResult

RATE, COUNT = 20.0, 400


@pytest.fixture(scope="module", autouse=True)
def few_resamples():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(load_checks, "RESAMPLES", 40)
        yield


@functools.cache
def plan_of_tokens():
    return planned()


def planned(times=None, **options):
    known = {"rate": RATE, "workers": 1, "effort": 0.05}
    planner = Planner(times or worlds.tokens(), CapacityOptions(**{**known, **options}))
    return planner.plan(servings.target(), records.environment())


def streamed(slower=1.0, **changes):
    """Return a load on a server as it is planned, or one whose times are so much longer."""
    model = TokenModel.from_times(worlds.tokens(), (), 2048)
    due = np.cumsum(np.random.default_rng(3).exponential(1 / RATE, COUNT))
    outcome = model.run(due, Workers(1, 8), 0)
    first, last = due + slower * outcome.ttft, due + slower * outcome.latency
    made = requests(due.tolist(), last.tolist(), first=tuple(first.tolist()))
    level = Level(
        arrivals=Arrivals(kind="poisson", rate=RATE), duration=due[-1], window=(0.0, due[-1]),
        requests=made, count=COUNT, fates={"done": COUNT}, **changes,
    )  # fmt: skip
    return servings.serving([level])


@pytest.mark.thorough
def test_a_server_as_planned_agrees_in_first_token_and_answer():
    plan = plan_of_tokens()
    made = verified(plan, verifying_load(plan, None), streamed(), 2048)
    assert [check.figure for check in made.checks] == [
        "latency p50", "TTFT p50", "TTFT p95",
    ]  # fmt: skip
    assert all(check.inside for check in made.checks)
    assert made.warnings == plan.warnings


def test_a_server_of_other_times_is_refused():
    plan = plan_of_tokens()
    made = verified(plan, verifying_load(plan, None), streamed(slower=2.0), 2048)
    assert "times as long" in made.refused


GROWING = Saturation(saturated=True, slope=2.0)


@pytest.mark.parametrize(
    ("changes", "busy", "words"),
    [
        ({"client": ClientLoad(lateness_p99=0.1, limited=True)}, 0.5, "client sent late"),
        (
            {"saturation": GROWING},
            0.95,
            "its queue grew, as that of workers that are 95 % busy may",
        ),
    ],
)
def test_a_load_that_shows_nothing_is_a_warning(changes, busy, words):
    plan = busy_plan(busy)
    made = verified(plan, verifying_load(plan, None), streamed(**changes), 2048)
    (warning,) = made.warnings[len(plan.warnings) :]
    assert (warning.id, made.checks) == ("verify-nothing", ())
    assert words in warning.message


def busy_plan(share=0.5, **changes):
    """Return the plan with a worker that is so busy."""
    plan = plan_of_tokens()
    needed = msgspec.structs.replace(plan.needed, utilization=share)
    return msgspec.structs.replace(plan, needed=needed, settings=(needed,), **changes)


def test_a_queue_that_grows_at_little_load_refutes_the_plan():
    plan = busy_plan(0.6)
    made = verified(plan, verifying_load(plan, None), streamed(saturation=GROWING), 2048)
    assert made.refused == (
        "At 20 requests/s the queue grew, where the plan has workers that are 60 % busy."
    )
    assert made.needed is None


@pytest.mark.thorough
def test_missed_goals_refute_the_plan_of_as_many_workers():
    goal = Goal(metric="latency", fraction=0.99, limit=0.05, text="p99<50ms")
    missed = streamed(goals=(GoalResult(goal=goal, verdict="missed", value=0.5),))
    plan = busy_plan(goals=(goal,))
    load = verifying_load(plan, None)
    made = verified(plan, load, missed, 2048)
    assert made.refused == "At 20 requests/s the load missed p99<50ms, with 500 ms."
    # Fewer workers than are planned wait longer with their share.
    fewer = load._replace(setting=msgspec.structs.replace(load.setting, workers=2))
    assert verified(plan, fewer, missed, 2048).refused == ""
    recorded = msgspec.structs.replace(plan, arrivals=Arrivals(kind="file", rate=RATE))
    assert verified(recorded, load, missed, 2048).refused == ""


def test_first_tokens_that_come_far_later_refute_the_plan():
    late = streamed()
    level = late.levels[0]
    first = tuple(due + 0.9 * (last - due) for due, last in
                  zip(level.requests.scheduled, level.requests.last, strict=True))  # fmt: skip
    level = msgspec.structs.replace(
        level, requests=msgspec.structs.replace(level.requests, first=first)
    )
    plan = plan_of_tokens()
    made = verified(plan, verifying_load(plan, None), servings.serving([level]), 2048)
    assert "the TTFT p50 was" in made.refused


def test_a_server_that_does_not_take_the_requests_shows_nothing():
    """A GET where a POST is expected says nothing of how many are turned away."""
    level = streamed().levels[0]
    refused = msgspec.structs.replace(
        level.requests, fate=("status",) * COUNT, status=(405,) * COUNT
    )
    level = msgspec.structs.replace(level, requests=refused, fates={"status": COUNT})
    plan = plan_of_tokens()
    made = verified(plan, verifying_load(plan, None), servings.serving([level]), 2048)
    assert made.needed == plan.needed
    assert made.warnings[-1].id == "verify-unfit"
    assert "100 % of the requests were answered by status 405" in made.warnings[-1].message


@pytest.mark.parametrize("levels", [[], [Level(arrivals=Arrivals(kind="poisson", rate=RATE),
                                               duration=0.1, window=(0.0, 0.1))]])  # fmt: skip
def test_an_interrupted_load_keeps_the_plan(levels):
    plan = plan_of_tokens()
    serving = servings.serving(levels, interrupted=True)
    made = verified(plan, verifying_load(plan, None), serving, 2048)
    assert made == msgspec.structs.replace(plan, interrupted=True)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "cores", "words"),
    [({}, 4, "no continuous batching"), ({"tokens": ((9, 2), (5, 3))}, None, "several lengths")],
)
def test_loads_that_cannot_be_sent(options, cores, words):
    plan = planned(**options) if options else plan_of_tokens()
    with pytest.raises(InputError, match="no load that would verify") as error:
        verifying_load(plan, cores)
    assert error.value.id == "verify-unfit"
    assert words in error.value.cause


def test_a_machine_with_few_cores_gets_a_share():
    plan = planned(worlds.exact((1,)), rate=300, workers=3)
    assert verifying_load(plan, 3)[1:] == (2, 200.0)
    assert verifying_load(plan, None)[1:] == (3, 300.0)
    unstable = msgspec.structs.replace(plan, needed=None, settings=())
    with pytest.raises(InputError):
        verifying_load(unstable, 3)
