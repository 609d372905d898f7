"""The command line as a user runs it: real child processes for what is about processes."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest
from tests.support.paths import EXAMPLES

import torchgauge as tg
from torchgauge.cli.main import main

MODEL = """
import time
import torch
from torch import nn

class Net(nn.Sequential):
    pass

def make():
    return Net(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.ones(2, 8)

def broken():
    raise ValueError("the factory's own words")

class Wrong(nn.Linear):
    pass

def wrong_shape():
    return Wrong(4, 4), torch.ones(1, 5)

class Slow(nn.Module):
    def forward(self, x):
        import os
        if "CALLS" in os.environ:
            with open(os.environ["CALLS"], "a") as calls:
                calls.write(".")
        time.sleep(0.05)
        return x

def slow():
    return Slow(), torch.ones(1)

class Killed(nn.Module):
    def forward(self, x):
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)

def killed():
    return Killed(), torch.ones(1)

class Talking(nn.Module):
    def forward(self, x):
        print("chatter")
        return x

def talking():
    return Talking(), torch.ones(1)
"""
QUICK = ("--iterations", "5", "--warmup", "1")


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "mymodel.py"
    path.write_text(MODEL)
    return path


def torchgauge(*arguments, **options):
    command = [sys.executable, "-m", "torchgauge", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=1800, **options)


def test_the_main_job(model, tmp_path, capsys):
    out = tmp_path / "results"
    code = main(
        ["profile", f"{model}:make", *QUICK, "--output-dir", str(out), "--format", "json,csv"]
    )
    said = capsys.readouterr()
    assert code == 0
    assert "Net" in said.out
    assert "float32 2×8" in said.out
    assert f"Wrote {out / 'profile.json'}" in said.err
    profile = tg.load(out / "profile.json")
    assert profile.size.parameters == 8 * 16 + 16 + 16 * 4 + 4
    assert len(profile.latency.samples) == 5
    assert profile.memory.peak == sum(profile.memory.parts.values())
    assert (out / "profile.csv").read_text().count("\n") == 2
    assert {p.probe for p in profile.passes} == {
        "loading", "size", "latency", "system", "cost", "memory", "timeline",
        "roofs",
    }  # fmt: skip


@pytest.mark.slow
def test_a_reader_that_goes_away_loses_nothing(model, tmp_path):
    command = [sys.executable, "-m", "torchgauge", "profile", f"{model}:wrong_shape", "--json",
               "--output-dir", str(tmp_path)]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.stdout.close()
        errors = child.stderr.read()
        child.wait(timeout=600)
    assert child.returncode == 1  # of the measurement, not of the pipe
    assert b"BrokenPipe" not in errors
    assert tg.load(tmp_path / "profile.json").size.parameters == 20


@pytest.mark.slow
def test_json_on_standard_output_is_nothing_but_the_record(model):
    done = torchgauge("profile", f"{model}:talking", *QUICK, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["target"]["name"] == "Talking"
    assert "chatter" in done.stderr


@pytest.mark.slow
def test_a_pipe_gets_80_columns_without_codes(model):
    done = torchgauge("profile", f"{model}:make", *QUICK, "--quiet")
    assert "\x1b" not in done.stdout + done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    # On a slow machine a line each five seconds says how far it is.
    assert re.sub(r"^torchgauge: .* · \d+ s.*\n", "", done.stderr, flags=re.MULTILINE) == ""


@pytest.mark.slow
def test_a_terminal_sees_progress_and_colours(model):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "torchgauge", "profile", f"{model}:slow", "--iterations", "30"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as child:
        os.close(theirs)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        child.wait(timeout=600)
    assert b"latency" in seen
    assert b"calls" in seen
    assert b"\x1b[1" in seen


GATED = """
import importlib.abc, pathlib, sys, time

class Gate(importlib.abc.MetaPathFinder):
    "Holds the import of torch until the test has seen that it is told."

    def find_spec(self, name, path=None, target=None):
        if name.startswith("torch."):  # "torch" alone is also looked for where it is not imported
            wait("imported")

def wait(name):
    end = time.monotonic() + 60
    while not pathlib.Path(sys.argv[1], name).exists():
        if time.monotonic() > end:
            sys.exit("nobody was told")
        time.sleep(0.01)

sys.meta_path.insert(0, Gate())
from torchgauge.cli.main import main
sys.exit(main(sys.argv[2:]))
"""
WAITING = """
import __main__
import torch

def make():
    __main__.wait("loaded")
    return torch.nn.Linear(4, 4), torch.ones(1, 4)
"""


@pytest.mark.slow
def test_a_terminal_is_told_before_torch_is_imported_and_while_the_model_is_loaded(tmp_path):
    ours, theirs = pty.openpty()
    target = tmp_path / "waiting.py"
    target.write_text(WAITING)
    command = [sys.executable, "-c", GATED, str(tmp_path), "profile", f"{target}:make", *QUICK]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as child:
        os.close(theirs)
        seen = b""
        try:
            for told, gate in ((b"importing torch", "imported"), (b"loading", "loaded")):
                while told not in seen:  # ends with an OSError where the child ends before
                    seen += os.read(ours, 4096)
                (tmp_path / gate).touch()
            while piece := _read(ours):
                seen += piece
        finally:
            child.kill()
    assert b"Linear" in seen


def _read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""


def test_a_factory_that_raises_shows_the_users_traceback_only(model, capsys):
    assert main(["profile", f"{model}:broken"]) == 2
    said = capsys.readouterr().err
    assert "the factory's own words" in said
    assert "mymodel.py" in said
    assert "src/torchgauge" not in said
    assert "[factory-raised]" in said


def test_a_forward_that_raises_leaves_the_rest_of_the_record(model, tmp_path, capsys):
    out = ["--output-dir", str(tmp_path)]
    assert main(["profile", f"{model}:wrong_shape", *QUICK, *out]) == 1
    said = capsys.readouterr().err
    assert "mat1 and mat2 shapes cannot be multiplied" in said
    assert "src/torchgauge" not in said
    profile = tg.load(tmp_path / "profile.json")
    assert profile.size.parameters == 20
    assert profile.latency is None
    assert [w.id for w in profile.warnings] == ["forward-raised", *["skipped"] * 4]
    assert not profile.complete


@pytest.mark.parametrize(
    ("arguments", "id"),
    [
        (["nosuch"], "target-unknown"),
        (["nosuch.py:make"], "file-missing"),
        (["MODEL:makes"], "factory-missing"),
        (["MODEL:make", "--precision", "fp8"], "precision-unknown"),
        (["MODEL:make", "--precision", "tf32"], "precision-unsupported"),
        (["MODEL:make", "--device", "tpu"], "device-unknown"),
        (["MODEL:make", "--device", "cuda:63"], "device-absent"),
        (["MODEL:make", "--input", "2xx3"], "input-spec"),
        (["MODEL:make", "--weights", "none.pt"], "file-missing"),
        (["MODEL:make", "--iterations", "0"], "option-invalid"),
        (["MODEL:make", "--processes", "0"], "option-invalid"),
        (["MODEL:make", "--budget", "-1"], "option-invalid"),
        (["MODEL:make", "--warmup", "-1"], "option-invalid"),
        (["MODEL:make", "--batch", "0"], "option-invalid"),
        (["MODEL:make", "--format", "csv"], "option-conflict"),
    ],
)
def test_bad_input_ends_with_2_and_a_stable_id(model, capsys, arguments, id):
    arguments = [argument.replace("MODEL", str(model)) for argument in arguments]
    assert main(["profile", *arguments, "--json"]) == 2
    said = capsys.readouterr()
    error = json.loads(said.out)["error"]
    assert error["id"] == id
    assert error["message"]
    assert error["remedy"]
    assert f"[{id}]" in said.err


def test_an_output_folder_that_cannot_be_written_is_found_before_measuring(model, capsys):
    assert main(["profile", f"{model}:broken", "--output-dir", f"{model}/results"]) == 2
    assert "[output-unwritable]" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["profil", "x"], ["profile", "x", "--out", "y"],
                  ["profile", "x", "--format", "xml", "--output-dir", "y"]]
)  # fmt: skip
def test_usage_errors_end_with_2(arguments):
    assert main(arguments) == 2


def test_no_arguments_show_the_help(capsys):
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("usage: torchgauge")


def test_meta_counts_and_runs_nothing(model, capsys):
    assert main(["profile", f"{model}:make", "--device", "meta", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["size"]["parameters"] == 212
    assert record["latency"] is None
    assert [w["id"] for w in record["warnings"]] == ["meta-device"]


@pytest.mark.slow
def test_several_processes_are_kept_apart(model, capsys):
    code = main(["profile", f"{model}:make", "--processes", "3", *QUICK, "--json"])
    record = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [len(p["samples"]) for p in record["latency"]["processes"]] == [6, 6, 6]
    assert record["passes"][2]["process"] == "fresh"
    assert record["latency"]["interval"] is not None


@pytest.mark.slow
def test_a_killed_child_is_named_and_the_rest_is_measured(model, tmp_path):
    # In a child the kill ends the child; this process goes on, and must not run the model itself.
    done = torchgauge("profile", f"{model}:killed", "--processes", "2", "--output-dir", tmp_path)
    assert done.returncode != 0
    assert "SIGKILL" in (tmp_path / "profile.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_what_ends_a_job_keeps_what_was_measured(model, tmp_path, sent):
    command = [sys.executable, "-m", "torchgauge", "profile", f"{model}:slow", "--iterations",
               "10000", "--warmup", "1", "--output-dir", str(tmp_path)]  # fmt: skip
    calls = tmp_path / "calls"
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=os.environ | {"CALLS": str(calls)}, **options) as child:
        while child.poll() is None and (not calls.exists() or calls.stat().st_size < 20):
            time.sleep(0.05)  # however long loading takes
        child.send_signal(sent)
        out, err = child.communicate(timeout=600)
    assert child.returncode == 130, err.decode()
    profile = tg.load(tmp_path / "profile.json")
    assert profile.interrupted
    assert profile.latency.stop == "interrupted"
    assert len(profile.latency.samples) > 1
    assert profile.memory is None
    assert b"interrupted" in out


@pytest.mark.thorough
def test_the_example_of_the_readme_is_a_resnet18(capsys):
    assert main(["profile", f"{EXAMPLES}/resnet18.py:resnet18", "--device", "meta", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["size"]["parameters"] == 11_689_512
