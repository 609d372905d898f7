"""Requests are sent by their schedule, and the record has what the server says it did."""

import itertools
import json

import pytest
from tests.support.servers.running import running

from torchgauge.serving.client.address import parse_address
from torchgauge.serving.client.send import SentLoad, send
from torchgauge.serving.client.send_plan import SendPlan

LIMITS = {"timeout": 10.0, "drain": 10.0}


def sent(url: str, **options) -> SentLoad:
    """What sending to a server of this machine gives."""
    return send(SendPlan(address=parse_address(url), **(LIMITS | options)))


def in_order(load: SentLoad) -> bool:
    """Whether scheduled ≤ sent ≤ first ≤ last holds for every request."""
    requests = load.requests
    rows = zip(requests.scheduled, requests.sent, requests.first, requests.last, strict=True)
    return all(
        earlier <= later
        for row in rows
        for earlier, later in itertools.pairwise(time for time in row if time is not None)
    )


@pytest.fixture(scope="module")
def fifo():
    with running("fifo_server", service=0.001, workers=4) as server:
        yield server


def test_each_request_is_sent_when_it_is_due_with_its_own_body(fifo):
    services = [0.001 * (1 + index % 3) for index in range(90)]
    items = tuple(json.dumps({"service": service}).encode() for service in services)
    schedule = [index * 0.004 for index in range(90)]
    before = len(fifo.log())
    load = sent(fifo.address, items=items, schedule=schedule)
    requests, log = load.requests, fifo.log()[before:]
    assert requests.scheduled == pytest.approx(schedule, abs=1e-6)
    assert set(requests.fate) == {"done"}
    assert set(requests.status) == {200}
    assert requests.item == tuple(range(90))
    assert sorted(row["service"] for row in log) == sorted(services)
    assert in_order(load)
    # What the client saw is no shorter than what the server did.
    latencies = [b - a for a, b in zip(requests.scheduled, requests.last, strict=True)]
    assert all(x >= service for x, service in zip(latencies, services, strict=True))


@pytest.mark.thorough
def test_several_processes_send_one_schedule(fifo):
    items = tuple(json.dumps({"service": 0.001, "n": n}).encode() for n in range(7))
    schedule = [index // 2 * 0.005 for index in range(101)]
    load = sent(fifo.address, items=items, schedule=schedule, processes=3)
    assert load.client.processes == 3
    assert load.requests.scheduled == pytest.approx(schedule, abs=1e-6)
    assert sorted(load.requests.item) == sorted(index % 7 for index in range(101))
    assert set(load.requests.fate) == {"done"}


def test_requests_in_flight_are_limited_and_the_wait_counts():
    with running("fifo_server", service=0.02) as server:
        load = sent(server.address, schedule=[0.0] * 10, in_flight=1)
    requests = load.requests
    assert load.client.connections == 1
    assert load.client.waited == 9
    for earlier, later in itertools.pairwise(range(10)):
        assert requests.sent[later] >= requests.last[earlier]
    assert requests.last[-1] - requests.scheduled[-1] >= 10 * 0.02
    # It waited for a slot, which is no lateness of the client's own.
    assert load.client.lateness < requests.sent[5] / 2


def test_users_wait_for_their_answers(fifo):
    load = sent(fifo.address, users=3, count=30, duration=20.0, items=(b'{"service": 0.002}',))
    requests = load.requests
    assert len(requests) == 30
    assert set(requests.fate) == {"done"}
    moments = sorted([(t, 1) for t in requests.sent] + [(t, -1) for t in requests.last])
    assert max(itertools.accumulate(step for _, step in moments)) <= 3


@pytest.mark.thorough
def test_users_stop_when_their_time_is_over(fifo):
    load = sent(fifo.address, users=2, duration=0.3, items=(b'{"service": 0.01}',))
    assert 2 <= len(load.requests) <= 2 * 31
    assert max(load.requests.scheduled) < 0.3


def test_samples_of_a_query_are_sent_together(fifo):
    load = sent(fifo.address, samples=4, count=5, duration=20.0, items=(b'{"service": 0.002}',))
    requests = load.requests
    assert len(requests) == 20
    queries = [range(start, start + 4) for start in range(0, 20, 4)]
    for earlier, later in itertools.pairwise(queries):
        whole = max(requests.last[row] for row in earlier)
        assert min(requests.sent[row] for row in later) >= whole


def test_no_request_is_sent_after_what_was_waited_for(fifo):
    load = sent(
        fifo.address, items=(b'{"service": 9}',), schedule=[0, 0.01], drain=0.3, in_flight=1
    )
    assert load.requests.fate == ("unfinished", "unsent")
    assert load.requests.sent[1] is None
    assert load.seconds < 9


def test_a_body_that_the_socket_takes_in_parts(fifo):
    body = json.dumps({"service": 0.0, "padding": "x" * 8_000_000}).encode()
    load = sent(fifo.address, items=(body,), schedule=[0.0, 0.0])
    assert load.requests.fate == ("done", "done")
    assert None not in load.requests.sent
    assert in_order(load)


def test_timeouts_count_from_sent_where_requests_wait_for_a_slot(fifo):
    services = (5, 0.06, 0.06, 0.06)
    load = sent(
        fifo.address, items=[b'{"service": %g}' % service for service in services],
        schedule=[0.0] * 4, in_flight=1, timeout=0.12, timeout_from_sent=True, drain=5,
    )  # fmt: skip
    assert load.requests.fate == ("timeout", "done", "done", "done")
    assert load.requests.last[3] > 0.12 + 3 * 0.06


@pytest.mark.thorough
def test_a_late_answer_is_a_timeout(fifo):
    load = sent(
        fifo.address, items=(b'{"service": 5}', b'{"service": 0}'), schedule=[0, 0.01], timeout=0.3
    )
    assert load.requests.fate == ("timeout", "done")
    assert load.requests.last[0] is None


def test_the_client_says_what_it_took(fifo):
    client = sent(fifo.address, schedule=[index * 0.005 for index in range(40)]).client
    assert 0 < client.lateness <= client.lateness_p99 <= client.lateness_max
    assert client.cpu > 0
    assert client.waiting is None or 0 <= client.waiting <= 1
