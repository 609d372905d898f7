"""Real signals from another process at random moments: nothing is left changed, nothing unsaid."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

import torchgauge
from torchgauge.records import codec

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SENT = (signal.SIGINT, signal.SIGTERM)
ENDS = {"returned", "KeyboardInterrupt", "StoppedError"}
MODEL = """\
import torch
from torch import nn
def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), torch.ones(4, 64)
"""
SCRIPT = """\
import sys, torch
from models import small
model, x = small()
with torch.no_grad():
    for _ in range(200):
        model.eval()(x)
"""


@pytest.fixture
def alone(tmp_path):
    """Return the environment of processes whose temporary folders are their own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    own = {"TMPDIR": str(folder), "TORCHGAUGE_STATE": str(tmp_path / "state"), "PYTHONPATH": paths}
    return os.environ | own


def attacked(verb, signals, environment):
    """Send that many signals to a process that measures, and count how it ended each time."""
    moments, ends, sent = random.Random(verb), Counter(), 0
    command = [sys.executable, str(HERE / "signalled.py"), verb]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as child:
        seconds = json.loads(child.stdout.readline())["seconds"]
        while sent < signals:
            child.stdin.write("next\n")
            child.stdin.flush()
            assert child.stdout.readline() == "go\n"
            time.sleep(moments.uniform(0, seconds))
            child.send_signal(moments.choice(SENT))
            sent += 1
            if moments.random() < 0.3:  # an impatient user's
                time.sleep(moments.uniform(0, 0.02))
                child.send_signal(moments.choice(SENT))
                sent += 1
            told = json.loads(child.stdout.readline())
            assert told["changed"] == [], f"after {sent} signals, {told['end']}"
            assert told["end"] in ENDS, told["end"]
            ends[told["end"]] += 1
        child.stdin.close()
        assert child.wait(60) == 0
    print(f"{verb}: {sent} signals, {dict(ends)}")
    return ends


@pytest.mark.thorough
@pytest.mark.parametrize(("verb", "signals"), [("count", 12)])
def test_a_few_signals_leave_model_and_process_as_they_were(verb, signals, alone):
    assert attacked(verb, signals, alone)


@pytest.mark.attack
@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "signals"),
    [("profile", 60), ("train", 40), ("count", 60), ("latency", 30), ("memory", 40),
     ("timeline", 60)],
)  # fmt: skip
def test_signals_leave_model_and_process_as_they_were(verb, signals, alone):
    ends = attacked(verb, signals, alone)
    assert ends.keys() & {"KeyboardInterrupt", "StoppedError"} or verb in ("profile", "train")


@pytest.fixture
def files(tmp_path, alone):
    """Return what the verbs of the command line work on."""
    (tmp_path / "models.py").write_text(MODEL)
    (tmp_path / "script.py").write_text(SCRIPT)
    quick = ["--budget", "0.2", "--no-roofs", "--trace", "trace.json", "--output-dir", "."]
    done = called(["profile", "models.py:small", *quick], tmp_path, alone)
    assert done.wait() in (0, 1), done.stderr.read()
    return tmp_path


def called(arguments, folder, environment):
    command = [sys.executable, "-m", "torchgauge", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=environment, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


TARGET = "models.py:small"
OURS = str(Path(torchgauge.__file__).parent)
COMMANDS = {
    "profile": ["profile", TARGET, "--budget", "0.3", "--no-roofs", "--output-dir", "out"],
    "run": ["run", "--output-dir", "out", "script.py"],
    "count": ["count", TARGET],
    "sweep": ["sweep", TARGET, "--batch", "1,2", "--budget", "0.2", "--output-dir", "out"],
    "advise": ["advise", TARGET, "--budget", "20"],
    "gate": ["gate", TARGET, "--base-target", TARGET, "--budget", "10"],
    "compare": ["compare", "profile.json", "profile.json"],
    "trace": ["trace", "trace.json"],
    "report": ["report", "profile.json"],
    "history": ["history", "add", "profile.json", "--store", "history.db"],
    "doctor": ["doctor", "--quick"],
    "help": ["profile", "--help"],
}


def interrupted(arguments, after, times, folder, environment):
    """Return how a run of the command line ended that was sent Ctrl-C so often, and what it said.

    Nothing of it is left: no process, no temporary folder, no half a record.
    """
    run = called(arguments, folder, environment)
    session = run.pid
    time.sleep(after)
    for number in range(times):
        if number:
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=120)
    left = [one for one in psutil.process_iter() if _session(one) == session]
    assert psutil.wait_procs(left, 10)[1] == []
    for record in [*folder.glob("out/profile.json"), *folder.glob("out/loop.json")]:
        codec.load(record)
        record.unlink()
    return run.returncode, said


def _session(process):
    try:
        return os.getsid(process.pid)
    except OSError:
        return None


@pytest.mark.attack
@pytest.mark.slow
@pytest.mark.parametrize("verb", COMMANDS)
def test_ctrl_c_ends_a_verb_with_130(verb, files, alone):
    moments, codes = random.Random(verb), Counter()
    start = time.monotonic()
    whole = called(COMMANDS[verb], files, alone)
    _, said = whole.communicate(timeout=300)
    seconds, usual = time.monotonic() - start, whole.returncode
    assert "Traceback" not in said
    for _ in range(5):
        after, times = moments.uniform(0.1, seconds), moments.choice([1, 1, 3])
        code, said = interrupted(COMMANDS[verb], after, times, files, alone)
        assert code in (130, usual), (after, times, said)
        # A script that it interrupts says where, as it does without us.
        assert "Traceback" not in said or (verb == "run" and OURS not in said), (after, times, said)
        codes[code] += 1
    assert list(Path(alone["TMPDIR"]).glob("torchgauge-*")) == []
    print(f"{verb}: {seconds:.1f} s, usually {usual}, {dict(codes)}")
