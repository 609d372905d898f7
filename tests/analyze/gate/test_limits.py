"""Limits against records made by hand, whose truths are plain."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import exported_records, records, servings

from torchgauge.analyze.gate.limits import judge, judge_limit, judged, parse_limit, percentile_of
from torchgauge.errors import ExitCode, InputError
from torchgauge.records.headline.figure import Figure
from torchgauge.records.latency.latency import Throughput
from torchgauge.records.metric import METRICS
from torchgauge.records.record import Interval
from torchgauge.records.verdict import Limit
from torchgauge.report.content.rulings import figure

UNITS = {
    "energy": "J",
    "energy_per_token": "mJ",
    "latency": "ms",
    "tokens": "tokens/s",
    "throughput": "samples/s",
    "memory": "MB",
    "disk": "MB",
    "traffic": "MB",
    "goodput": "requests/s",
    "capacity": "requests/s",
    "errors": "%",
    "mfu": "%",
    "hfu": "%",
}


def profile(**changes):
    """10 ms in 9.9 … 10.1 ms, 200 samples/s in 198 … 202, 1,000 B, 100 parameters, 608 FLOP."""
    rate = Throughput(
        calls=100.0, samples=200.0, images=200.0, interval=Interval(low=99.0, high=101.0)
    )
    return records.profile(**{"throughput": rate, **changes})


@pytest.mark.parametrize(
    ("text", "outcome", "borderline"),
    [
        ("latency:100ms", "pass", False),
        ("latency:10.2ms", "pass", False),
        ("latency:10.05ms", "pass", True),
        ("latency:10ms", "pass", True),  # at the limit is within it
        ("latency:9.95ms", "fail", True),
        ("latency:9.8ms", "fail", False),
        ("p50:9ms", "fail", False),
        ("p95:10.1ms", "pass", False),
        ("p95:10ms", "fail", False),
        ("throughput:100samples/s", "pass", False),
        ("throughput:200samples/s", "pass", True),
        ("throughput:201samples/s", "fail", True),
        ("throughput:203samples/s", "fail", False),
        ("throughput:200images/s", "pass", True),
        ("throughput:100calls/s", "pass", True),
        ("throughput:102requests/s", "fail", False),
        ("throughput:1tokens/s", "inconclusive", False),  # the input holds none
        ("memory:1kB", "pass", False),
        ("memory:999B", "fail", False),
        ("params:100", "pass", False),
        ("params:99", "fail", False),
        ("disk:500B", "pass", False),
        ("disk:0.4kB", "fail", False),
        ("first_call:50ms", "pass", False),
        ("first_call:49ms", "fail", False),
        ("flops:1T", "inconclusive", False),  # no cost in this record
        ("device_time:1s", "inconclusive", False),
        ("backward:1s", "inconclusive", False),
    ],
)
def test_the_estimate_decides_and_the_unknown_never_passes(text, outcome, borderline):
    ruling = judge_limit(parse_limit(text), profile())
    assert (ruling.outcome, ruling.borderline) == (outcome, borderline)
    assert (ruling.current is None) == (outcome == "inconclusive")
    assert ruling.limit.text == text


@pytest.mark.parametrize(
    ("limit", "outcome"), [("600", "fail"), ("608", "inconclusive"), ("1G", "inconclusive")]
)
def test_at_least_so_much_fails_above_and_is_not_known_below(limit, outcome):
    cost = exported_records.count().cost  # 608 FLOP and one operator without formula
    ruling = judge_limit(parse_limit(f"flops:{limit}"), profile(cost=cost))
    assert (ruling.outcome, ruling.at_least, ruling.current) == (outcome, True, 608)


@pytest.mark.parametrize(("limit", "outcome"), [("99", "fail"), ("100", "inconclusive")])
def test_parameters_without_shape_leave_the_total_open(limit, outcome):
    size = msgspec.structs.replace(records.profile().size, uninitialized=("lazy.weight",))
    ruling = judge_limit(parse_limit(f"params:{limit}"), profile(size=size))
    assert (ruling.outcome, ruling.at_least) == (outcome, True)


def test_known_work_passes():
    cost = exported_records.count().cost
    known = msgspec.structs.replace(cost, rows=cost.rows[:2])
    ruling = judge_limit(parse_limit("flops:608FLOP"), profile(cost=known))
    assert (ruling.outcome, ruling.at_least, ruling.how) == ("pass", False, "counted")


def test_the_ruling_carries_the_interval_in_the_unit_of_the_figure():
    ruling = judge_limit(parse_limit("throughput:150images/s"), profile())
    assert (ruling.interval.low, ruling.interval.high, ruling.unit) == (198.0, 202.0, "1/s")


def test_a_percentile_on_few_samples_says_so():
    ruling = judge_limit(parse_limit("p99:1s"), profile())
    assert ruling.outcome == "pass"
    assert ruling.reason == "1 independent samples of the 368 needed (precision reached)"


def test_a_verdict_of_limits_is_the_worst_of_its_rulings():
    def outcome(*texts):
        return judged(map(parse_limit, texts), profile())

    assert outcome("latency:1s", "params:1M").exit_code == ExitCode.DONE
    assert outcome("latency:1s", "flops:1T").exit_code == ExitCode.INCONCLUSIVE
    assert outcome("flops:1T", "latency:1ms", "params:1M").exit_code == ExitCode.THRESHOLD


@pytest.mark.parametrize(
    ("texts", "percentile"),
    [(["latency:1s"], None), (["p90:1s", "latency:1s"], 0.9), (["p95:1s", "p99:2s"], 0.99),
     (["p50:1s"], None)],
)  # fmt: skip
def test_which_percentile_is_sampled_for(texts, percentile):
    assert percentile_of([parse_limit(text) for text in texts]) == percentile


@pytest.mark.parametrize(
    "text", ["latency=5s", "latency<5s", "latency <= 5s", "Latency:5s", "latency: 5s", "LATENCY=5s"]
)
def test_a_limit_may_be_written_with_other_signs(text):
    limit = parse_limit(text)
    assert (limit.metric, limit.value, limit.is_minimum) == ("latency", 5.0, False)
    assert limit.text == text


@pytest.mark.parametrize("text", ["throughput>5samples/s", "throughput>=5samples/s"])
def test_a_least_is_written_with_more_than(text):
    limit = parse_limit(text)
    assert (limit.metric, limit.value, limit.is_minimum) == ("throughput", 5.0, True)


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("latency:100", "threshold-invalid"),
        ("latency:0ms", "threshold-invalid"),
        ("latency", "threshold-invalid"),
        ("latency>100ms", "threshold-invalid"),
        ("throughput<5samples/s", "threshold-invalid"),
        ("latency<2GB", "threshold-invalid"),
        ("latency:2GB", "threshold-invalid"),
        ("memory:20ms", "threshold-invalid"),
        ("throughput:100ms", "threshold-invalid"),
        ("latecny:100ms", "metric-unknown"),
        (":100ms", "metric-unknown"),
        ("", "metric-unknown"),
    ],
)
def test_what_is_no_limit_says_how_to_write_it(text, id):
    with pytest.raises(InputError) as caught:
        parse_limit(text)
    assert caught.value.id == id
    assert caught.value.remedy


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_can_be_limited(name):
    metric = METRICS[name]
    unit = UNITS.get(name, "" if metric.kind in {"count", "size"} else "ms")
    limit = parse_limit(f"{name}:1{unit}")
    assert limit.is_minimum == (metric.better == "higher")
    assert judge_limit(limit, profile()).metric == name


values = st.floats(min_value=1e-9, max_value=1e15)


@given(
    value=values, limit=values, least=st.booleans(), at_least=st.booleans(), width=st.floats(0, 1)
)
def test_what_holds_of_every_ruling(value, limit, least, at_least, width):
    interval = Interval(low=value * (1 - width), high=value * (1 + width))
    figure = Figure("x", "s", "measured", "", value, True, interval)
    asked = Limit(metric="latency", value=limit, text="", is_minimum=least)
    ruling = judge(asked, figure, at_least=at_least)
    over = value < limit if least else value > limit
    # What is known in part can exceed a most and keep a least, and decides nothing else.
    assert (ruling.outcome == "fail") == (over and not (at_least and least))
    assert (ruling.outcome == "pass") == (not over and (least or not at_least))
    assert ruling.borderline == (interval.low <= limit <= interval.high)
    unknown = judge(asked, figure._replace(value=None, interval=None), at_least=at_least)
    assert (unknown.outcome, unknown.borderline) == ("inconclusive", False)


def test_a_limit_on_a_level_says_what_speaks_against_its_figure():
    """The estimate decides as it does of calls, and the ruling says that it has no interval."""
    record = servings.capacity_found()

    def ruling(text, level):
        return judge_limit(parse_limit(text), record.profile(level))

    quiet, full = record.levels[0], record.levels[3]
    needed = quiet.latency.percentile(0.99).needed
    assert ruling("p99:1s", quiet).outcome == "pass"
    assert ruling("p99:1s", quiet).reason == f"no interval, which takes {needed:,} requests"
    assert ruling("p50:1s", quiet).reason == ""
    saturated = "saturated: times are of its window alone"
    assert ruling("p50:10s", full).reason == f"{saturated}; no interval, which takes 240 requests"
    rate = ruling("throughput:1requests/s", full)
    assert (rate.reason, figure(rate).split()[-1]) == ("", "requests/s")
    assert ruling("errors:1%", quiet).reason == ""
    assert ruling("ttft:1s", quiet).reason == "no request of this level has it"
    late = servings.client_limited().levels[0]
    assert ruling("p50:10s", late).reason.startswith("the client was too slow")


def test_a_level_of_few_requests_says_that_they_are_few():
    level = servings.healthy().levels[0]
    percentiles = level.latency.percentiles

    def reason(**changes):
        shown = msgspec.structs.replace(level.latency, percentiles=percentiles[:3], **changes)
        few = msgspec.structs.replace(level, latency=shown)
        return judge_limit(parse_limit("p99:1s"), servings.serving([few]).profile(few)).reason

    assert reason(count=98) == "98 requests are too few for it"
    assert reason(unanswered=30) == "it lies among the requests that ended without it"
