"""`torchgauge gate` as a user and a CI run it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import msgspec
import pytest
from tests.support import records

from torchgauge.api import gates, profiles
from torchgauge.cli.main import main
from torchgauge.errors import InputError
from torchgauge.gates import builds as target_gate
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.verdict import Verdict

MODEL = """
    import torch
    from torch import nn

    class Slow(nn.Linear):
        def forward(self, x):
            {extra}
            return super().forward(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(256, {width})
            self.second = Slow({width}, 256)
            self.third = nn.Linear(256, 64)

        def forward(self, x):
            return self.third(torch.relu(self.second(torch.relu(self.first(x)))))

    def make():
        return Net().eval(), torch.randn(256, 256)
"""


def write(folder, extra="pass", width=256):
    (folder / "gated_net.py").write_text(textwrap.dedent(MODEL).format(extra=extra, width=width))


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path / "state"))


@pytest.mark.parametrize(
    ("arguments", "id"),
    [
        (["m.py:make"], "option-conflict"),
        (["m.py:make", "--base-ref", "main", "--base-target", "m.py:other"], "option-conflict"),
        (["m.py:make", "--calibrate", "--baseline", "run.json"], "option-conflict"),
        (["m.py:make", "--base-ref", "main", "--loss", "mean"], "option-conflict"),
        (["m.py:make", "--base-ref", "main", "--metric", "latencyy"], "metric-unknown"),
        (["m.py:make", "--base-ref", "main", "--tolerance", "latency:5"], "threshold-invalid"),
        (["m.py:make", "--base-ref", "main", "--threshold", "latency:5"], "threshold-invalid"),
        (["m.py:make", "--base-ref", "main", "--blocks", "2"], "option-invalid"),
        (["m.py:make", "--baseline", "none.json"], "file-missing"),
        (["m.py:make", "--base-ref", "main", "--format", "json"], "option-conflict"),
        (
            ["m.py:make", "--base-ref", "main", "--format", "speedscope", "--output-dir", "."],
            "format-unfit",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_measured(arguments, id, capsys):
    assert main(["gate", *arguments]) == 2
    assert f"[{id}]" in capsys.readouterr().err


SAVED = Verdict(outcome="fail", rulings=())


@pytest.mark.parametrize("form", [["--json"], []])
def test_a_disk_that_fills_up_meanwhile_costs_no_verdict(tmp_path, monkeypatch, capsys, form):
    out = tmp_path / "out"

    def fills(*_, **__):
        out.rmdir()
        out.touch()
        return SAVED

    monkeypatch.setattr(gates, "gate_targets", fills)
    arguments = ["gate", "m.py:make", "--base-ref", "main", "--output-dir", str(out), *form]
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert "[output-unwritable]" in said.err
    if form:
        assert json.loads(said.out)["outcome"] == "fail"
    else:
        assert said.out.startswith("✗ FAIL")


FAILED = MeasurementWarning(id="forward-raised", message="It raised.", failed=True, traceback="T\n")


@pytest.mark.parametrize(
    ("outcome", "interrupted", "code"),
    [("inconclusive", False, 1), ("pass", False, 0), ("fail", False, 3), ("pass", True, 130)],
)
def test_a_saved_run_against_a_broken_model_is_a_failure(
    tmp_path, monkeypatch, capsys, outcome, interrupted, code
):
    run = records.profile().save(tmp_path / "run.json")
    measured = msgspec.structs.replace(
        records.profile(), warnings=(FAILED,), interrupted=interrupted
    )
    verdict = msgspec.structs.replace(SAVED, outcome=outcome)
    monkeypatch.setattr(profiles, "profile_request", lambda *_, **__: measured)
    monkeypatch.setattr(gates, "gate_records", lambda *_: verdict)
    assert main(["gate", "m.py:make", "--baseline", str(run)]) == code
    said = capsys.readouterr()
    assert said.err.startswith("T\n")
    assert "The current build: It raised." in said.out
    assert ("[interrupted]" in said.out) == interrupted


@pytest.fixture
def default_signals():
    """Nobody ignores them, as nohup does."""
    known = {
        number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    yield
    for number, handler in known.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_cancelled_job_ends_as_by_ctrl_c(default_signals, monkeypatch, sent):
    left = []

    def cancelled(*_, **__):
        try:
            signal.raise_signal(sent)
            time.sleep(10)
        finally:
            left.append("the work tree")
        return SAVED

    monkeypatch.setattr(gates, "gate_targets", cancelled)
    assert main(["gate", "m.py:make", "--base-ref", "main"]) == 130
    assert left == ["the work tree"]
    assert signal.getsignal(sent) is signal.SIG_DFL


def test_a_job_that_ignores_ctrl_c_ends_by_sigterm(monkeypatch):
    monkeypatch.setattr(gates, "gate_targets", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert main(["gate", "m.py:make", "--base-ref", "main"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_revision_that_is_not_there_is_bad_input(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    git(tmp_path, "init", "--quiet")
    assert main(["gate", "--base-ref", "nowhere", "gated_net.py:make", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["id"] == "ref-unknown"


def git(folder, *arguments):
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    write(folder)
    commit(folder, "a model")
    git(folder, "checkout", "--quiet", "-b", "work")
    monkeypatch.chdir(folder)
    return folder


def test_a_base_that_fails_says_what_was_not_checked_out(repository, monkeypatch, capsys):
    part = repository.parent / "part"
    git(repository.parent, "init", "--quiet", str(part))
    (part / "lib.py").write_text("")
    commit(part, "a part")
    allowed = ("-c", "protocol.file.allow=always")
    git(repository, *allowed, "submodule", "--quiet", "add", str(part), "part")
    commit(repository, "with a part")

    def fails(*_):
        raise InputError("No module named 'lib'.", id="factory-raised", cause="Its import failed.")

    monkeypatch.setattr(target_gate, "gate_builds", fails)
    assert main(["gate", "--base-ref", "HEAD", "gated_net.py:make"]) == 2
    said = capsys.readouterr().err
    assert "Its import failed. The base has no submodules: part not checked out there." in said


def commit(folder, message):
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", message)


def gate(folder, *arguments):
    """Gate HEAD against main as CI does: in a process of its own; return exit code and verdict."""
    command = [sys.executable, "-m", "torchgauge", "gate", "--base-ref", "main", "--json"]
    done = subprocess.run(
        [*command, *arguments, "gated_net.py:make"],
        cwd=folder, capture_output=True, text=True, timeout=1800, env=QUIET,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


WORKTREES = "worktrees"
# Threads that wait for each other suffer most from whatever else runs beside the tests.
QUIET = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
def test_a_good_commit_does_not_fail(repository):
    (repository / "README").write_text("words")
    commit(repository, "words")
    code, verdict = gate(repository, "--blocks", "4", "--tolerance", "latency:10%:40%")
    assert code in (0, 4)
    assert verdict["outcome"] in ("pass", "inconclusive")
    assert len(verdict["blocks"]) in (4, 8)
    assert not list((repository / ".git" / WORKTREES).glob("*"))


@pytest.mark.slow
def test_a_slow_commit_fails_and_names_the_layer(repository):
    write(repository, extra="sum(i * i for i in range(40_000))")
    commit(repository, "slower")
    code, verdict = gate(repository, "--blocks", "5")
    assert code == 3, verdict["rulings"]
    assert verdict["outcome"] == "fail"
    assert verdict["regressed_layers"][0].startswith("second (Slow) +")
    assert "not proven" not in verdict["regressed_layers"][0]
    failed = [one["metric"] for one in verdict["rulings"] if one["outcome"] == "fail"]
    assert failed == ["latency"]


@pytest.mark.slow
def test_a_commit_with_more_work_fails_at_once_without_timing(repository):
    write(repository, width=320)
    commit(repository, "wider")
    code, verdict = gate(repository)
    assert code == 3
    assert verdict["blocks"] == []
    failed = {one["metric"] for one in verdict["rulings"] if one["outcome"] == "fail"}
    assert {"flops", "params"} <= failed
    assert any("first" in one for one in verdict["regressed_layers"])


@pytest.mark.slow
def test_a_calibration_is_kept_and_told(repository, capsys):
    arguments = ["gate", "--calibrate", "gated_net.py:make", "--blocks", "3"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "3 A/A blocks" in said
    assert "needs 3 sessions" in said
    kept = json.loads(Path(os.environ["TORCHGAUGE_STATE"], "calibration.json").read_text())
    (runs,) = kept["machines"].values()
    assert runs[0]["workload"].startswith("gated_net.py:make 0=256x256 cpu")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="orphans are found in /proc")
def test_ctrl_c_gives_a_verdict_and_a_kill_leaves_no_process(repository):
    import psutil

    write(repository, extra="sum(i * i for i in range(1_000))")
    command = [sys.executable, "-m", "torchgauge", "gate", "--base-ref", "main", "--json",
               "--metric", "latency", "gated_net.py:make"]  # fmt: skip
    ends = ((signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9))
    for sent, code in ends:
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as gating:
            children = _four_children(gating.pid)
            gating.send_signal(sent)
            said, _ = gating.communicate(timeout=600)
        assert gating.returncode == code
        if code == 130:
            assert json.loads(said)["outcome"] == "inconclusive"
            assert not list((repository / ".git" / WORKTREES).glob("*"))
        _, alive = psutil.wait_procs(children, timeout=120)
        assert alive == []


def _four_children(process):
    import psutil

    deadline = time.monotonic() + 1800
    while time.monotonic() < deadline:
        children = psutil.Process(process).children(recursive=True)
        with contextlib.suppress(psutil.Error):  # one ended meanwhile
            if sum(child.cmdline()[-1:] == ["wait"] for child in children) == 4:
                return children
        time.sleep(0.1)
    raise AssertionError("The four processes of a block never came.")
