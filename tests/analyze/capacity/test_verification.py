"""Plans of language models held to a load on a server, and loads that show nothing."""

import functools

import msgspec
import numpy as np
import pytest
from tests.support import capacity_worlds as worlds
from tests.support import records, servings
from tests.support.serving_levels import requests

from torchgauge.analyze.capacity.capacity_options import CapacityOptions
from torchgauge.analyze.capacity.capacity_plans import Planner
from torchgauge.analyze.capacity.simulation import Workers
from torchgauge.analyze.capacity.token_model import TokenModel
from torchgauge.analyze.capacity.verification import verified, verifying_load
from torchgauge.errors import InputError
from torchgauge.records.serving.level import Arrivals, ClientLoad, Level, Saturation

RATE, COUNT = 20.0, 400


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


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"client": ClientLoad(lateness_p99=0.1, limited=True)}, "client sent late"),
        ({"saturation": Saturation(saturated=True, slope=2.0)}, "its queue grew"),
    ],
)
def test_a_load_that_shows_nothing_is_a_warning(changes, words):
    plan = plan_of_tokens()
    made = verified(plan, verifying_load(plan, None), streamed(**changes), 2048)
    (warning,) = made.warnings[len(plan.warnings) :]
    assert (warning.id, made.checks) == ("verify-nothing", ())
    assert words in warning.message


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
