"""The data of a serving's page: figures of one level, curves by rate and time, points, fates."""

import math

import msgspec
import pytest
from tests.support import serving_pages, servings
from tests.support.page_data import data
from tests.support.serving_levels import NETWORK, SERVICE, open_level

from torchgauge.records.record import Interval
from torchgauge.records.serving.level import Sending
from torchgauge.records.serving.requests import Capacity, Requests
from torchgauge.report.page.html import render
from torchgauge.report.page.serving import page_serving, tail_curves
from torchgauge.report.page.serving import request_times as request_points
from torchgauge.report.page.serving.page_serving import headline

LEVEL_PARTS = {"over_time", "distribution", "requests", "server"}


def parts(record):
    """Return the parts of a page, with those of the level that is shown first."""
    page = data(render(record))
    if "choice" not in page:
        return page["parts"]
    chosen = page["choice"]["options"][page["choice"]["first"]]
    return {**page["parts"], **chosen["parts"]}


def column(table, title):
    return next(c["values"] for c in table["columns"] if c["title"] == title)


@pytest.fixture(scope="module")
def search():
    return parts(servings.capacity_found())


def test_the_page_has_common_parts_and_a_choice_of_levels():
    page = data(render(servings.capacity_found()))
    assert list(page["parts"]) == ["overview", "rates", "fates", "method", "environment"]
    options = page["choice"]["options"]
    assert [option["name"] for option in options] == [
        "25 requests/s", "50 requests/s", "100 requests/s", "150 requests/s"
    ]  # fmt: skip
    assert {name for option in options for name in option["parts"]} == LEVEL_PARTS
    assert options[page["choice"]["first"]]["name"] == "100 requests/s"


def test_levels_of_one_load_have_names_of_their_own():
    page = data(render(serving_pages.every_fate()))
    names = [option["name"] for option in page["choice"]["options"]]
    assert names == ["50 requests/s", "50 requests/s, again"]


def test_a_record_without_levels_has_no_views_of_them():
    page = data(render(servings.without_levels()))
    assert set(page["parts"]) == {"overview", "method", "environment"}
    assert page["parts"]["overview"]["figures"] == []


def test_the_headline_is_the_highest_rate_within_the_goals():
    record = servings.capacity_found()
    assert headline(record) == 2
    assert headline(servings.none_met()) == 0
    assert headline(servings.without_levels()) is None


def test_the_capacity_says_between_what_it_lies_and_that_it_was_confirmed(search):
    card = search["overview"]["figures"][0]
    assert (card["label"], card["value"]) == ("capacity", "104 requests/s")
    assert card["note"] == "95 %: 100 … 109; confirmed by a second run"
    above = parts(servings.healthy())["overview"]["figures"][0]
    assert above["value"] == "at least 75.0 requests/s"
    assert above["note"] == "no interval: The highest rate that was tried met the goals."
    tried = Capacity(rate=100.0, interval=Interval(low=100.0, high=150.0))
    record = msgspec.structs.replace(servings.capacity_found(), capacity=tried)
    given = parts(record)["overview"]["figures"][0]
    assert given["note"] == "100 met the goals, 150 did not"
    short = msgspec.structs.replace(record, capacity=Capacity(rate=100.0, reason="Too few levels."))
    card, knee = parts(short)["overview"]["figures"][0], parts(short)["rates"]["knee"]
    assert card["value"] == knee["label"] == "at least 100 requests/s"
    assert card["note"] == "no interval: Too few levels."
    none = parts(servings.none_met())["overview"]["figures"][0]
    assert none["value"] == "unknown"
    assert none["note"] == "The lowest rate that was tried missed the goals."


def test_a_percentile_without_an_interval_says_why_and_what_would_give_one(search):
    cards = {card["label"]: card for card in search["overview"]["figures"]}
    note = cards["latency p99"]["note"]
    assert "resemble their neighbours" in note
    assert "It takes 1,584 requests." in note
    assert cards["latency p50"]["note"].startswith("95 %: ")


def test_a_client_that_was_too_slow_is_told_above_all():
    (notice,) = parts(servings.client_limited())["overview"]["notices"]
    assert "100 requests/s" in notice
    assert parts(servings.capacity_found())["overview"]["notices"] == []


def test_percentiles_by_rate_are_the_record_s_and_saturated_levels_are_marked(search):
    record = servings.capacity_found()
    chart = search["rates"]["charts"][0]
    highest = next(series for series in chart["series"] if series["label"] == "p99")
    assert [point[0] for point in highest["points"]] == [25, 50, 100, 150]
    assert [point[4] for point in highest["points"]] == ["", "", "", "saturated"]
    known = record.levels[1].latency.percentile(0.9)
    point = next(s for s in chart["series"] if s["label"] == "p90")["points"][1]
    ends = [known.value, known.interval.low, known.interval.high]
    assert point[1:4] == pytest.approx([end * 1e9 for end in ends], rel=1e-5)
    assert [goal["value"] for goal in chart["goals"]] == [100_000_000]
    assert search["rates"]["knee"]["rate"] == 104
    (estimated,) = chart["controlled"]
    assert estimated[0] == 100


def test_what_was_tried_at_a_single_rate_is_a_table_alone():
    rates = parts(servings.with_errors())["rates"]
    assert rates["charts"] == rates["throughput"] == rates["notes"] == []
    assert rates["title"] == "Levels"
    (share,) = column(rates["levels"], "not answered")
    assert share == pytest.approx(5 / servings.with_errors().levels[0].count, rel=1e-5)


def test_a_closed_loop_has_no_offered_rate():
    rates = parts(servings.single_stream())["rates"]
    assert rates["charts"] == []
    assert column(rates["levels"], "load") == ["single-stream"]


def test_the_distribution_goes_through_the_record_s_percentiles_and_ends_at_the_longest(search):
    level = servings.capacity_found().levels[2]
    series = search["distribution"]["series"][0]
    curve = dict(map(tuple, series["points"]))
    for fraction in (0.5, 0.9, 0.95, 0.99):
        known = level.latency.percentile(fraction).value
        assert curve[round(1 / (1 - fraction), 6)] == pytest.approx(known * 1e9, rel=1e-6)
    count = search["distribution"]["count"]
    assert series["points"][-1] == [count, pytest.approx(level.latency.high * 1e9)]
    assert series["points"][0] == [1, pytest.approx(level.latency.low * 1e9)]
    assert search["distribution"]["goals"] == [[100, 100_000_000, "latency p99 < 100 ms"]]


def test_a_curve_is_exact_at_its_points():
    import numpy as np

    values = np.arange(1, 101) / 1_000
    points = dict(map(tuple, tail_curves.curve(values)))
    assert points[1] == 1_000_000
    assert points[100] == 100_000_000
    assert points[2] == 50_000_000  # p50: half of them do not exceed it
    assert tail_curves.curve(np.array([np.nan, np.inf])) == []
    half = dict(map(tuple, tail_curves.curve(np.array([1.0, 2.0, np.inf, np.inf]))))
    assert half == {1: 1e9, round(4 / 3, 5): 2e9} | {2: 2e9}


def test_unanswered_requests_are_longer_than_all_others_and_are_counted():
    shown = parts(servings.with_errors())
    notes = " ".join(shown["distribution"]["notes"])
    assert "5 requests were not answered" in notes
    count = shown["distribution"]["count"]
    for series in shown["distribution"]["series"]:
        assert series["points"][-1][0] == pytest.approx(count / 6, rel=1e-5)  # five are longer
    fates = {one["fate"]: sum(one["count"]) for one in shown["requests"]["unanswered"]}
    assert fates == {"timed out": 1, "refused": 1, "reset": 1, "answered by an error": 2}
    assert shown["requests"]["total"] == 400


def test_time_without_load_and_after_it_is_told_apart(search):
    (warm_up,) = search["over_time"]["stretches"]
    assert (warm_up["from"], warm_up["label"]) == (0, "warm-up")
    begin = servings.capacity_found().levels[2].window[0]
    assert warm_up["to"] == pytest.approx(begin * 1e9, abs=1)


def test_a_pause_shows_where_it_was():
    level = open_level(50, 400, seed=5, pause=(4.0, 1.0))
    part = page_serving.over_time(level)
    slowest = part["slowest"].index(max(part["slowest"]))
    assert 3.9e9 < part["time"][slowest] < 4.4e9
    assert 0.9e9 < max(part["slowest"]) < 1.1e9
    calm = [one for at, one in zip(part["time"], part["median"], strict=True) if at < 3e9]
    assert max(calm) < 0.1e9


def test_requests_in_flight_are_those_due_and_not_answered():
    level = open_level(50, 100, seed=1)
    columns = {"scheduled": tuple(float(second) for second in range(10)) * 2}
    scheduled = tuple(sorted(columns["scheduled"]))
    last = tuple(due + 0.5 for due in scheduled)
    requests = Requests(scheduled=scheduled, sent=scheduled, last=last, fate=("done",) * 20)
    changed = msgspec.structs.replace(level, requests=requests, duration=10.0, window=(0.0, 10.0))
    part = page_serving.over_time(changed)
    assert part["in_flight"] == [2, 2]
    assert sum(part["due"]) * 5 == 20
    assert part["median"] == [500_000_000] * 2


def test_requests_that_are_answered_after_all_were_due_are_in_flight_together():
    level = open_level(50, 100, seed=1)
    scheduled = tuple(float(second) for second in range(10))
    requests = Requests(
        scheduled=scheduled, sent=scheduled, last=(20.0,) * 10, fate=("done",) * 10
    )  # fmt: skip
    changed = msgspec.structs.replace(level, requests=requests, duration=10.0, window=(0.0, 10.0))
    assert page_serving.over_time(changed)["in_flight"] == [10]


def test_requests_that_are_never_answered_wait_until_the_client_gives_up():
    """A server that hangs: of 20 requests, one each second, up to 4 are waited for at once."""
    level = open_level(50, 100, seed=1)
    scheduled = tuple(float(second) for second in range(20))
    requests = Requests(scheduled=scheduled, sent=scheduled, fate=("timeout",) * 20)
    known = {"requests": requests, "duration": 20.0, "window": (0.0, 20.0)}
    hung = msgspec.structs.replace(level, sending=Sending(timeout=3.5), **known)
    assert page_serving.over_time(hung)["in_flight"] == [4, 4]
    older = msgspec.structs.replace(level, sending=None, **known)
    assert page_serving.over_time(older)["in_flight"] == [10, 20]
    refused = msgspec.structs.replace(requests, fate=("refused",) * 20)
    at_once = msgspec.structs.replace(hung, requests=refused)
    assert page_serving.over_time(at_once)["in_flight"] == [0, 0]


def test_a_request_due_at_the_end_of_the_window_is_in_no_figure():
    level = open_level(50, 100, seed=1)
    window = (level.requests.scheduled[10], level.requests.scheduled[60])
    changed = msgspec.structs.replace(level, window=window)
    assert tail_curves.distribution(changed)["count"] == 50


def test_gaps_between_contents_of_several_tokens_say_so():
    level = servings.streamed_level(2)
    doubled = tuple(2 * tokens for tokens in level.requests.tokens_out)
    several = msgspec.structs.replace(
        level, requests=msgspec.structs.replace(level.requests, tokens_out=doubled)
    )
    assert level.content_tokens is None
    assert several.content_tokens == 2.0
    part = tail_curves.between_tokens(several, 1_000)
    assert part["series"][0]["label"] == "between contents (ITL)"
    assert "which hold 2.00 tokens each" in part["notes"][-1]
    cards = parts(servings.serving([several]))["overview"]["figures"]
    assert "between contents p99" in {card["label"] for card in cards}
    assert "which hold 2.00 tokens each" in str(servings.serving([several]))
    assert "which hold" not in str(servings.serving([level]))


def test_mlperf_s_rule_is_on_the_page():
    sections = dict(parts(servings.single_stream())["method"]["parts"])
    rows = {name: text for name, text, _ in sections["Load single-stream"]}
    assert "of 64 needed" in rows["MLPerf's early stopping"]


@pytest.mark.thorough
def test_very_many_requests_are_thinned_and_no_page_grows_with_them():
    record = serving_pages.long_run(60_000)
    shown = parts(record)["requests"]
    drawn = sum(len(series["x"]) for series in shown["series"])
    counts = sum(sum(series["count"]) or len(series["x"]) for series in shown["series"])
    assert drawn < 22_500
    assert counts == 60_000 - 200
    slowest = max(max(series["y"]) for series in shown["series"])
    known = record.levels[0]
    steady = [
        last - due
        for due, last, fate in zip(
            known.requests.scheduled, known.requests.last, known.requests.fate, strict=True
        )
        if fate == "done"
    ]
    assert slowest == pytest.approx(max(steady) * 1e6, abs=1)
    assert len(column(shown["table"], "request")) <= 200


def test_points_of_many_levels_share_the_room_of_a_page():
    assert request_points.points_of_level(1) == request_points.MAX_OF_LEVEL
    assert request_points.points_of_level(10) * 10 <= request_points.MAX_POINTS
    assert request_points.points_of_level(1_000) == request_points.MIN_OF_LEVEL


def test_the_table_has_the_slowest_first_and_then_the_unanswered():
    table = parts(servings.with_errors())["requests"]["table"]
    latencies = column(table, "latency")
    known = [latency for latency in latencies if latency is not None]
    assert known == sorted(known, reverse=True)
    assert len(known) == 100
    assert column(table, "fate")[-5:] == [
        "refused", "reset", "answered by an error", "answered by an error", "timed out"
    ]  # fmt: skip


def test_a_gap_ends_where_the_stream_stood_still():
    level = serving_pages.stalled().levels[1]
    part = tail_curves.between_tokens(level, 100_000)
    stalls = [x for x, y in zip(part["gaps"]["x"], part["gaps"]["y"], strict=True) if y > 1e6]
    requests, at, expected = level.requests, 0, []
    for index, chunks in enumerate(requests.chunks):
        if index % 3 == 0 and requests.scheduled[index] >= level.window[0]:
            expected.append(requests.first[index] + sum(requests.gaps[at : at + 5]))
        at += chunks - 1
    assert sorted(stalls) == pytest.approx([1e6 * one for one in sorted(expected)], abs=2)
    assert part["series"][0]["points"][-1][1] == pytest.approx(max(requests.gaps) * 1e9)


def test_gaps_that_do_not_fit_their_chunks_are_not_drawn():
    level = serving_pages.stalled().levels[1]
    cut = msgspec.structs.replace(level.requests, gaps=level.requests.gaps[:-1])
    changed = msgspec.structs.replace(level, requests=cut)
    assert tail_curves.between_tokens(changed, 1_000) is None
    assert tail_curves.between_tokens(open_level(50, 100), 1_000) is None


def test_every_request_has_its_fate_and_rare_ones_share_a_part():
    fates = parts(serving_pages.every_fate())["fates"]
    assert len(fates["parts"]) == 6
    assert fates["parts"][-1] == "others"
    for row in fates["rows"]:
        assert sum(row["amounts"]) == row["whole"] == 400
    assert fates["rows"][0]["amounts"][-1] == 4
    assert fates["note"] == (
        "Others are: no answer of the protocol, stream ended early, no secure connection, "
        "unfinished."
    )


def test_readings_of_the_server_stand_beside_the_requests(search):
    server = search["server"]
    titles = [series["title"] for series in server["series"]]
    assert titles[0] == "Processor cores in use"
    assert "Read from disks" not in titles  # none were read
    assert server["series"][0]["levels"] == [[4.0, "4 cores"]]
    assert all(len(series["values"]) == len(server["time"]) for series in server["series"])
    assert sum(server["requests"]["answered"]) > 0


def test_a_request_that_waits_in_the_client_waits_in_no_view_of_the_server():
    shown = parts(servings.bound_in_flight())["distribution"]["series"]
    latency, sent = (dict(map(tuple, series["points"])) for series in shown)
    assert latency[10] > 2 * sent[10]
    assert sent[10] == pytest.approx((SERVICE + NETWORK) * 1e9, rel=0.2)
    assert math.isclose(max(latency), max(sent))
