"""Verdicts in every form, read by their real consumers."""

import csv
import io
import json
import re

import junitparser
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console
from tests.support import exported_records, verdicts
from tests.support.markdown_reader import tables

from torchgauge.errors import InputError
from torchgauge.records import codec, rendering
from torchgauge.records.comparison import Difference, Place
from torchgauge.records.record import MeasurementWarning
from torchgauge.report.console.console import view
from torchgauge.report.export import github

EVERY = verdicts.every()


def lines(verdict, width=80):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(view(verdict, width=width))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def cells(verdict, metric, width=80):
    (line,) = (one for one in lines(verdict, width) if re.match(rf"[✓✗?≠] {metric}\b", one))
    return re.split(r"\s{2,}", line)


@pytest.mark.parametrize("name", ["pass", "fail", "inconclusive", "not comparable"])
def test_the_outcome_comes_first(name):
    sign = {"pass": "✓", "fail": "✗", "inconclusive": "?", "not comparable": "≠"}[name]
    assert str(EVERY[name]).startswith(f"{sign} {name.upper()}  ")


def test_a_line_holds_figure_change_interval_and_what_is_allowed():
    failed = EVERY["fail"]
    assert cells(failed, "latency") == [
        "✗ latency", "10.20 ms → 11.40 ms", "+11.8 %", "+9.1 … +15.0 %", "+1 … +3 %",
    ]  # fmt: skip
    assert cells(failed, "p99") == ["✓ p99", "19.90 ms", "18.80 … 21.20 ms", "≤ 20.00 ms"]
    assert cells(failed, "throughput") == [
        "✗ throughput", "912.3 samples/s", "901.0 … 920.0", "≥ 1,000 /s",
    ]  # fmt: skip
    assert cells(failed, "flops", 120) == [
        "✓ flops", "4.000 G → 4.000 G", "0 %", "no worse", "counted",
    ]  # fmt: skip


def test_a_metric_with_tolerance_and_limit_is_named_once():
    limit = msgspec.structs.replace(verdicts.RATE, metric="latency")
    assert "FAIL  latency (2 of 2)" in str(verdicts.verdict(verdicts.ruling(), limit))


def test_many_metrics_are_counted():
    many = [verdicts.ruling(metric=f"m{n}") for n in range(7)]
    assert "FAIL  m0, m1, m2, m3 and 3 more (7 of 7)" in str(verdicts.verdict(*many))


def test_what_a_change_is_of_is_said_where_it_is_not_the_figures():
    words = "the change of latency is that of the geometric mean over processes"
    assert words not in " ".join(str(verdicts.verdict(verdicts.ruling())).split())
    assert words in " ".join(str(verdicts.verdict(verdicts.ruling(change=0.15))).split())


def test_why_where_and_what_to_do():
    failed = str(EVERY["fail"])
    assert "p99: borderline, the limit lies in the interval." in failed
    assert "· layer1.0.conv2 (Conv2d) +12 % [9, 15]" in failed
    assert "8 ABBA blocks of four fresh processes in 3 min, judged twice" in failed
    assert "main  0123456789, 2026-01-02 03:04, 20 processes, A CPU" in failed
    assert "! The machine is noisy.  [noisy]" in failed
    inconclusive = str(EVERY["inconclusive"])
    assert "? INCONCLUSIVE  latency, flops (2 of 3)" in inconclusive
    assert "latency: about 24 blocks would decide." in inconclusive
    assert "· Run it with --blocks 24" in inconclusive
    assert "? flops                  ≥ 608" in inconclusive
    assert "torchgauge" in str(EVERY["not comparable"]).partition("What to do")[2]


def test_builds_with_other_inputs_are_not_sent_where_they_come_from():
    inputs = Difference(part="target", name="inputs", baseline="8", current="32", work=True)
    apart = verdicts.paired(verdicts.APART)
    compared = msgspec.structs.replace(apart.comparison, differences=(inputs,))
    text = str(msgspec.structs.replace(apart, comparison=compared))
    assert "Give both the same inputs (--input)" in text
    assert "--base-ref" not in text


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", EVERY)
def test_no_line_is_too_long(name, width):
    assert max(map(len, lines(EVERY[name], width))) <= width


def test_colours_follow_the_outcome():
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    console.print(view(EVERY["fail"], width=80))
    assert console.file.getvalue().startswith("\x1b[1;31m✗ FAIL")


def test_many_guilty_places_are_counted():
    many = msgspec.structs.replace(
        EVERY["fail"], regressed_layers=tuple(f"l{n}" for n in range(25))
    )
    assert "… 15 more" in str(many)
    assert "· l10" not in str(many)


@pytest.mark.parametrize("name", EVERY)
def test_a_saved_verdict_says_the_same(name):
    verdict = EVERY[name]
    again = codec.decode(codec.encode(verdict))
    assert str(again) == str(verdict)
    assert again.to_junit() == verdict.to_junit()
    assert again.to_markdown() == verdict.to_markdown()


# Markdown


def test_markdown_has_the_rulings_as_a_table_failures_first():
    (rows,) = tables(EVERY["fail"].to_markdown())
    assert rows[0] == ["", "figure", "change", "95 %", "allowed", "how"]
    signed = ["🔴 ✗ latency", "🔴 ✗ throughput", "🟢 ✓ flops", "🟢 ✓ p99"]
    assert [row[0] for row in rows[1:]] == signed
    assert rows[1][1:] == ["10.20 ms → 11.40 ms", "+11.8 %", "+9.1 … +15.0 %", "+1 … +3 %",
                           "measured"]  # fmt: skip


def test_no_name_is_markup():
    tokens = MarkdownIt("commonmark").enable("table").parse(EVERY["odd"].to_markdown())
    inline = [child for token in tokens for child in token.children or ()]
    html = {one.content for one in inline if one.type == "html_inline"}
    assert html <= {"<br>"}
    assert not any(token.type in {"html_block", "fence"} for token in tokens)
    assert not any(one.type in {"image", "link_open"} for one in inline)


def huge(text, count):
    ruling = verdicts.ruling(metric=text, reason=text, method=text)
    warning = MeasurementWarning(id=text, message=text, remedy=text)
    found = verdicts.odd().comparison
    differs = msgspec.structs.replace(found.differences[0], name=text, baseline=text)
    compared = msgspec.structs.replace(found, differences=(differs,) * count)
    return verdicts.verdict(
        *[ruling] * count,
        comparison=compared,
        regressed_layers=(text,) * count,
        warnings=(warning,) * count,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("text", ["漢" * 5000, "&<`" * 2000, "|" * 900, "x"])
def test_a_comment_always_fits(text):
    written = huge(text, 800).to_markdown()
    assert len(written.encode()) < 60_000
    left_out = [
        int(one.replace(",", "")) for one in re.findall(r"… ([\d,]+) others$", written, re.M)
    ]
    assert len(left_out) == 4  # differences, rulings, places, warnings; the reasons are the same
    assert min(left_out) > 100
    for table in tables(written):
        assert {len(row) for row in table} == {6}


@settings(max_examples=30)
@given(st.text(min_size=1, max_size=200), st.integers(0, 400))
@pytest.mark.slow
def test_no_text_makes_a_comment_too_long_or_the_xml_bad(text, count):
    verdict = huge(text, count)
    assert len(verdict.to_markdown().encode()) < 60_000
    suite = next(iter(junitparser.JUnitXml.fromstring(verdict.to_junit().encode())))
    assert suite.tests == count


# JUnit


@pytest.mark.parametrize(
    ("name", "failures", "errors"),
    [("pass", 0, 0), ("fail", 2, 0), ("inconclusive", 0, 2), ("not comparable", 0, 1)],
)
def test_junit_has_a_case_for_each_ruling(name, failures, errors):
    verdict = EVERY[name]
    xml = junitparser.JUnitXml.fromstring(verdict.to_junit().encode())
    (suite,) = xml
    assert (xml.tests, xml.failures, xml.errors) == (len(verdict.rulings), failures, errors)
    assert (suite.tests, suite.failures, suite.errors) == (xml.tests, failures, errors)
    for case, ruling in zip(suite, verdict.rulings, strict=True):
        kinds = [type(result) for result in case.result]
        wanted = {"pass": [], "fail": [junitparser.Failure]}
        assert kinds == wanted.get(ruling.outcome, [junitparser.Error])
        assert case.name.startswith(f"{ruling.metric} ")


def test_junit_says_what_and_where():
    (suite,) = junitparser.JUnitXml.fromstring(EVERY["fail"].to_junit().encode())
    case = {case.name: case for case in suite}["latency tolerance"]
    assert case.classname == "torchgauge.Net"
    assert case.result[0].message == (
        "latency: fail, 10.20 ms → 11.40 ms (+11.8 %, 95 % in +9.1 … +15.0 %), allowed +1 … +3 %"
    )
    assert "layer1.0.conv2 (Conv2d) +12 %" in case.result[0].text
    assert suite.time == pytest.approx(183)


def test_junit_holds_no_character_that_xml_forbids():
    odd = verdicts.verdict(verdicts.ruling(metric="a\x00b\x1b[0m\ud800\ufffe", reason="]]>&<"))
    (suite,) = junitparser.JUnitXml.fromstring(odd.to_junit().encode())
    (case,) = suite
    assert case.name == "a\\x00b\\x1b[0m\\ud800\ufffd tolerance"
    assert "]]>&<" in case.result[0].text


# GitHub


def test_annotations_read_back_as_the_runner_reads_them():
    commands = github.commands(EVERY["fail"], "a,b: 100%.py").splitlines()
    assert len(commands) == 2
    level, properties, message = re.fullmatch(r"::(\w+) (.*?)::(.*)", commands[0]).groups()
    known = dict(one.split("=", 1) for one in properties.split(","))
    plain = {"%2C": ",", "%3A": ":", "%0A": "\n", "%0D": "\r", "%25": "%"}

    def read(text):
        return re.sub("%(2C|3A|0A|0D|25)", lambda found: plain[found[0]], text)

    assert level == "error"
    assert read(known["file"]) == "a,b: 100%.py"
    assert read(known["title"]) == "torchgauge: latency"
    assert "+11.8 %" in read(message)
    assert read(message).splitlines()[1] == "layer1.0.conv2 (Conv2d) +12 % [9, 15]"


def test_a_percent_sign_of_the_users_is_no_escape():
    (command,) = github.commands(verdicts.verdict(verdicts.ruling(reason="50%0A"))).splitlines()
    assert command.endswith("50%250A")


def test_levels_and_their_number():
    assert github.commands(EVERY["pass"]) == ""
    assert github.commands(EVERY["inconclusive"]).startswith("::warning title=")
    assert github.commands(EVERY["not comparable"]).startswith("::error title=")
    many = verdicts.verdict(*[verdicts.ruling()] * 30)
    assert len(github.commands(many).splitlines()) == 10


def test_no_text_starts_a_command_of_its_own():
    forged = verdicts.ruling(reason="x\n::set-output name=a::b\r\n::error::c", metric="a\n::b")
    assert len(github.commands(verdicts.verdict(forged)).splitlines()) == 1


# github-action-benchmark


def test_benchmark_results_are_all_better_in_one_direction():
    profile = exported_records.profile(throughput=exported_records.records.profile().throughput)
    smaller = {one["name"]: one for one in json.loads(rendering.text(profile, "benchmark"))}
    bigger = json.loads(rendering.text(profile, "benchmark", better="higher"))
    assert [one["name"] for one in bigger] == ["Net: throughput"]
    assert smaller["Net: latency"] == {
        "name": "Net: latency", "unit": "ms", "value": pytest.approx(10), "range": "± 0.100",
        "extra": "measured",
    }  # fmt: skip
    assert smaller["Net: params"]["value"] == 100
    assert "Net: flops" not in smaller  # unknown, not 0
    for one in (*smaller.values(), *bigger):
        assert isinstance(one["value"], int | float)
        assert {type(one[key]) for key in one if key != "value"} == {str}


def test_benchmark_of_a_verdict_says_its_outcomes():
    found = json.loads(rendering.text(EVERY["fail"], "benchmark"))
    extras = {one["name"]: one["extra"] for one in found}
    assert extras == {
        "Net: flops": "counted, pass", "Net: latency": "measured, fail",
        "Net: p99": "measured, pass",
    }  # fmt: skip
    # The interval of a ruling by tolerance is that of its change.
    assert ["range" in one for one in found] == [False, False, True]


# CSV


def test_csv_has_a_row_for_each_ruling():
    rows = list(csv.DictReader(io.StringIO(EVERY["fail"].to_csv())))
    assert [row["metric"] for row in rows] == ["flops", "latency", "p99", "throughput"]
    assert (rows[1]["low"], rows[1]["refused"], rows[1]["limit"]) == ("0.091", "0.03", "")
    assert (rows[2]["limit"], rows[2]["borderline"]) == ("0.02", "True")


def test_csv_of_a_comparison_and_its_places():
    place = Place(kind="layer", name="=odd", baseline=0.1, current=0.2, contribution=0.1)
    compared = msgspec.structs.replace(EVERY["fail"].comparison, layers=(place,))
    (row,) = csv.DictReader(io.StringIO(compared.to_csv(table="layers")))
    assert (row["name"], row["contribution"], row["low"]) == ("'=odd", "0.1", "")
    assert compared.to_csv().splitlines() == [
        "metric,judgement,how,unit,better,exact,baseline,current,change,low,high,corrected,reason,"
        "method,shape"
    ]
    verdict = msgspec.structs.replace(EVERY["fail"], comparison=compared)
    assert verdict.to_csv(table="layers") == compared.to_csv(table="layers")


# What does not fit


@pytest.mark.parametrize("form", ["to_openmetrics", "to_speedscope", "to_folded"])
def test_other_formats_say_that_they_do_not_fit(form):
    for record in (EVERY["fail"], EVERY["fail"].comparison):
        with pytest.raises(InputError) as caught:
            getattr(record, form)()
        assert caught.value.id == "format-unfit"


def test_places_of_a_verdict_on_one_run_do_not_fit():
    with pytest.raises(InputError) as caught:
        EVERY["pass"].to_csv(table="layers")
    assert caught.value.id == "format-unfit"


@pytest.mark.parametrize("record", [exported_records.profile(), exported_records.count()])
def test_junit_of_a_record_without_rulings_does_not_fit(record):
    with pytest.raises(InputError) as caught:
        rendering.text(record, "junit")
    assert caught.value.id == "format-unfit"
