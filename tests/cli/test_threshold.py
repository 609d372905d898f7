"""`profile --threshold`: what is read, judged, written and told; the measuring is replaced.

A few runs are whole: the command of COMPATIBILITY on a saved model, and Ctrl-C's kin.
"""

import json
import re

import junitparser
import pytest
from tests.support import exported_records, records

import torchgauge as tg
from torchgauge.api import profiles
from torchgauge.cli.main import main
from torchgauge.records.record import MeasurementWarning

MODEL = """
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU()), torch.ones(2, 8)

def broken():
    return nn.Linear(4, 4), torch.ones(1, 5)
"""
FAILED = MeasurementWarning(id="out-of-memory", message="M.", probe="memory", failed=True)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "mymodel.py"
    path.write_text(MODEL)
    return f"{path}:make"


@pytest.fixture
def measured(monkeypatch):
    """Let profiles cost nothing: a record of 10 ms, 200 samples/s, 100 parameters, 1,000 B."""
    asked = []

    def profile(request, latency, timeline):
        asked.append((request, latency, timeline))
        return measured.record

    measured = type("Measured", (), {"asked": asked, "record": records.profile()})()
    monkeypatch.setattr(profiles, "profile_request", profile)
    return measured


def error(capsys):
    return json.loads(capsys.readouterr().out)["error"]


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (["latency:100ms", "throughput:100samples/s"], 0),
        (["latency:100ms", "throughput:1000samples/s"], 3),
        (["latency:9ms", "memory:2GB"], 3),
        (["params:100"], 0),
        (["flops:4G"], 4),  # not counted in this record
        (["flops:4G", "latency:9ms"], 3),
        (["latency:10ms"], 0),
    ],
)
def test_limits_decide_the_exit_code(measured, capsys, limits, code):
    assert main(["profile", "m.py:make", "--threshold", *limits]) == code
    said = capsys.readouterr().out
    assert {0: "✓ PASS", 3: "✗ FAIL", 4: "? INCONCLUSIVE"}[code] in said
    for limit in limits:
        assert said.count(f" {limit.partition(':')[0]} ") >= 1


def test_a_line_for_each_broken_limit(measured, capsys):
    limits = ["latency:9ms", "params:99", "memory:1kB", "throughput:1000samples/s"]
    main(["profile", "m.py:make", "--threshold", *limits])
    lines = capsys.readouterr().out.splitlines()
    broken = [line.split()[1] for line in lines if line.startswith("✗ ")]
    assert broken == ["FAIL", "latency", "params", "throughput"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["m.py:make", "--threshold", "latency:1s", "params:1M"],
        ["--model-path", "m.py:make", "--threshold", "latency:1s", "params:1M"],
        ["--threshold", "latency:1s", "params:1M", "--model-path", "m.py:make"],
        ["--threshold", "latency:1s", "params:1M", "m.py:make"],
        ["--threshold", "latency:1s", "--threshold", "params:1M", "m.py:make"],
        ["--threshold", "latency:1s", "params:1M", "--", "m.py:make"],
        ["--threshold", "latency:1s", "--threshold", "params:1M", "--json", "m.py:make"],
    ],
)
def test_target_and_limits_in_every_order(measured, arguments):
    assert main(["profile", *arguments]) == 0
    assert measured.asked[0][0].spec == "m.py:make"


@pytest.mark.parametrize("target", ["models/latest", "torchvision:resnet18", "hf:bert?layers=2"])
def test_the_last_value_that_names_no_metric_is_the_target(measured, target):
    assert main(["profile", "--threshold", "latency:1s", target]) == 0
    assert measured.asked[0][0].spec == target


@pytest.mark.parametrize(
    ("arguments", "id"),
    [
        ([], "target-missing"),
        (["--threshold", "latency:1s"], "target-missing"),
        (["m.py:make", "--model-path", "m.py:make"], "option-conflict"),
        (["m.py:make", "--threshold", "latncy:1s"], "metric-unknown"),
        (["--threshold", "latncy:1s", "m.py:make"], "metric-unknown"),
        (["--threshold", "latncy:1s"], "metric-unknown"),
        (["m.py:make", "--threshold", "latency:1"], "threshold-invalid"),
        (["m.py:make", "--threshold", "latency:1s", "models/latest"], "metric-unknown"),
        (["m.py:make", "--format", "junit", "--output-dir", "out"], "option-conflict"),
    ],
)
def test_what_cannot_be_meant_ends_with_2_before_measuring(measured, capsys, arguments, id):
    assert main(["profile", "--json", *arguments]) == 2
    found = error(capsys)
    assert found["id"] == id
    assert found["remedy"]
    assert measured.asked == []


def test_a_misspelt_metric_is_told_the_right_one(measured, capsys):
    main(["profile", "--json", "--threshold", "latncy:1s", "m.py:make"])
    assert error(capsys)["remedy"] == "Did you mean latency?"


def test_the_last_value_may_be_a_path_with_a_colon(measured, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run:12").mkdir()
    assert main(["profile", "--threshold", "latency:1s", "run:12"]) == 0
    assert measured.asked[0][0].spec == "run:12"


def test_a_percentile_is_sampled_for(measured):
    main(["profile", "m.py:make", "--threshold", "p95:1s", "p99:1s", "latency:1s"])
    main(["profile", "m.py:make", "--threshold", "latency:1s"])
    main(["profile", "m.py:make"])
    assert [latency.independent for _, latency, _ in measured.asked] == [368, 0, 0]


def test_files_of_both_record_and_verdict(measured, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["m.py:make", "--threshold", "latency:9ms", "--output-dir", str(out)]
    assert main(["profile", *arguments]) == 3
    assert sorted(path.name for path in out.iterdir()) == ["profile.json", "verdict.json"]
    assert tg.load(out / "verdict.json").outcome == "fail"
    forms = "json,csv,markdown,junit,text,openmetrics,benchmark,benchmark-bigger"
    assert main(["profile", *arguments, "--format", forms]) == 3
    assert {path.name for path in out.iterdir()} == {
        "profile.json", "profile.csv", "profile.md", "profile.txt", "profile.prom",
        "profile.benchmark.json", "profile.benchmark-bigger.json",
        "verdict.json", "verdict.csv", "verdict.md", "verdict.txt", "verdict.junit.xml",
    }  # fmt: skip
    suite = next(iter(junitparser.JUnitXml.fromfile(str(out / "verdict.junit.xml"))))
    assert (suite.tests, suite.failures) == (1, 1)
    assert f"Wrote {out / 'verdict.junit.xml'}" in capsys.readouterr().err


def test_junit_alone_still_leaves_the_record(measured, tmp_path):
    main(["profile", "m.py:make", "--threshold", "latency:9ms", "--format", "junit",
          "--output-dir", str(tmp_path)])  # fmt: skip
    assert {"profile.json", "verdict.junit.xml"} == {path.name for path in tmp_path.iterdir()}


def test_a_format_that_the_record_cannot_have_keeps_the_verdict(measured, tmp_path, capsys):
    arguments = ["--threshold", "latency:9ms", "--format", "layers", "--output-dir", str(tmp_path)]
    assert main(["profile", "m.py:make", *arguments]) == 2  # the record has no tree
    said = capsys.readouterr()
    assert "✗ FAIL" in said.out
    assert "[no-tree]" in said.err


def test_json_on_standard_output_is_the_record_alone(measured, capsys):
    assert main(["profile", "m.py:make", "--threshold", "latency:9ms", "--json"]) == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["schema"] == "torchgauge.profile/1"
    assert "✗ latency" in said.err


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"warnings": (FAILED,)}, 1),
        ({"interrupted": True}, 130),
        ({"interrupted": True, "warnings": (FAILED,)}, 130),
    ],
)
def test_a_run_that_is_not_whole_says_so_first(measured, capsys, changes, code):
    measured.record = records.profile(**changes)
    for limit in ("latency:9ms", "flops:4G", "latency:1s"):
        assert main(["profile", "m.py:make", "--threshold", limit]) == code
        assert f" {limit.partition(':')[0]} " in capsys.readouterr().out


def test_a_workflow_gets_a_summary_and_annotations(measured, tmp_path, monkeypatch, capsys):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    target = exported_records.target(spec="nets/my model.py:make")
    measured.record = records.profile(target=target)
    assert main(["profile", "x", "--threshold", "latency:9ms", "params:1M", "--json"]) == 3
    annotations = [line for line in capsys.readouterr().err.splitlines() if line.startswith("::")]
    assert len(annotations) == 1
    assert annotations[0].startswith(
        "::error file=nets/my model.py,title=torchgauge%3A latency::latency: fail, 10.00 ms"
    )
    assert summary.read_text().startswith("before\n### ✗ FAIL: latency (1 of 2)")


def test_a_summary_that_cannot_be_written_changes_nothing(measured, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    assert main(["profile", "x", "--threshold", "latency:9ms"]) == 3
    assert "summary was not written" in capsys.readouterr().err


def test_outside_of_a_workflow_nothing_is_annotated(measured, monkeypatch, capsys):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    main(["profile", "x", "--threshold", "latency:9ms"])
    assert "::" not in capsys.readouterr().err


@pytest.mark.thorough
def test_the_users_own_command_on_a_saved_model(tmp_path, monkeypatch, capsys):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        vocab_size=100, max_position_embeddings=64,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "models/latest")
    monkeypatch.chdir(tmp_path)
    theirs = ["profile", "--model-path", "models/latest", "--output-dir", "profiling_results",
              "--threshold", "latency:100s", "throughput:100000000samples/s"]  # fmt: skip
    quick = ["--iterations", "5", "--warmup", "1", "--detail", "summary"]
    assert main([*theirs, *quick]) == 3
    said = capsys.readouterr().out
    broken = [line.split()[1] for line in said.splitlines() if line.startswith("✗")]
    assert broken == ["FAIL", "throughput"]
    profile = tg.load(tmp_path / "profiling_results/profile.json")
    assert profile.target.spec == "models/latest"
    assert tg.load(tmp_path / "profiling_results/verdict.json").outcome == "fail"


@pytest.mark.slow
def test_a_forward_that_raises_is_1_and_its_latency_is_unknown(model, tmp_path, capsys):
    target = model.replace(":make", ":broken")
    limits = ["latency:1s", "params:1"]
    code = main(["profile", target, "--threshold", *limits, "--output-dir", str(tmp_path / "out")])
    assert code == 1
    outcomes = [one.outcome for one in tg.load(tmp_path / "out/verdict.json").rulings]
    assert outcomes == ["inconclusive", "fail"]
    assert tg.load(tmp_path / "out/profile.json").latency is None


@pytest.mark.slow
def test_a_percentile_limit_extends_a_real_sampling(model, tmp_path):
    common = ["--detail", "summary", "--json", "--output-dir"]
    limit = ["--threshold", "p99:1s"]
    assert main(["profile", model, *common, str(tmp_path / "few"), "--iterations", "5"]) == 0
    assert main(["profile", model, *limit, "--budget", "2", *common, str(tmp_path / "more")]) == 0
    few, more = (tg.load(tmp_path / name / "profile.json").latency for name in ("few", "more"))
    assert few.percentile_intervals["p99"] is None
    assert sum(len(run.samples) for run in more.processes) > 5
    ruling = tg.load(tmp_path / "more" / "verdict.json").rulings[0]
    if more.percentile_intervals["p99"] is not None:
        assert ruling.reason == ""
    else:  # a machine that is too busy for so many samples within the budget
        assert re.search("independent samples of the 368|too few of its samples", ruling.reason)
