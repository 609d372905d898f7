"""`torchgauge load` from its arguments to its files and exit codes; sending by a stand-in."""

import csv
import io
import json
import shlex

import jsonschema
import msgspec
import pytest
from tests.support import servings
from tests.support.published_schemas import published
from tests.support.serving_levels import closed_level

import torchgauge as tg
from torchgauge.cli.main import build, main
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.serving.level import Arrivals, ClientLoad
from torchgauge.records.serving.requests import Capacity

URL = "http://127.0.0.1:8000/v1/chat/completions"


@pytest.fixture
def sent(monkeypatch):
    """Have a record returned in place of sending; returns what was asked for."""
    requests = []

    def use(record):
        def request(subject, **settings):
            requests.append((subject, settings))
            return record

        monkeypatch.setattr("torchgauge.api.servings.serving_request", request, raising=False)
        return requests

    return use


def load(*arguments, target="model.py:make"):
    return main(["load", target, *arguments])


def test_options_of_a_model_reach_the_load(sent):
    requests = sent(servings.healthy())
    assert load(
        "--rate", "25,50,75", "--arrivals", "gamma:2", "--goal", "p99<100ms", "--goal",
        "errors<1%", "--for", "120s", "--requests", "400", "--in-flight",
        "64", "--max-batch", "8", "--max-delay", "5ms", "--workers", "2", "--seed", "7",
        "--timeout", "3", "--processes", "2", "--device", "cpu", "--precision", "bf16",
        "--input", "1x8", "--weights", "w.pt", "--mlperf",
    ) == 0  # fmt: skip
    ((request, settings),) = requests
    assert (request.spec, request.device, request.precision) == ("model.py:make", "cpu", "bf16")
    assert (request.inputs, request.weights.name) == (("1x8",), "w.pt")
    assert settings == {
        "rate": (25.0, 50.0, 75.0), "arrivals": "gamma:2", "goals": "p99<100ms errors<1%",
        "duration": 120.0, "requests": 400, "in_flight": 64, "max_batch": 8, "max_delay": 0.005,
        "workers": 2, "seed": 7, "timeout": 3.0, "processes": 2, "mlperf": True,
    }  # fmt: skip


def test_what_was_not_given_is_left_to_the_load(sent):
    requests = sent(servings.healthy())
    assert load() == 0
    ((request, settings),) = requests
    assert (request.device, settings) == ("auto", {})


def test_options_of_an_endpoint_reach_the_load(sent, tmp_path):
    requests = sent(servings.streamed())
    body = tmp_path / "body.json"
    assert load(
        "--rate", "auto", "--goal", "ttft_p95<300ms", "--api", "openai-chat", "--body", str(body),
        "--bearer-env", "TOKEN", "--allow-remote", target=URL,
    ) == 0  # fmt: skip
    ((subject, settings),) = requests
    assert subject == URL
    assert settings == {
        "rate": "auto", "goals": "ttft_p95<300ms", "api": "openai-chat", "body": body,
        "bearer_env": "TOKEN", "allow_remote": True,
    }  # fmt: skip


def test_what_requests_say_reaches_the_load(sent, tmp_path):
    requests = sent(servings.streamed())
    assert load(
        "--rate", "2", "--api", "sse", "--content", "data.token.text", "--method", "PUT",
        "--header", "X-Key=env:KEY", "--header", "Accept: text/plain", "--form", "model=a=b",
        "--form", f"file=@{tmp_path}/x.png", "--server-pid", "7", "--server-pid", "8", target=URL,
    ) == 0  # fmt: skip
    ((_, settings),) = requests
    assert settings == {
        "rate": (2.0,), "api": "sse", "content": "data.token.text", "method": "PUT",
        "headers": [("X-Key", "env:KEY"), ("Accept", "text/plain")],
        "form": [("model", "a=b"), ("file", f"@{tmp_path}/x.png")], "server_pids": [7, 8],
    }  # fmt: skip
    fields = '{"temperature": 0}'
    assert load("--rate", "2", "--tokens", "1:2", "--fields", fields, target=URL) == 0
    assert requests[1][1]["fields"] == {"temperature": 0}


def test_a_header_s_value_is_in_no_suggested_command(sent, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    sent(servings.streamed())
    given = ("--header", "X-Api-Key=sk-123", "--header", "Authorization: Basic env:KEY")
    assert load("--rate", "2", *given, "--header=Accept=text/plain", target=URL) == 0
    assert load("--ratee", "2", *given, target=URL) == 2
    assert load("--rate", "2", "--header", "X-Api-Key", target=URL) == 2
    captured = capsys.readouterr()
    assert "sk-123" not in captured.out + captured.err
    words = "--header X-Api-Key=env:X_API_KEY --header 'Authorization=Basic env:KEY' "
    assert words + "--header Accept=text/plain --rate auto" in captured.out
    assert "Did you mean --rate?" in captured.err
    assert "NAME=env:VARIABLE" in captured.err


REFUSED = [
    (("--rate", "0"), "option-invalid", "'0' is not a rate above 0"),
    (("--rate", "5,x"), "option-invalid", "'x' is not a rate above 0"),
    (("--rate", "nan"), "option-invalid", "'nan' is not a rate above 0"),
    (("--rate", "atuo"), "option-invalid", "Did you mean auto"),
    (("--rate", "auto"), "option-conflict", "Give goals: --goal"),
    (("--scenario", "offline", "--arrivals", "constant"), "option-conflict", "has no arrivals"),
    (("--rate", "5", "--scenario", "offline"), "option-conflict", "has no rate"),
    (("--arrivals", "possion"), "option-invalid", "Did you mean poisson"),
    (("--arrivals", "gama"), "option-invalid", "Did you mean gamma:2"),
    (("--arrivals", "gamma:0"), "option-invalid", "a CV from 0.01 to 100"),
    (("--arrivals", "gamma:101"), "option-invalid", "a CV from 0.01 to 100"),
    (("--arrivals", "no such file"), "option-invalid", "or a file"),
    (("--scenario", "offlin"), "option-invalid", "Did you mean: torchgauge load"),
    (("--api", "json"), "option-conflict", "--api fits an endpoint"),
    (("--header", "X=1"), "option-conflict", "--header fits an endpoint"),
    (("--server-pid", "1"), "option-conflict", "--server-pid fits an endpoint"),
    (("--fields", "[1]"), "option-invalid", "it takes a JSON object"),
    (("--form", "file"), "option-invalid", "it takes NAME=VALUE or NAME=@FILE"),
    (("--bearer-env", "NAME"), "option-conflict", "--bearer-env fits an endpoint"),
    (("--tokens", "128"), "option-invalid", "'128' is not tokens in and out"),
    (("--tokens", "1:2"), "option-conflict", "--tokens fits an endpoint"),
    (("--prompts", "p"), "option-conflict", "--prompts fits an endpoint"),
    (("--processes", "0"), "option-invalid", "--processes"),
    (("--goals", "p99<1s"), "option-unknown", "--goal"),
    (("--max-delay", "x"), "option-invalid", "not a number of seconds"),
    (("--format", "layers", "--output-dir", "d"), "format-unfit", "Choose from json"),
    (("-o", "a.junit.xml"), "option-conflict", "Add --threshold"),
    (("--threshold", "goodput:5tokens/s"), "threshold-invalid", "goodput:5requests/s"),
    (("--threshold", "p98:5ms"), "metric-unknown", "Did you mean"),
]


@pytest.mark.parametrize(("arguments", "identity", "text"), REFUSED)
def test_mistakes_are_named_with_what_was_meant(sent, capsys, arguments, identity, text):
    requests = sent(servings.healthy())
    assert load(*arguments) == 2
    told = capsys.readouterr().err
    assert f"[{identity}]" in told
    assert text in told
    assert requests == []


@pytest.mark.parametrize(
    ("target", "arguments", "identity", "text"),
    [
        (URL, ("--tokens", "1:2", "--prompts", "p"), "option-conflict", "all say what is sent"),
        (URL, ("--input", "1x8"), "option-conflict", "--input fits a model"),
        (URL, ("--bearer-env", "sk-123"), "option-invalid", "the name of an environment variable"),
        ("127.0.0.1:8000/x", (), "url-scheme", "Did you mean http://127.0.0.1:8000/x?"),
        ("localhost:8000", (), "url-scheme", "Did you mean http://localhost:8000?"),
        ("ftp://127.0.0.1/x", (), "url-scheme", "http://, https:// or grpc://"),
    ],
)
def test_endpoints_are_named_by_urls(sent, capsys, target, arguments, identity, text):
    sent(servings.streamed())
    assert load(*arguments, target=target) == 2
    told = capsys.readouterr().err
    assert f"[{identity}]" in told
    assert text in told
    assert "sk-123" not in told.replace("usage", "")


def test_it_shows_the_levels_and_what_to_run_next(sent, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")  # a long path is not wrapped
    sent(servings.healthy())
    path = tmp_path / "load.json"
    assert load("--rate", "25,50,75", "--goal", "p99<100ms", "-o", str(path)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "75 requests/s 75.2 75.2" in shown
    assert "--goal 'p99<100ms' --rate auto # the highest rate within the goals" in shown
    # The server batches 8, of which 4 at most came together.
    plan = f"torchgauge capacity {path} --rate 150 --goal 'p99<100ms' --max-batch 4"
    needed = f"{plan} # how many workers"
    assert needed in shown
    assert f"torchgauge report {path} --open # the same as a page" in shown
    assert tg.load(path) == servings.healthy()


def test_a_search_leads_to_a_plan_for_twice_the_capacity(sent, capsys, tmp_path, monkeypatch):
    """It takes what a simulation shows of the goals; the search also tried 150 requests/s."""
    monkeypatch.setenv("COLUMNS", "400")
    found = servings.capacity_found()
    goals = (*found.goals, msgspec.structs.replace(servings.P99, text="mean<9ms"), servings.ERRORS)
    sent(msgspec.structs.replace(found, goals=goals))
    path = tmp_path / "load.json"
    assert load("--rate", "auto", "--goal", "p99<100ms errors<1%", "-o", str(path)) == 0
    command = f"torchgauge capacity {path} --rate 208 --goal 'p99<100ms mean<9ms' --max-batch 4 #"
    assert command in next_commands(capsys)
    sent(msgspec.structs.replace(found, capacity=Capacity(searched=True)))
    assert load("--rate", "auto", "--goal", "p99<100ms", "-o", str(path)) == 0
    assert "torchgauge capacity" not in next_commands(capsys)


def test_a_search_leads_to_the_page(sent, capsys):
    sent(servings.capacity_found())
    assert load("--rate", "auto", "--goal", "p99<100ms", "--max-delay", "5ms") == 0
    shown = " ".join(capsys.readouterr().out.split())
    again = "torchgauge load model.py:make --rate auto --goal 'p99<100ms' --max-delay 5ms"
    assert f"{again} --open # the same as a page" in shown


def test_a_recorded_schedule_is_not_to_be_searched(sent, capsys, tmp_path):
    (tmp_path / "day.txt").write_text("0\n1\n")
    (level, *_) = servings.healthy().levels
    level = msgspec.structs.replace(level, arrivals=Arrivals(kind="file", file="day.txt"))
    sent(servings.serving([level]))
    assert load("--arrivals", str(tmp_path / "day.txt")) == 0
    shown = capsys.readouterr().out
    assert "arrivals of day.txt" in shown
    assert "--rate auto" not in shown


def test_suggested_commands_run_it_the_same_way(sent, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(tmp_path)
    sent(servings.streamed())
    assert load("--rate", "2", "--http2", "--processes", "2", target=URL) == 0
    shown = next_commands(capsys)
    assert f"load {URL} --http2 --processes 2 --rate auto" in shown
    assert f"load {URL} --rate 2 --http2 --processes 2 --open" in shown
    sent(servings.healthy())
    for words in (
        "--provider cuda --optimization basic --custom-ops a.so --custom-ops b.so --trust",
        "--provider gpu --runtime openvino",
    ):
        assert load("--rate", "25", *words.split(), target="m.onnx") == 0
        shown = next_commands(capsys)
        assert all(word in shown for word in words.split())


def test_a_suggested_command_has_every_option_as_it_was_typed(sent, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "600")
    sent(servings.streamed())
    words = shlex.split(
        "--api openai-chat --tokens 12:5 --model a/b --bearer-env KEY --in-flight 7 --for 90s "
        "--timeout 500ms --seed 3 --goal ttft_p95<300ms --max-batch 8 --max-delay 5ms --workers 2 "
        "--arrivals gamma:2 --allow-remote --requests 90"
    )
    assert load("--rate", "2,3", *words, "--json", target=URL) == 0
    capsys.readouterr()
    assert load("--rate=2,3", *words, target=URL) == 0
    search, page = (line.split("#")[0] for line in next_lines(capsys))
    given, again = (
        vars(build(("load",)).parse_args(line)) | {"parser": None}
        for line in (["load", URL, "--rate", "2,3", *words], shlex.split(page)[1:])
    )
    assert again == given | {"open": True}
    assert vars(build(("load",)).parse_args(shlex.split(search)[1:]))["rate"] == "auto"
    assert [word for word in words if word not in shlex.split(search)] == []


def next_lines(capsys):
    """The commands of the report, without the program that begins each."""
    shown = capsys.readouterr().out.split("Next\n")[-1]
    return [line.strip() for line in shown.splitlines() if "torchgauge" in line]


def next_commands(capsys):
    return " ".join(capsys.readouterr().out.split("Next")[-1].split())


def test_what_a_url_holds_is_not_repeated(sent, capsys):
    sent(servings.streamed())
    assert load("--rate", "2", target=URL + "?key=secret") == 0
    captured = capsys.readouterr()
    assert "secret" not in captured.out + captured.err


def test_a_client_that_was_too_slow_is_inconclusive(sent, capsys):
    sent(servings.client_limited())
    assert load("--rate", "100", "--threshold", "p99:1s") == 4
    assert "torchgauge doctor" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (("p99:100ms", "errors:1%"), 0),
        (("p99:30ms",), 3),
        (("throughput:20requests/s", "goodput:20requests/s"), 0),
        (("throughput:70requests/s",), 3),
        (("capacity:50requests/s",), 0),
        (("capacity:500requests/s",), 4),  # it is at least 75
        (("ttft:1s",), 4),
    ],
)
def test_every_level_is_held_to_the_limits(sent, limits, code):
    sent(servings.healthy())
    assert load("--rate", "25,50,75", "--threshold", *limits) == code


def test_loads_of_a_search_above_the_capacity_are_not_held_to_limits(sent, capsys):
    sent(servings.capacity_found())
    assert load("--rate", "auto", "--goal", "p99<100ms", "--threshold", "p99:100ms") == 0
    assert load("--threshold", "capacity:500requests/s") == 3
    sent(searched(searched=False))
    assert load("--rate", "25,50,100,150", "--threshold", "p99:100ms") == 3


def searched(*left_out, **changes):
    """Return a search whose first levels it did not count, at which the client was late."""
    late = msgspec.structs.replace(
        closed_level(), client=ClientLoad(lateness_p99=1.0, limited=True), scenario="server",
        arrivals=Arrivals(kind="closed", users=32),
    )  # fmt: skip
    record = servings.capacity_found()
    others = [msgspec.structs.replace(late, left_out=reason) for reason in left_out]
    capacity = msgspec.structs.replace(record.capacity, **changes)
    return msgspec.structs.replace(record, levels=(*others, *record.levels), capacity=capacity)


def test_levels_that_a_search_does_not_count_decide_nothing(sent):
    arguments = ("--rate", "auto", "--goal", "p99<100ms", "--threshold")
    sent(searched("probe", "late client"))
    assert load(*arguments, "p99:100ms") == 0
    assert load(*arguments, "p99:10us") == 3
    sent(searched("probe", rate=None, interval=None))
    assert load(*arguments, "p99:100ms") == 0  # at the lowest rate
    assert load(*arguments, "p99:1ms") == 3
    assert load(*arguments, "capacity:50requests/s") == 4
    sent(searched("probe", "late client", rate=None, interval=None))
    assert load(*arguments, "p99:100ms") == 0  # four other levels showed no capacity
    sent(searched(*["late client"] * 5, rate=None, interval=None))
    assert load(*arguments, "p99:100ms") == 4
    # A level that is kept, since its goals are far above how late the client was.
    kept = searched("")
    sent(kept)
    assert load("--rate", "auto", "--goal", "p99<100ms") == 0


def test_a_capacity_without_an_interval_is_at_least_that(sent, capsys):
    arguments = ("--rate", "auto", "--goal", "p99<100ms", "--threshold")
    sent(searched(interval=None, rate=80.0))
    assert load(*arguments, "capacity:50requests/s") == 0
    assert load(*arguments, "capacity:90requests/s") == 4
    shown = " ".join(capsys.readouterr().out.split())
    assert "at least 80.0 requests/s" in shown
    assert "without an interval: 6 levels" in shown


@pytest.mark.parametrize(
    ("record", "code"),
    [(servings.interrupted(), 130), (servings.without_levels(), 130), (servings.none_met(), 3)],
)
def test_exit_codes(sent, record, code):
    sent(record)
    assert load() == code


def test_a_missed_goal_ends_with_3_unless_a_search_found_a_rate_within_it(sent):
    healthy, missed = servings.healthy(), servings.none_met()
    assert [level.verdict for level in healthy.levels] == ["met"] * 3
    for levels, searched, rate, code in (
        (healthy.levels, False, 75.0, 0),
        ((*healthy.levels, *missed.levels), False, 75.0, 3),
        ((*healthy.levels, *missed.levels), True, 75.0, 0),
        (missed.levels, True, None, 3),
        ((*healthy.levels, *missed.levels), True, None, 0),  # nothing is known
    ):
        sent(servings.serving(levels, capacity=Capacity(rate=rate, searched=searched)))
        assert load("--rate", "auto" if searched else "25", "--goal", "p99<100ms") == code
    sent(missed)
    assert load("--rate", "150", "--goal", "p99<100ms", "--threshold", "p99:9s") == 3


def test_what_failed_ends_with_1(sent):
    failed = MeasurementWarning(id="server-died", message="It ended.", failed=True)
    sent(msgspec.structs.replace(servings.healthy(), warnings=(failed,)))
    assert load() == 1
    sent(servings.serving([]))
    assert load() == 1


def test_json_fits_the_published_schema(sent, capsys):
    sent(servings.capacity_found())
    assert load("--json", "--threshold", "p99:1s") == 0
    captured = capsys.readouterr()
    jsonschema.validate(json.loads(captured.out), published("serving/1"))
    assert "PASS" in captured.err


@pytest.mark.parametrize(("table", "rows"), [((), 4), (("levels",), 4), (("requests",), 1600)])
def test_tables_are_printed(sent, capsys, table, rows):
    sent(servings.capacity_found())
    assert load("--csv", *table) == 0
    assert len(list(csv.DictReader(io.StringIO(capsys.readouterr().out)))) == rows


def test_every_format_is_written(sent, tmp_path):
    sent(servings.capacity_found())
    forms = "json,text,csv,requests,markdown,openmetrics,junit"
    folder = str(tmp_path)
    assert load("--format", forms, "--output-dir", folder, "--threshold", "p99:9s") == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert {"load.json", "load.csv", "load.requests.csv", "load.md", "load.prom"} <= names
    assert "verdict.junit.xml" in names
