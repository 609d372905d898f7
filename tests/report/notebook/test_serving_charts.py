"""The drawings of load and of plans: by rate, over time, by latency, what became of requests."""

import pytest
from tests.support import serving_pages, servings
from tests.support.cases import few_quick

from torchgauge.report.notebook import notebook, serving_charts
from torchgauge.report.notebook.notebook import render


def test_load_is_drawn_by_rate_and_the_last_level_within_its_goals_by_request():
    record = servings.capacity_found()
    waits, answers, slowest, spread = serving_charts.serving(record)
    assert waits.labels == ["25", "50", "100", "150"]
    known = [level.latency.percentile(0.99).value for level in record.levels]
    assert waits.values == known
    assert answers.values[-1] == record.levels[-1].goodput.value < 10
    assert slowest.title == "Slowest over time, 100 requests/s"
    level = record.levels[2].requests
    longest = max(last - due for due, last in zip(level.scheduled, level.last, strict=True))
    assert max(slowest.values) == pytest.approx(longest)
    assert sum(spread.values) == round(0.99 * record.levels[2].count)
    assert spread.note.startswith("4 longer, up to ")


def test_what_became_of_requests_is_drawn_where_not_all_were_answered():
    *_, fates = serving_charts.serving(servings.with_errors())
    assert fates.title == "Requests"
    assert fates.labels[0] == "done 395"
    assert sum(fates.values) == 400
    titles = [chart.title for chart in serving_charts.serving(servings.healthy())]
    assert "Requests" not in titles


def test_a_record_without_levels_is_not_drawn():
    assert serving_charts.serving(servings.without_levels()) == []


def test_a_plan_is_drawn_by_workers_and_says_where_the_queue_grows():
    latency, knees = serving_charts.plan(serving_pages.plan())
    assert latency.labels == ["2", "3", "4"]
    assert latency.note == "the queue grows with 1"
    assert knees.labels == ["1", "2", "3", "4"]
    assert serving_charts.plan(serving_pages.refused_plan()) == []


@pytest.mark.parametrize("name", few_quick(servings.every()))
def test_every_record_of_load_is_drawn_without_a_fault(name):
    html = render(servings.every()[name])
    assert "nan" not in "".join(
        map(notebook.drawing, serving_charts.serving(servings.every()[name]))
    )
    assert html.count("<figure>") == len(serving_charts.serving(servings.every()[name]))
