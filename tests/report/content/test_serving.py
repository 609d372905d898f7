"""The report of load: what it says of each level, and what it does not claim."""

import io

import msgspec
import pytest
import rich.console
from tests.support import servings

from torchgauge.records.record import Interval, MeasurementWarning
from torchgauge.records.serving.level import Arrivals
from torchgauge.records.serving.requests import Capacity, Goal
from torchgauge.report.console.console import view
from torchgauge.report.content.document import Facts, Options, Table
from torchgauge.report.content.serving import serving_words as words
from torchgauge.report.content.serving.serving import document

FOUND = servings.capacity_found()
EVERY = servings.every()


def render(record, width=120):
    console = rich.console.Console(file=io.StringIO(), width=width, color_system=None)
    console.print(view(record, width=width))
    return console.file.getvalue()


def table(record, title):
    blocks = document(record, Options()).blocks
    found = next(block for block in blocks if isinstance(block, Table) and block.title == title)
    return {str(row.name): row.cells for row in found.rows}, found


def facts(record, title):
    shown = document(record, Options())
    blocks = [*shown.blocks, *shown.conclusion]
    found = next(block for block in blocks if isinstance(block, Facts) and block.title == title)
    return [(label, str(text)) for label, text in found.pairs]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("width", [80, 120])
def test_every_record_fits_a_terminal(name, width):
    lines = render(EVERY[name], width).splitlines()
    assert max(map(len, lines)) <= width
    assert not any("…ms" in line or "…s/s" in line for line in lines)


def test_levels_say_what_was_answered_and_waited():
    cells, shown = table(FOUND, "Load")
    assert list(cells) == ["25 requests/s", "50 requests/s", "100 requests/s", "150 requests/s"]
    level = FOUND.levels[3]
    assert cells["150 requests/s"]["p99"] == f"{1e3 * level.latency.percentile(0.99).value:.0f} ms"
    assert cells["150 requests/s"]["outcome"] == "missed, saturated"
    assert cells["25 requests/s"]["outcome"] == "met"
    assert "p99 interval" not in cells["25 requests/s"]
    assert any("25 requests/s (466 requests would do)" in note for note in shown.notes)


def test_a_client_that_was_too_slow_claims_no_goal():
    cells, _ = table(EVERY["client_limited"], "Load")
    assert cells["100 requests/s"]["outcome"] == "client-limited"
    client, _ = table(EVERY["client_limited"], "Client")
    assert client["100 requests/s"]["waiting for a core"] == "34.0 %"


def test_capacity_in_words():
    pairs = dict(facts(FOUND, "In short"))
    assert pairs["capacity"] == (
        "104 requests/s (100 … 109)  with latency p99 < 100 ms, confirmed by a second run"
    )
    assert dict(facts(servings.healthy(), "In short"))["capacity"].startswith("at least 75.0 requ")
    none = dict(facts(servings.none_met(), "In short"))["capacity"]
    assert none == "unknown  The lowest rate that was tried missed the goals."
    shortage = Capacity(rate=50.0, searched=True, reason="Too few levels.")
    record = msgspec.structs.replace(FOUND, capacity=shortage)
    assert dict(facts(record, "In short"))["capacity"] == (
        "at least 50.0 requests/s  with latency p99 < 100 ms, without an interval: Too few levels."
    )


def test_streams_have_their_tokens():
    cells, _ = table(servings.streamed(), "Tokens")
    tokens = servings.streamed().levels[0].tokens.value
    assert cells["2 requests/s"]["tokens/s"] == f"{tokens:.1f}"
    assert dict(facts(servings.streamed(), "In short")).keys() == {
        "capacity", "TTFT p95", "ITL p99",
    }  # fmt: skip


def test_what_was_not_answered_is_listed_by_kind():
    (pair,) = facts(EVERY["with_errors"], "Without a whole answer")
    count = EVERY["with_errors"].levels[0].count
    assert pair[1].startswith("2 answered by an error, 1 refused, 1 reset, 1 timed out")
    assert pair[1].endswith(f"of {count} (status 503)")
    goals, shown = table(EVERY["with_errors"], "Goals")
    assert goals["errors < 1.0 %"]["verdict"] == "missed"
    assert shown.notes == [
        "50 requests/s: Too few requests for an interval: they resemble their neighbours."
    ]


def test_each_level_has_its_own_warnings():
    def refused(count):
        return (MeasurementWarning(id="requests-refused", message=f"{count} requests ended."),)

    record = servings.healthy()
    counts = zip(record.levels, (3, 3, 4), strict=True)
    levels = [msgspec.structs.replace(level, warnings=refused(count)) for level, count in counts]
    text = render(msgspec.structs.replace(record, levels=tuple(levels)))
    for rate, count in ((25, 3), (50, 3), (75, 4)):
        assert f"{rate} requests/s: {count} requests ended." in text


def test_early_stopping_says_what_it_is_valid_for():
    text = render(EVERY["single_stream"])
    assert "200 queries of 64 needed, p90 at most 8.64 ms" in text
    assert "valid for independent requests only" in text


def test_a_simulated_percentile_is_estimated():
    text = render(FOUND)
    assert "By a simulation of the same schedule  estimated" in text
    assert " in the long run, measured " in text


def test_without_levels_nothing_is_claimed():
    text = render(EVERY["without_levels"])
    assert text.rstrip().endswith("Interrupted before its end.")
    assert "In short" not in text
    assert " 0 " not in text


@pytest.mark.parametrize(
    ("arrivals", "text"),
    [
        (Arrivals(kind="constant", rate=5.0), "even arrivals"),
        (Arrivals(kind="gamma", rate=5.0, variation=2.0), "gamma arrivals of variation 2"),
        (Arrivals(kind="file", file="a.csv"), "arrivals of a.csv"),
        (Arrivals(kind="closed", users=4), "4 users, one request after the other"),
        (Arrivals(kind="at once"), "all at once"),
    ],
)
def test_arrivals_in_words(arrivals, text):
    assert words.arrivals(arrivals) == text


def test_goals_in_words():
    assert words.goal(Goal(metric="itl", limit=0.05)) == "ITL mean < 50.0 ms"
    errors = Goal(metric="errors", limit=0.01)
    assert words.goal(errors) == "errors < 1.0 %"
    assert words.interval(Interval(low=0.0, high=0.02), errors) == "0 % … 2.0 %"


def test_the_network_is_the_machines_and_counts_once():
    """What server and client exchange on one machine is sent and received there."""
    cells, shown = table(FOUND, "Server")
    assert cells["25 requests/s"]["network"] == "160 kB/s"
    titles = {column.key: column.title for column in shown.columns}
    assert titles["network"] == "machine's network"
