"""The data of a capacity plan's page: what is needed, settings around it, front, checks."""

import pytest
from tests.support import serving_pages
from tests.support.page_data import parts

from torchgauge.report.page.serving.page_capacity import MAX_OF_BATCH


@pytest.fixture(scope="module")
def page():
    return parts(serving_pages.plan())


def column(table, title):
    return next(c["values"] for c in table["columns"] if c["title"] == title)


def test_a_plan_has_a_part_for_each_question(page):
    assert list(page) == [
        "overview", "settings", "front", "checks", "service", "method", "environment"
    ]  # fmt: skip


def test_the_workers_needed_stand_first_and_what_a_lost_one_does(page):
    figures = {card["label"]: card for card in page["overview"]["figures"]}
    first = page["overview"]["figures"][0]
    assert (first["label"], first["value"]) == ("workers needed", "2")
    assert figures["with 1 worker (one lost)"]["value"] == "queue grows"
    assert {card["how"] for card in figures.values()} == {"estimated"}


def test_settings_that_differ_in_workers_alone_are_a_curve(page):
    curve = page["settings"]["by_workers"]
    assert curve["unstable"] == [1]
    for series in curve["series"]:
        assert [point[0] for point in series["points"]] == [2, 3, 4]
        assert all(low < value < high for _, value, low, high in series["points"])
    assert [knee[0] for knee in page["settings"]["knees"]] == [1, 2, 3, 4]


def test_a_setting_whose_queue_grows_has_no_latency_and_says_so(page):
    table = page["settings"]["table"]
    assert column(table, "goals")[0] == "queue grows without end"
    assert column(table, "p99")[0] is None
    assert None not in column(table, "p99")[1:]


def test_the_front_has_a_point_for_each_setting(page):
    points = page["front"]["points"]
    assert len(points) == page["front"]["table"]["rows"] == len(serving_pages.plan().front)
    first = serving_pages.plan().front[0]
    assert points[0]["latency"] == pytest.approx(first.latency.percentile(0.99).value * 1e9)


def test_checks_say_what_was_outside(page):
    rows = page["checks"]["rows"]
    assert [row["inside"] for row in rows] == [True, False, None]
    assert [row["unit"] for row in rows] == ["time"] * 3
    assert rows[2]["predicted"] == [531e6, None, None]
    assert page["checks"]["note"] == "1 of 2 measurements lie inside their interval."
    assert column(page["checks"]["table"], "predicted")[2] == 531_000_000


def test_service_times_keep_their_extremes_where_there_are_many(page):
    service = page["service"]
    batch = next(b for b in serving_pages.plan().times.batches if b.batch == 1)
    drawn = [value for size, value in service["points"] if size == 1]
    assert len(drawn) == MAX_OF_BATCH < len(batch.seconds)
    assert [min(drawn), max(drawn)] == [
        round(min(batch.seconds) * 1e9), round(max(batch.seconds) * 1e9)
    ]  # fmt: skip
    assert service["total"] == sum(len(b.seconds) for b in serving_pages.plan().times.batches)


def test_a_plan_that_is_refused_says_why_above_all():
    page = parts(serving_pages.refused_plan())
    assert page["overview"]["notices"][0].startswith("Nothing is predicted: the answers come")
    assert page["overview"]["figures"] == []
    assert {"settings", "front", "checks"}.isdisjoint(page)


def test_no_setting_that_meets_the_goals_is_unknown_not_zero():
    page = parts(serving_pages.token_plan())
    card = page["overview"]["figures"][0]
    assert (card["label"], card["value"]) == ("workers needed", "unknown")
    labels = [row[0] for row in page["service"]["rows"]]
    assert labels[0] == "prefill, any forward"
    assert page["service"]["points"] == []
