"""`torchgauge sweep` from its arguments to its files and exit codes; cells by a stand-in."""

import json
import subprocess
import sys

import jsonschema
import pytest
from tests.support.published_schemas import published
from tests.support.sweep_fakes import FakeExecutor
from tests.support.sweeps import cell, ended

import torchgauge as tg
from torchgauge.cli.main import main


def steady(settings, _number):
    batch = settings.batch or 1
    if settings.precision == "tf32":
        return ended("unsupported", "TF32 is of GPUs")
    return cell(batch, 0.01 * batch**0.5, 1000 + 100 * batch)


@pytest.fixture
def by(monkeypatch):
    """Have cells answered by a function; returns what was asked for."""
    used = []

    def use(of=steady):
        def named(name):
            used.append((name, FakeExecutor(of)))
            return used[-1][1]

        monkeypatch.setattr("torchgauge.sweeps.grid_sweep.named_executor", named)
        return used

    return use


def sweep(*arguments):
    return main(["sweep", "model.py:make", *arguments])


def test_it_shows_the_cells_and_what_is_best(by, capsys):
    used = by()
    assert sweep("--batch", "1,4", "--precision", "fp32,tf32", "--threads", "1") == 0
    shown = capsys.readouterr().out
    assert "batch 1, 4 × precision fp32, tf32 × threads 1" in shown
    assert "throughput     batch 4, fp32: 200 samples/s" in shown
    assert "unsupported    tf32, batches 1, 4: TF32 is of GPUs" in shown
    ((name, executor),) = used
    assert name == "process"
    assert [(s.batch, s.precision, s.threads) for s, _ in executor.asked] == [
        (1, "fp32", 1), (1, "tf32", 1), (4, "fp32", 1),
    ]  # fmt: skip


def test_its_json_is_a_valid_record(by, capsys):
    by()
    assert sweep("--batch", "1,2,4", "--where", "latency<15ms", "--json") == 0
    content = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(published("torchgauge.sweep/1")).validate(content)
    assert [one["cell"] for one in content["best"]] == [0, 1, 0]


def test_files_are_written_and_the_journal_goes(by, tmp_path, capsys):
    by()
    out = tmp_path / "out"
    forms = ["--format", "json,csv,markdown,text,openmetrics"]
    assert sweep("--batch", "1,2", "--output-dir", str(out), *forms) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "sweep.csv", "sweep.json", "sweep.md", "sweep.prom", "sweep.txt",
    ]  # fmt: skip
    record = tg.load(out / "sweep.json")
    assert (out / "sweep.csv").read_text() == record.to_csv()
    assert (out / "sweep.txt").read_text() == f"{record}\n"
    assert main(["report", str(out / "sweep.json")]) == 0
    assert capsys.readouterr().out.endswith(f"{record}\n")


def test_ctrl_c_keeps_the_journal_and_the_next_run_goes_on(by, tmp_path):
    def dies(settings, number):
        return KeyboardInterrupt() if settings.batch == 2 else steady(settings, number)

    by(dies)
    arguments = ["--batch", "1,2", "--output-dir", str(tmp_path)]
    assert sweep(*arguments) == 130
    assert (tmp_path / "sweep.cells.jsonl").exists()
    used = by()
    assert sweep(*arguments) == 0
    assert [settings.batch for settings, _ in used[-1][1].asked] == [2]
    assert not (tmp_path / "sweep.cells.jsonl").exists()


def test_a_file_that_is_named_stays(by, tmp_path):
    used, path = by(), tmp_path / "cells.jsonl"
    assert sweep("--batch", "1,2", "--resume", str(path)) == 0
    assert path.exists()
    assert sweep("--batch", "1,2", "--resume", str(path)) == 0
    assert used[-1][1].asked == []
    assert sweep("--batch", "1,2", "--resume", str(path), "--iterations", "9") == 2


@pytest.mark.parametrize(
    ("arguments", "of", "code"),
    [
        (["--where", "latency<1ms"], steady, 3),
        (["--where", "latency<1s"], steady, 0),
        (["--where", "memory<1GB"], lambda *_: cell(1, memory=None), 4),
        ([], lambda *_: ended("crashed"), 1),
    ],
)
def test_the_exit_code_says_how_it_ended(arguments, of, code, by):
    by(of)
    assert sweep(*arguments) == code


@pytest.mark.parametrize(
    ("arguments", "id"),
    [
        (["--batch", "1,,2"], "axis-invalid"),
        (["--precision", "fp4"], "axis-invalid"),
        (["--where", "p99<20"], "threshold-invalid"),
        (["--best", "speed"], "metric-unknown"),
        (["--memory-limit", "8"], "option-invalid"),
        (["--format", "csv"], "option-conflict"),
        (["--format", "json,junit", "--output-dir", "out"], "format-unfit"),
    ],
)
def test_what_cannot_be_is_said_with_a_stable_id(arguments, id, by, capsys, tmp_path, monkeypatch):
    used = by()
    monkeypatch.chdir(tmp_path)
    assert sweep(*arguments) == 2
    assert f"[{id}]" in capsys.readouterr().err
    assert not any(executor.asked for _, executor in used)


def test_what_cannot_be_written_is_shown(by, tmp_path, capsys, monkeypatch):
    def full(*_):
        raise tg.InputError("The disk is full.", id="output-unwritable")

    by()
    monkeypatch.setattr("torchgauge.cli.formats.write", full)
    assert sweep("--batch", "1", "--output-dir", str(tmp_path)) == 2
    assert "100 samples/s" in capsys.readouterr().out
    assert (tmp_path / "sweep.cells.jsonl").exists()


def test_options_reach_the_cells(by):
    seen = []

    def of(settings, _number):
        return cell(1)

    used = by(of)
    original = FakeExecutor.submit
    FakeExecutor.submit = lambda self, job: (seen.append(job), original(self, job))[1]
    try:
        assert sweep("--batch", "2", "--memory-limit", "1GiB", "--input", "1x3", "--device", "cpu",
                     "--channels-last", "no", "--seq-len", "8", "--iterations", "7",
                     "--repeats", "2") == 0  # fmt: skip
    finally:
        FakeExecutor.submit = original
    assert len(used[0][1].asked) == 2
    source, options = seen[0].source, seen[0].options
    assert (source.batch, source.memory_limit, source.device) == (2, 2**30, "cpu")
    assert (source.channels_last, source.seq_len) == (False, 8)
    assert source.target.inputs == ("1x3",)
    assert (options.iterations, options.budget) == (7, 10.0)


@pytest.mark.slow
def test_a_tiny_model_end_to_end(tmp_path):
    (tmp_path / "tinymodel.py").write_text(
        "from torch import nn, randn\ndef make(): return nn.Linear(8, 8), randn(1, 8)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "torchgauge", "sweep", f"{tmp_path}/tinymodel.py:make",
         "--batch", "1,2", "--iterations", "5", "--warmup", "1", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    content = json.loads(done.stdout)
    assert [one["status"] for one in content["cells"]] == ["done", "done"]
    jsonschema.Draft202012Validator(published("torchgauge.sweep/1")).validate(content)
