"""What --verify loads, and plans that are kept whatever becomes of it."""

import msgspec
import pytest
from tests.support import capacity_worlds as worlds
from tests.support import records, servings

from torchgauge.analyze.capacity.capacity_options import CapacityOptions
from torchgauge.analyze.capacity.capacity_plans import Planner
from torchgauge.api import verifying
from torchgauge.errors import InputError

URL = "http://127.0.0.1:9/predict?key=1"


def planned(target=None, **changes):
    options = CapacityOptions(rate=60.0, workers=2, effort=0.02)
    times = msgspec.structs.replace(worlds.exact((1,)), **changes)
    return Planner(times, options).plan(target or servings.target(), records.environment())


@pytest.fixture
def loads(monkeypatch):
    """Record what is loaded; the answer is a level that agrees with no plan in particular."""
    sent = []

    def measured(subject, *inputs, **settings):
        sent.append((subject, settings))
        return msgspec.structs.replace(servings.serving([]), target=servings.target())

    for name in ("measure_serving", "serving_request"):
        monkeypatch.setattr(f"torchgauge.api.servings.{name}", measured)
    monkeypatch.setattr("torchgauge.device.cpu.usable_cores", lambda: 8)
    return sent


def test_target_of_the_record_is_run_as_it_was(loads):
    target = servings.target(device="cuda:1", precision="bf16", precision_method="cast", batch=4)
    plan = planned(target, source="sweep", settings="bf16, cuda")
    made = verifying.verified_by_load(plan, load={"weights": "w.pt"})
    ((request, settings),) = loads
    assert (request.spec, request.device, request.precision) == ("model.py:make", "cuda:1", "bf16")
    assert (request.batch, request.weights) == (1, "w.pt")
    assert (settings["workers"], settings["rate"]) == (2, 60.0)
    # What ran was another device after all.
    assert "device cpu in place of cuda:1" in made.warnings[-1].message
    assert made.needed == plan.needed


def test_an_endpoint_gets_its_own_requests(loads):
    verifying.verified_by_load(planned(), URL, load={"body": "r.json", "allow_remote": True})
    ((url, settings),) = loads
    assert url == URL
    assert (settings["body"], settings["allow_remote"], settings["workers"]) == ("r.json", True, 2)
    assert "max_batch" not in settings


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (planned(source="sweep", settings="fp32, compile default"), "have compile default"),
        (planned(servings.target(training=True)), "training steps"),
    ],
)
def test_what_a_load_does_not_run_is_a_warning(plan, words, loads):
    made = verifying.verified_by_load(plan)
    assert (made.warnings[-1].id, loads) == ("verify-unfit", [])
    assert words in made.warnings[-1].cause
    assert made.settings == plan.settings


@pytest.mark.parametrize(
    "error", [InputError("There is no such file.", id="file-missing"), KeyboardInterrupt()]
)
def test_no_end_of_the_load_loses_the_plan(error, monkeypatch):
    def failing(*_, **__):
        raise error

    monkeypatch.setattr("torchgauge.api.servings.serving_request", failing)
    plan = planned()
    made = verifying.verified_by_load(plan, "model.py:make")
    assert made.needed == plan.needed
    assert made.interrupted == isinstance(error, KeyboardInterrupt)
    assert [warning.failed for warning in made.warnings] == [True] * (not made.interrupted)
