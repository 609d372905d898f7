"""Goals: parsed from text, and judged by intervals."""

import msgspec
import numpy as np
import pytest
from tests.support.queues import requests_of

from torchgauge.analyze.serving.goals import judged, parse_goals, within_goals
from torchgauge.analyze.serving.request_times import RequestTimes
from torchgauge.errors import InputError
from torchgauge.records.record import Interval
from torchgauge.records.serving.level import Arrivals, Level, Saturation
from torchgauge.records.serving.requests import Distribution, Estimate, Goal, Percentile, Requests

P99 = Goal(metric="latency", limit=0.1, fraction=0.99, text="p99<100ms")
SERVICE = Goal(metric="service", limit=5e-3, fraction=0.5)


def level_with(**fields):
    arrivals = Arrivals(kind="poisson", rate=10)
    return Level(arrivals=arrivals, duration=60, window=(6, 60), **fields)


def latency(low, high, **fields):
    interval = None if low is None else Interval(low=low, high=high)
    p99 = Percentile(fraction=0.99, value=0.08, interval=interval, **fields)
    return Distribution(
        count=5000, mean=Estimate(value=0.02), low=0.01, high=0.2, percentiles=(p99,)
    )


@pytest.mark.parametrize(
    ("text", "goals"),
    [
        ("p99<100ms", (P99,)),
        (
            "ttft_p95 <= 0.3s, tpot_mean<40ms;errors<1%",
            (
                Goal(metric="ttft", limit=0.3, fraction=0.95, text="ttft_p95<=0.3s"),
                Goal(metric="tpot", limit=0.04, text="tpot_mean<40ms"),
                Goal(metric="errors", limit=0.01, text="errors<1%"),
            ),
        ),
        ("p99.9<1s", (Goal(metric="latency", limit=1, fraction=0.999, text="p99.9<1s"),)),
        ("service_p50<5ms", (msgspec.structs.replace(SERVICE, text="service_p50<5ms"),)),
    ],
)
def test_goals_are_parsed(text, goals):
    assert parse_goals(text) == goals


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no goal"),
        ("fast", "'fast'"),
        ("p99<100", "Did you mean 100ms?"),
        ("p99<100MS", "Did you mean 100ms?"),
        ("p99<-1ms", "'-1ms'"),
        ("tftt_p99<1s", "Did you mean ttft?"),
        ("ttft<1s", "Did you mean ttft_p99?"),
        ("latency<1s", "Did you mean latency_p99?"),
        ("p100<1s", "percentile"),
        ("p0<1s", "percentile"),
        ("errors_p99<1s", "'errors'"),
        ("errors<2", "'2'"),
        ("errors<150%", "'150%'"),
        ("p99<100ms or so", "'or so'"),
        ("p99>100ms", "'p99>100ms'"),
        ("p99<100ms<200ms", "'<200ms'"),
    ],
)
def test_what_is_no_goal_is_refused_with_what_was_meant(text, part):
    with pytest.raises(InputError) as refusal:
        parse_goals(text)
    assert refusal.value.id == "goal-invalid"
    assert part in str(refusal.value)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.07, 0.09, "met"),
        (0.07, 0.1, "unclear"),
        (0.09, 0.12, "unclear"),
        (0.1, 0.12, "missed"),
        (None, None, "unclear"),
    ],
)
def test_the_interval_decides_and_never_the_figure(low, high, verdict):
    result = judged(P99, level_with(latency=latency(low, high)))
    assert result.verdict == verdict
    assert result.value == 0.08


def test_more_requests_above_the_limit_than_it_allows_miss_it_without_an_interval():
    level = level_with(latency=latency(None, None, reason="Too few."))
    assert judged(P99, level, Interval(low=0.02, high=0.9)).verdict == "missed"
    assert judged(P99, level, Interval(low=0.009, high=0.9)).verdict == "unclear"


def test_fewer_requests_above_the_limit_than_it_allows_meet_it_without_an_interval():
    level = level_with(latency=latency(None, None, reason="Too few."))
    met = judged(P99, level, Interval(low=0.0, high=0.009))
    assert (met.verdict, met.value, met.interval) == ("met", 0.08, None)
    assert met.reason == "0 … 0.900 % of the requests are above the limit."
    assert judged(P99, level, Interval(low=0.0, high=0.011)).verdict == "unclear"


def test_a_growing_backlog_misses_what_counts_from_the_schedule():
    saturated = Saturation(saturated=True, slope=12.0)
    level = level_with(latency=latency(0.01, 0.02), saturation=saturated)
    level = msgspec.structs.replace(level, service=level.latency)
    assert judged(P99, level).verdict == "missed"
    assert "12.0 requests/s" in judged(P99, level).reason
    assert judged(msgspec.structs.replace(P99, metric="service"), level).verdict == "met"


def test_a_mean_is_missed_where_requests_were_not_answered():
    mean = Goal(metric="latency", limit=1.0)
    times = msgspec.structs.replace(latency(0.01, 0.02), unanswered=3)
    assert judged(mean, level_with(latency=times)).verdict == "missed"


def test_a_goal_on_streams_is_unclear_without_one():
    goal = Goal(metric="ttft", limit=1.0, fraction=0.99)
    assert judged(goal, level_with()).verdict == "unclear"
    assert "TTFT" in judged(goal, level_with()).reason


def test_goodput_counts_requests_within_every_limit_and_no_failure():
    requests = requests_of(
        np.arange(5.0),
        np.array([0.05, 0.2, 0.05, 0.05, 0.05]),
        first=(0.01, 1.01, 2.04, 3.01, None),
        fate=("done", "done", "done", "status", "done"),
    )
    within = within_goals(RequestTimes(requests), parse_goals("p99<100ms ttft_p95<30ms errors<1%"))
    # The last has no first content: it has not kept a limit on that.
    assert within.tolist() == [True, False, False, False, False]


def test_of_gaps_a_request_needs_the_share_of_the_goal():
    requests = Requests(
        scheduled=(0.0, 1.0, 2.0),
        sent=(0.0, 1.0, 2.0),
        first=(0.1, 1.1, 2.1),
        last=(0.5, 1.5, 2.1),
        fate=("done",) * 3,
        chunks=(5, 3, 1),
        gaps=(0.01, 0.01, 0.01, 0.3, 0.01, 0.3),
    )
    times = RequestTimes(requests)
    assert within_goals(times, parse_goals("itl_p75<50ms")).tolist() == [True, False, True]
    # Mean gaps: 82.5 ms and 155 ms.
    assert within_goals(times, parse_goals("itl_mean<100ms")).tolist() == [True, False, True]
