"""Load on servers whose waiting times theory or their own log knows: of the same requests."""

import json

import numpy as np
import pytest
from tests.support.servers.running import running
from tests.support.simulated_loads import lindley

import torchgauge as tg

pytestmark = pytest.mark.slow


def latencies(level):
    requests = level.requests
    assert set(requests.fate) == {"done"}
    return np.array(requests.last) - np.array(requests.scheduled)


def written(tmp_path, services):
    """Return a file of bodies that name their service times, one request each."""
    path = tmp_path / "bodies.jsonl"
    path.write_text("".join(json.dumps({"service": value}) + "\n" for value in services))
    return path


@pytest.mark.parametrize("kind", ["constant", "exponential"])
@pytest.mark.parametrize("utilization", [0.5, 0.8])
def test_a_queue_is_waited_for_as_lindleys_recursion_says(tmp_path, kind, utilization):
    rate, count = utilization / 0.01, 400
    services = np.full(count, 0.01)
    if kind == "exponential":
        services = np.random.default_rng(5).exponential(0.01, count)
    with running("fifo_server") as server:
        serving = tg.measure_serving(
            server.address, rate=rate, requests=count, body=written(tmp_path, services), seed=3
        )
    level = serving.levels[0]
    scheduled = np.array(level.requests.scheduled)
    error = latencies(level) - (lindley(scheduled, services[: len(scheduled)]) - scheduled)
    print(kind, utilization, "error p50, p99 in ms:", np.quantile(error, (0.5, 0.99)) * 1e3)
    assert (error > -1e-4).all()
    # Beside much other work a client is late; that is seen, and then nothing is claimed.
    assert level.client.limited or np.quantile(error, 0.5) < 0.003


def test_a_pause_of_two_seconds_is_in_every_percentile(tmp_path):
    services = np.full(1000, 0.002)
    services[500] = 2.0
    with running("fifo_server") as server:
        serving = tg.measure_serving(
            server.address, rate=50, arrivals="constant", requests=1000,
            body=written(tmp_path, services),
        )  # fmt: skip
    level = serving.levels[0]
    ours = latencies(level)
    scheduled = np.array(level.requests.scheduled)
    truth = lindley(scheduled, services[: len(ours)]) - scheduled
    for fraction in (0.95, 0.99):
        measured, expected = np.quantile(ours, fraction), np.quantile(truth, fraction)
        print(f"pause: p{fraction * 100:.0f} {measured * 1e3:.1f} ms, truth {expected * 1e3:.1f}")
        assert measured == pytest.approx(expected, rel=0.02)
    assert ours.mean() == pytest.approx(truth.mean(), rel=0.05)
    closed = serving.levels[0].service
    assert closed is not None


def test_a_stall_of_a_language_model_is_in_its_first_tokens():
    with running("language_server", ttft=0.05, itl=0.01, lanes=16, stall_at=6, stall=3) as server:
        serving = tg.measure_serving(
            f"{server.address}/v1/chat/completions", api="openai-chat", tokens=(32, 16), rate=10,
            duration=20, seed=1,
        )  # fmt: skip
        log = server.log()
    level = serving.levels[0]
    requests = level.requests
    assert set(requests.fate) == {"done"}
    assert level.tokens_by == "usage"
    assert set(requests.tokens_out) == {16}
    ours = np.array(requests.first) - np.array(requests.scheduled)
    truth = np.array([row["first"] - row["arrived"] for row in log])
    for fraction in (0.9, 0.95):
        measured, expected = np.quantile(ours, fraction), np.quantile(truth, fraction)
        print(
            f"stall: TTFT p{fraction * 100:.0f} {measured * 1e3:.0f} ms, log {expected * 1e3:.0f}"
        )
        assert measured == pytest.approx(expected, rel=0.02, abs=0.01)
    assert ours.mean() == pytest.approx(truth.mean(), rel=0.02, abs=0.01)
