"""`torchgauge capacity` from its arguments to its files and exit codes."""

import contextlib
import csv
import io
import json

import jsonschema
import msgspec
import pytest
from tests.support import capacity_worlds as worlds
from tests.support import serving_pages
from tests.support.published_schemas import published

import torchgauge as tg
from torchgauge.analyze.capacity import prediction
from torchgauge.analyze.capacity import server_model as load_checks
from torchgauge.analyze.capacity import server_model as simulation_error
from torchgauge.cli.main import main
from torchgauge.errors import InputError
from torchgauge.records import codec

GOAL = ("--goal", "p99<50ms")


@pytest.fixture(scope="module", autouse=True)
def short_simulations():
    """How exact figures are is tested beside the simulation."""
    with pytest.MonkeyPatch.context() as patched:
        for name in ("FEWEST_REQUESTS", "MOST_REQUESTS", "FEWEST_RESAMPLED", "MOST_RESAMPLED"):
            patched.setattr(prediction, name, 8_000)
        patched.setattr(prediction, "RESAMPLES", 25)
        patched.setattr(simulation_error, "REFERENCE", 100_000)
        patched.setattr(load_checks, "RESAMPLES", 40)
        yield


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """A record of load on a worker that takes 10 ms a request."""
    return str(worlds.load_record("fifo", 60).save(tmp_path_factory.mktemp("load") / "load.json"))


@pytest.fixture(scope="module")
def planned(record, tmp_path_factory):
    """The folder of a plan's files, and what the command printed."""
    folder = tmp_path_factory.mktemp("plan")
    paths = [folder / name for name in ("plan.json", "plan.csv", "plan.md", "plan.html")]
    outputs = [word for path in paths for word in ("-o", str(path))]
    options = ["--rate", "150", *GOAL, "--price", "3", *outputs]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["capacity", record, *options]) == 0
    return folder, out.getvalue()


@pytest.mark.thorough
def test_summary(planned):
    _, shown = planned
    assert "one queue, workers take single requests" in shown
    assert "2 of 2 measurements lie in their interval" in shown
    assert "150 requests/s, Poisson arrivals" in shown
    assert "queue grows without end" in shown  # of one worker


def test_files(planned):
    folder, _ = planned
    plan = tg.load(folder / "plan.json")
    text = (folder / "plan.json").read_text()
    jsonschema.validate(json.loads(text), published("torchgauge.capacity/1"))
    rows = list(csv.DictReader(io.StringIO((folder / "plan.csv").read_text())))
    assert [int(row["workers"]) for row in rows] == [s.workers for s in plan.settings]
    assert [row["needed"] for row in rows].count("True") == 1
    (row,) = (row for row in rows if row["needed"] == "True")
    highest = plan.needed.latency.percentile(0.99)
    assert float(row["latency_p99_s"]) == highest.value
    assert float(row["latency_p99_high_s"]) == highest.interval.high
    assert "goals: latency p99" in (folder / "plan.md").read_text()
    assert "<html" in (folder / "plan.html").read_text()


@pytest.mark.thorough
def test_function_gives_the_same(record, planned):
    plan = tg.plan_capacity(record, rate=150, goals="p99<50ms", price=3)
    assert plan == tg.load(planned[0] / "plan.json")


def test_report_shows_it_again(planned, capsys):
    folder, first = planned
    assert main(["report", str(folder / "plan.json")]) == 0
    again = capsys.readouterr().out
    assert again.strip() in first


def test_recorded_schedule(record, tmp_path, capsys):
    schedule = tmp_path / "day.txt"
    schedule.write_text("# a day\n0\n0.01\n0.5\n\n0.6\n")
    options = ["capacity", record, "--arrivals", str(schedule), "--json"]
    assert main(options) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["arrivals"]["rate"] == pytest.approx(5.0)
    assert plan["arrivals"]["file"] == "day.txt"


@pytest.mark.thorough
def test_none_is_enough(record, capsys):
    goals = ("--goal", "p99<1ms", "--goal", "p50<1s")
    assert main(["capacity", record, "--rate", "10", *goals]) == 3
    assert "No number of workers meets the goals" in capsys.readouterr().out


def test_refused(tmp_path, capsys):
    path = str(worlds.load_record("lifo", 70).save(tmp_path / "lifo.json"))
    assert main(["capacity", path, "--rate", "50", *GOAL]) == 4
    shown = " ".join(capsys.readouterr().out.split())
    assert "Nothing is predicted." in shown
    assert "does not keep their order" in shown


@pytest.mark.parametrize(
    ("options", "id"),
    [
        ([], "rate-missing"),
        (["--rate", "0"], "usage"),
        (["--rate", "5", "--goal", "p99<100parsecs"], "goal-invalid"),
        (["--rate", "5", "--goal", "errors<1%"], "goal-unfit"),
        (["--rate", "5", "--max-batch", "64"], "batch-unmeasured"),
        (["--rate", "5", "--headroom", "2"], "usage"),
        (["--rate", "5", "--tokens", "128"], "usage"),
        (["--rate", "5", "--arrivals", "nowhere.txt"], "option-invalid"),
        (["--rate", "5", "--arrivals", "gamma:0"], "option-invalid"),
        (["--rate", "5", "--output-dir", "x", "--format", "folded"], "format-unfit"),
    ],
)
def test_bad_input(record, options, id, capsys):
    assert main(["capacity", record, *options]) == 2
    message = capsys.readouterr().err
    assert f"[{id}]" in message or id == "usage"


def test_schedule_with_a_word(record, tmp_path, capsys):
    schedule = tmp_path / "day.txt"
    schedule.write_text("0\nnoon\n")
    assert main(["capacity", record, "--arrivals", str(schedule)]) == 2
    assert "[arrivals-invalid]" in capsys.readouterr().err


def test_record_without_service_times(tmp_path, capsys):
    plan = serving_pages.plan().save(tmp_path / "plan.json")
    assert main(["capacity", str(plan), "--rate", "5"]) == 2
    assert "[not-plannable]" in capsys.readouterr().err


@pytest.mark.thorough
def test_verification_sends_the_planned_load(record, monkeypatch, capsys):
    loads = []

    def measured(request, **settings):
        loads.append((request.spec, settings["rate"], settings["workers"], settings["max_batch"]))
        return worlds.load_record("fifo", 60, seed=8)

    monkeypatch.setattr("torchgauge.api.servings.serving_request", measured)
    options = ["capacity", record, "--rate", "60", "--verify", "model.py", "--json"]
    assert main(options) == 0
    plan = json.loads(capsys.readouterr().out)
    ((target, rate, workers, batch),) = loads
    assert (target, batch) == ("model.py", 1)
    assert rate == pytest.approx(60 * workers / plan["needed"]["workers"])
    assert [check["figure"] for check in plan["checks"]] == ["latency p50", "latency p99"] * 2


def test_verification_sends_a_recorded_schedule(record, monkeypatch, tmp_path):
    times = tmp_path / "times.txt"
    times.write_text("0\n0.01\n0.02\n0.1\n")
    sent = []

    def measured(_, **settings):
        sent.append((settings["arrivals"], settings["rate"]))
        return worlds.load_record("fifo", 60, seed=8)

    monkeypatch.setattr("torchgauge.api.servings.serving_request", measured)
    main(["capacity", record, "--arrivals", str(times), "--workers", "1", "--verify", "model.py"])
    assert sent == [(str(times), 30.0)]


@pytest.mark.thorough
def test_verification_shows_another_server(record, monkeypatch, capsys):
    other = worlds.load_record("lifo", 70)
    monkeypatch.setattr("torchgauge.api.servings.serving_request", lambda *_, **__: other)
    assert main(["capacity", record, "--rate", "60", "--verify", "model.py"]) == 4
    assert "does not keep" in " ".join(capsys.readouterr().out.split())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("ending", "code"), [(InputError("Gone.", id="file-missing"), 1), (KeyboardInterrupt(), 130)]
)
def test_verification_that_fails_keeps_the_plan(record, ending, code, monkeypatch, tmp_path):
    def failing(*_, **__):
        raise ending

    monkeypatch.setattr("torchgauge.api.servings.serving_request", failing)
    path = tmp_path / "plan.json"
    options = ["capacity", record, "--rate", "60", "--verify", "model.py:make", "-o", str(path)]
    assert main(options) == code
    assert tg.load(path).needed is not None


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        (["--body", "r.json"], "--body"),
        (["--verify", "model.py:make", "--api", "json"], "--api"),
        (["--verify", "http://127.0.0.1:9/", "--input", "1x3"], "--input"),
    ],
)
def test_options_of_another_load(record, options, flag, capsys):
    assert main(["capacity", record, "--rate", "60", *options]) == 2
    shown = capsys.readouterr().err
    assert "[option-conflict]" in shown
    assert flag in shown


def test_hand_made_plans_are_shown():
    plan = serving_pages.plan()
    assert "queue grows" in str(plan)
    refused = msgspec.structs.replace(plan, refused="LIFO.", settings=(), needed=None)
    assert "Nothing is predicted. LIFO." in str(refused)
    assert codec.decode(codec.encode(plan)) == plan


def test_plan_with_a_setting_of_no_workers_is_refused():
    plan = serving_pages.plan()
    broken = msgspec.structs.replace(plan, needed=msgspec.structs.replace(plan.needed, workers=0))
    with pytest.raises(tg.RecordError) as error:
        codec.decode(codec.encode(broken))
    assert error.value.id == "record-invalid"
