"""How far an interval reaches is said wherever it is shown."""

import json

import msgspec
import pytest
from tests.support.exported_records import profile as a_profile

from torchgauge.analyze.gate.limits import judged, parse_limit
from torchgauge.records import rendering
from torchgauge.records.codec import decode, encode
from torchgauge.records.record import Interval
from torchgauge.records.summary import summarize
from torchgauge.report.content import rulings
from torchgauge.report.content import section as time_sections

WORDS = {
    "process": "within this process; between runs unknown",
    "runs": "across processes of one run",
    "calibrated": "across runs on this host",
}


@pytest.fixture(params=WORDS)
def scope(request):
    return request.param


@pytest.fixture
def record(scope):
    profile = a_profile()
    median = profile.latency.median
    interval = Interval(low=0.9 * median, high=1.1 * median, scope=scope)
    latency = msgspec.structs.replace(profile.latency, interval=interval, interval_scope=scope)
    return msgspec.structs.replace(profile, latency=latency)


def note(record):
    (row,) = [row for row in time_sections.latency(record.latency).rows if row.label == "median"]
    return row.note


def test_ninety_five_percent_is_said_of_runs_alone(record, scope):
    assert WORDS[scope] in note(record)
    assert ("95 %" in note(record)) == (scope != "process")
    assert "±10 %" in note(record)


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_the_summary_says_it_in_every_form(record, scope, form):
    assert WORDS[scope] in rendering.text(record, form)


def test_the_terminal_says_it(record, scope):
    assert " ".join(WORDS[scope].split()) in " ".join(str(record).split())


def test_openmetrics_labels_the_ends(record, scope):
    ends = [
        line
        for line in rendering.text(record, "openmetrics").split("\n")
        if line.startswith(("torchgauge_latency_median_low", "torchgauge_latency_median_high"))
    ]
    assert len(ends) == 2  # a name may hold what Python takes for the end of a line
    assert all(f'interval_scope="{scope}"' in line for line in ends)


def test_json_and_summary_have_it(record, scope):
    assert json.loads(encode(record))["latency"]["interval_scope"] == scope
    assert decode(encode(record)).latency.interval.scope == scope
    assert summarize(record)["latency_interval_scope"] == scope


def test_a_limit_says_that_nothing_is_known_between_runs(record, scope):
    (ruling,) = judged([parse_limit("latency:100s")], record).rulings
    line = rulings.line(ruling)
    assert ("between runs unknown" in line) == (scope == "process")
    assert ("95 % in" in line) == (scope != "process")
