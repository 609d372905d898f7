"""Options of load: what goes together, and what a level lasts."""

import numpy as np
import pytest

from torchgauge.api.servings import load_options
from torchgauge.errors import InputError


@pytest.mark.parametrize(
    ("settings", "id"),
    [
        ({"rate": 0}, "option-invalid"),
        ({"rate": [50, float("nan")]}, "option-invalid"),
        ({"rate": "auto"}, "option-conflict"),
        ({"rate": 5, "scenario": "offline"}, "option-conflict"),
        ({"rate": 5, "scenario": "ofline"}, "scenario-unknown"),
        ({"rate": 5, "arrivals": "poison"}, "arrivals-unknown"),
        ({"rate": 5, "arrivals": "poisson:2"}, "arrivals-unknown"),
        ({"rate": 5, "arrivals": "gamma:-1"}, "arrivals-unknown"),
        ({"rate": 5, "duration": 0}, "option-invalid"),
        ({"rate": 5, "requests": 1.5}, "option-invalid"),
        ({"rate": 5, "max_batch": True}, "option-invalid"),
        ({"rate": 5, "max_delay": -1}, "option-invalid"),
        ({"rate": 5, "timeout": 1e9}, "option-invalid"),
        ({"rate": "100"}, "option-invalid"),
        ({"rate": ["fast"]}, "option-invalid"),
        ({"rate": True}, "option-invalid"),
        ({"rate": 5, "server_pids": ["x"]}, "option-invalid"),
        ({"rate": 5, "fields": [1]}, "option-invalid"),
        ({"rate": 5, "headers": ["X"]}, "option-invalid"),
        ({"rate": 1j}, "option-invalid"),
        ({"rate": 10**400}, "option-invalid"),
        ({"rate": 5, "duration": "1s"}, "option-invalid"),
        ({"rate": 5, "timeout": [1]}, "option-invalid"),
        ({"rate": 5, "max_delay": "5ms"}, "option-invalid"),
        ({"rate": 5, "tokens": 5}, "option-invalid"),
        ({"rate": 5, "tokens": "ab"}, "option-invalid"),
        ({"rate": 5, "arrivals": 5}, "option-invalid"),
        ({"rate": 5, "api": None}, "option-invalid"),
        ({"rate": 5, "body": 5}, "option-invalid"),
        ({"rate": 5, "prompts": b"a"}, "option-invalid"),
        ({"rate": 5, "goals": 5}, "option-invalid"),
        ({"rate": [5] * 101}, "option-invalid"),
        ({"rate": 5, "goals": "p99<0"}, "goal-invalid"),
        ({"rate": "auto", "goals": "p99<1s", "arrivals": __file__}, "option-conflict"),
        ({"scenario": "offline", "arrivals": "constant"}, "option-conflict"),
        ({"rate": 5, "prompts": "a", "tokens": (1, 2)}, "option-conflict"),
    ],
)
def test_what_cannot_be_is_refused_by_name(settings, id):
    with pytest.raises(InputError) as raised:
        load_options(**settings)
    assert raised.value.id == id
    assert raised.value.remedy


def test_numbers_of_numpy_are_numbers():
    options = load_options(rate=np.int64(5), duration=np.float32(2))
    assert options.level_rates == (5.0,)
    assert type(options.level_rates[0]) is float
    assert load_options(rate=np.array([5, 10])).level_rates == (5.0, 10.0)


def test_without_a_rate_goals_are_searched_and_else_it_is_missing():
    assert load_options(goals="p99<1s").searches
    assert not load_options(goals="p99<1s", rate=50).searches
    with pytest.raises(InputError) as raised:
        _ = load_options().level_rates
    assert raised.value.id == "rate-missing"
    assert load_options(scenario="offline").level_rates == (None,)


@pytest.mark.parametrize(
    ("endpoint", "settings", "name"),
    [
        (False, {"rate": 5, "api": "openai-chat"}, "api"),
        (False, {"rate": 5, "tokens": (1, 2)}, "tokens"),
        (False, {"rate": 5, "bearer_env": "TOKEN"}, "bearer_env"),
        (False, {"rate": 5, "headers": {"X": "1"}}, "headers"),
        (False, {"rate": 5, "server_pids": [1]}, "server_pids"),
        (False, {"scenario": "offline", "workers": 2}, "workers"),
        (False, {"scenario": "offline", "in_flight": 2}, "in_flight"),
        (False, {"scenario": "offline", "timeout": 2}, "timeout"),
        (False, {"scenario": "single-stream", "max_batch": 2}, "max_batch"),
        (False, {}, ""),
    ],
)
def test_what_a_subject_has_no_use_for_is_refused(endpoint, settings, name):
    options = load_options(**settings)
    with pytest.raises(InputError) as raised:
        options.check_fit(endpoint=endpoint)
    assert raised.value.id == ("option-conflict" if name else "rate-missing")
    assert raised.value.message.startswith(name)


def test_what_a_subject_uses_is_not_refused():
    sent = {"in_flight": 2, "timeout": 2, "processes": 2}
    load_options(rate=5, max_batch=8, workers=2, **sent).check_fit(endpoint=False)
    load_options(rate=5, api="openai-chat", tokens=(1, 2), **sent).check_fit(endpoint=True)
    load_options(scenario="offline", max_batch=8).check_fit(endpoint=False)
    load_options(scenario="offline", api="openai-chat", **sent).check_fit(endpoint=True)


def test_arrivals_are_as_they_are_written(tmp_path):
    arrivals = load_options(rate=50, arrivals="gamma:2.5", seed=3).arrivals_at(50)
    assert (arrivals.kind, arrivals.variation, arrivals.rate, arrivals.seed) == (
        "gamma",
        2.5,
        50,
        3,
    )
    times = tmp_path / "times.txt"
    times.write_text("# seconds\n0\n0.5\n\n2\n")
    options = load_options(arrivals=str(times), goals="p99<1s")
    assert not options.searches
    assert options.level_rates == (None,)
    assert options.arrivals_at(None).file == "times.txt"
    from torchgauge.serving.load_inputs import recorded_times

    assert recorded_times(options.recorded) == (0.0, 0.5, 2.0)
    times.write_text("0\nsoon\n")
    with pytest.raises(InputError) as raised:
        recorded_times(options.recorded)
    assert raised.value.id == "arrivals-invalid"
    assert "Line 2" in raised.value.cause


def test_a_number_of_requests_sets_the_time():
    assert load_options(rate=50, duration=3).seconds_at(50) == 3
    assert load_options(rate=50, requests=100).seconds_at(50) == 2
    assert load_options(rate=50, requests=100, duration=1).seconds_at(50) == 1
    assert load_options(rate=50).seconds_at(50) == 10
    assert load_options(scenario="offline").seconds_at(None) == 10
    assert load_options(scenario="single-stream", requests=5000).seconds_at(None) > 3600
