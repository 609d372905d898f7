"""Findings about load, on queues made by hand: a record that has each, and one that has not."""

import msgspec
import pytest
from tests.support import servings
from tests.support.serving_levels import open_level, use

from torchgauge.analyze.findings.catalogue import findings
from torchgauge.analyze.findings.server_rules import longest_pause
from torchgauge.records.serving.level import Saturation
from torchgauge.records.serving.serving import ServedBy

EVERY = servings.every()


def finding(rule, record):
    return next((found for found in findings(record) if found.id == rule), None)


@pytest.mark.parametrize(
    ("rule", "has", "has_not"),
    [
        ("client-limited", "client_limited", "healthy"),
        ("saturated", "capacity_found", "healthy"),
        ("request-errors", "with_errors", "healthy"),
        ("server-pause", "paused", "bound_in_flight"),
        ("in-flight-limit", "bound_in_flight", "paused"),
        ("first-resource", "capacity_found", "healthy"),
        ("latency-growth", "capacity_found", "healthy"),
        ("small-batches", "healthy", "streamed"),
        ("few-requests", "healthy", "none_met"),
    ],
)
def test_each_rule_applies_to_what_it_is_about_alone(rule, has, has_not):
    assert finding(rule, EVERY[has]) is not None
    assert finding(rule, EVERY[has_not]) is None


def test_what_distorts_comes_first():
    record = EVERY["client_limited"]
    assert findings(record)[0].id == "client-limited"
    probe = tuple(msgspec.structs.replace(level, left_out="probe") for level in record.levels)
    assert finding("client-limited", msgspec.structs.replace(record, levels=probe)) is None
    assert findings(EVERY["capacity_found"])[0].id == "saturated"


def test_saturation_has_its_slope():
    found = finding("saturated", EVERY["capacity_found"])
    assert "by 25.0 (22.5 … 27.5) requests each second, to 67" in found.evidence


def test_errors_have_the_remedy_of_the_most_frequent():
    found = finding("request-errors", EVERY["with_errors"])
    assert found.severity == "serious"
    assert found.evidence == (
        "Of 365: 2 status, 1 refused, 1 reset, 1 timeout, 2 of status 503. They count as longer "
        "than all others."
    )
    assert found.remedy.startswith("The server answered with errors")


def test_what_ctrl_c_ended_is_no_error():
    assert finding("request-errors", EVERY["interrupted"]) is None


def test_a_pause_says_how_many_waited():
    level = EVERY["paused"].levels[0]
    pause = longest_pause(level)
    assert 3.99 <= pause.begin <= 4.1
    assert pause.duration == pytest.approx(1.0, abs=0.1)
    due = sum(pause.begin <= time <= 5.0 for time in level.requests.scheduled)
    assert abs(pause.waiting - due) <= 2
    assert "while 58 requests waited" in finding("server-pause", EVERY["paused"]).title


def test_idle_times_are_no_pauses():
    """At a low rate nothing is answered for long, because nobody asks."""
    level = open_level(1, 200, seed=2)
    assert max(level.requests.scheduled) > 100
    assert longest_pause(level) is None


def test_saturation_is_no_pause():
    saturation = Saturation(saturated=True, slope=1.0)
    paused = msgspec.structs.replace(EVERY["paused"].levels[0], saturation=saturation)
    assert longest_pause(paused) is None


def test_waiting_for_a_slot_shows_what_other_clients_would():
    found = finding("in-flight-limit", EVERY["bound_in_flight"])
    level = EVERY["bound_in_flight"].levels[0]
    wait, service = level.wait.percentile(0.99).value, level.service.percentile(0.99).value
    assert f"p99 is {1e3 * wait:.1f} ms" in found.evidence
    assert f"the same requests show {1e3 * service:.2f} ms" in found.evidence


def test_a_stall_stands_out_from_gaps():
    level = servings.streamed_level(2)
    stalled = msgspec.structs.replace(level.itl, high=3.0)
    record = servings.serving([msgspec.structs.replace(level, itl=stalled)])
    assert finding("stream-stalls", servings.serving([level])) is None
    assert finding("stream-stalls", record).title.startswith("A stream stopped for 3.00 s")


def test_batches_are_averaged_over_batches():
    """One batch of 4 and four of 1: five batches of 8 requests, though 4 requests name a 4."""
    level = open_level(50, 8)
    requests = msgspec.structs.replace(level.requests, batch=(4, 4, 4, 4, 1, 1, 1, 1))
    record = servings.serving([msgspec.structs.replace(level, requests=requests)])
    assert finding("small-batches", record).title == "Batches have 1.6 of 8 requests on average"
    full = msgspec.structs.replace(level.requests, batch=(8,) * 8)
    filled = servings.serving([msgspec.structs.replace(level, requests=full)])
    assert finding("small-batches", filled) is None


@pytest.mark.parametrize(
    ("grown", "step"), [(True, 20_000_000), (False, 100_000), (False, -20_000_000)]
)
def test_memory_that_grows_under_load(grown, step):
    memory = tuple(900_000_000 + step * index for index in range(20))
    server = msgspec.structs.replace(use(60.0, 0.5), memory=memory)
    record = servings.serving([open_level(50, 60, server=server)])
    assert (finding("memory-growth", record) is not None) == grown


def test_an_empty_record_has_none():
    assert findings(EVERY["without_levels"]) == ()


def test_calls_that_no_time_was_left_for_wait_for_no_slot():
    record = EVERY["scenarios"]
    (offline,) = [level for level in record.levels if level.scenario == "offline"]
    count = offline.count
    cut = msgspec.structs.replace(
        offline,
        client=None,
        fates={"done": count // 2, "unsent": count - count // 2},
        wait=offline.latency,
        service=EVERY["bound_in_flight"].levels[0].service,
    )
    cut_record = msgspec.structs.replace(record, levels=(cut,))
    assert "longer --for" in finding("request-errors", cut_record).remedy
    assert finding("in-flight-limit", cut_record) is None


@pytest.mark.parametrize(
    ("waited", "rule"),
    [(None, "in-flight-limit"), (0, "connection-setup"), (200, "in-flight-limit")],
)
def test_waiting_for_a_connection_is_no_waiting_for_a_slot(waited, rule):
    level = EVERY["bound_in_flight"].levels[0]
    client = msgspec.structs.replace(level.client, waited=waited, connections=380)
    record = servings.serving([msgspec.structs.replace(level, client=client)])
    ids = {found.id for found in findings(record)} & {"in-flight-limit", "connection-setup"}
    assert ids == {rule}


def test_a_level_that_a_search_leaves_out_needs_no_requests():
    level = msgspec.structs.replace(EVERY["healthy"].levels[0], left_out="probe")
    assert finding("few-requests", servings.serving([level])) is None


def test_the_requests_to_send_are_more_than_those_of_the_window():
    level = EVERY["healthy"].levels[0]
    percentile = level.latency.percentile(0.99)
    found = finding("few-requests", servings.serving([level]))
    sent = int(found.remedy.removeprefix("--requests ").split()[0])
    assert sent * level.count / len(level.requests) == pytest.approx(percentile.needed, abs=1)
    assert sent > percentile.needed


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (401, "--bearer-env"),
        (404, "--model"),
        (405, "--method"),
        (422, "--body"),
        (429, "lower rate"),
        (503, "its log"),
    ],
)
def test_the_remedy_of_errors_is_that_of_their_status(status, remedy):
    level = servings.with_errors().levels[0]
    requests = msgspec.structs.replace(
        level.requests,
        fate=("status",) * len(level.requests),
        status=(status,) * len(level.requests),
    )
    failed = msgspec.structs.replace(
        level, requests=requests, fates={"status": level.count}, count=level.count
    )
    found = finding("request-errors", servings.serving([failed]))
    assert remedy in found.remedy
    assert f"{len(requests):,} of status {status}" in found.evidence
    address = "http://127.0.0.1:8000/v1/chat/completions"
    served = ServedBy(kind="endpoint", address=address)
    found = finding("request-errors", servings.serving([failed], served_by=served))
    assert ("--api openai-chat" in found.remedy) == (status < 500)


def test_what_the_end_of_a_load_left_unfinished_is_no_cause():
    level = servings.with_errors().levels[0]
    fates = {"unfinished": level.count - 20, "status": 20}
    failed = msgspec.structs.replace(level, fates=fates)
    found = finding("request-errors", servings.serving([failed]))
    assert "its log" in found.remedy
