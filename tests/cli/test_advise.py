"""`torchgauge advise` as a user runs it."""

import json
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from torchgauge.cli.main import main

MODEL = """
    import torch
    from torch import nn

    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), torch.ones(2, 8)

    def mean(outputs):
        return outputs.mean()
"""


@pytest.mark.parametrize(
    ("arguments", "id"),
    [
        ([], "target-missing"),
        (["m.py:make", "--loss", "mean"], "option-conflict"),
        (["m.py:make", "--candidates", "compyle"], "candidate-unknown"),
        (["m.py:make", "--metric", "accuracy"], "metric-unknown"),
        (["m.py:make", "--metric", "none.py:accuracy"], "file-missing"),
        (["m.py:make", "--latency-limit", "20"], "option-invalid"),
        (["m.py:make", "--format", "json"], "option-conflict"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_measured(arguments, id, capsys):
    assert main(["advise", *arguments]) == 2
    assert f"[{id}]" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--budget", "0"], ["--budget", "nan"], ["--tolerance", "-1"]])
def test_numbers_that_are_none_are_refused(option):
    assert main(["advise", "m.py:make", *option]) == 2


@pytest.mark.slow
def test_what_is_not_tried_is_listed_with_its_reason(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "advised_net.py").write_text(textwrap.dedent(MODEL))
    arguments = ["advised_net.py:make", "--candidates", "sdpa,fsdp", "--metric"]
    arguments += ["advised_net.py:mean", "--output-dir", "out", "--format", "json,markdown"]
    assert main(["advise", *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["outcome"] for one in found["trials"]] == ["untried", "untried"]
    assert found["target"]["spec"] == "advised_net.py:make"
    assert found["metric"] == "advised_net.py:mean"
    assert found["trials"][1]["how"] == "estimated"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "advice.json", "advice.md"
    ]  # fmt: skip


@pytest.mark.slow
def test_ctrl_c_leaves_what_was_found_and_no_process(tmp_path):
    (tmp_path / "advised_net.py").write_text(textwrap.dedent(MODEL))
    arguments = ["advised_net.py:make", "--candidates", "sdpa,inference-mode,threads-one", "--json"]
    command = [sys.executable, "-m", "torchgauge", "advise", *arguments]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as run:
        process = psutil.Process(run.pid)
        # The server and the first four processes that wait: the look and a check came before them.
        while len(children := process.children(recursive=True)) < 5:
            assert run.poll() is None
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        out, _ = run.communicate(timeout=1200)
    assert run.returncode == 130
    found = json.loads(out)
    assert found["interrupted"]
    assert {one["id"]: one["outcome"] for one in found["trials"]}["inference-mode"] == "untried"
    assert not [one for one in children if one.is_running()]
