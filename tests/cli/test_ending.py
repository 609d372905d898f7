"""How the command line ends: by Ctrl-C at any moment, with a full disk, by a model that ends it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import torchgauge as tg
from torchgauge.cli import main as command_line
from torchgauge.cli.main import main

FULL = Path("/dev/full")
COMMAND = [sys.executable, "-m", "torchgauge"]
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
QUICK = ("--iterations", "3", "--warmup", "0", "--no-roofs")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("option", ["--version", "--help", "profile --help"])
def test_a_full_disk_is_told_whatever_is_printed(option):
    with FULL.open("w") as full:
        done = subprocess.run([*COMMAND, *option.split()], stdout=full, stderr=-1, text=True)
    assert done.returncode == 2
    assert "[output-unwritable]" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_an_error_that_cannot_be_told_has_its_exit_code():
    with FULL.open("w") as full:
        done = subprocess.run([*COMMAND, "report", "absent.json"], stderr=full)
    assert done.returncode == 2


# What is imported first, in the middle and last before a verb begins.
@pytest.mark.parametrize(
    "module", ["torchgauge.cli.output", "argparse", "torchgauge.cli.profile", "torchgauge.api"]
)
def test_ctrl_c_while_it_starts_ends_with_130_and_without_a_traceback(module, tmp_path):
    importing = f"""
import sys
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            print("importing", file=sys.__stderr__, flush=True)
            import time
            time.sleep(20)
sys.meta_path.insert(0, Slow())
"""
    (tmp_path / "sitecustomize.py").write_text(importing)
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [*COMMAND, "profile", "torchvision:resnet18"], env=os.environ | {"PYTHONPATH": paths},
        **PIPES,
    ) as run:  # fmt: skip
        assert run.stderr.readline() == "importing\n"
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=60)
    assert (run.returncode, said) == (130, "torchgauge: interrupted\n")


MODEL = """\
import ctypes, os, posix, signal, subprocess, sys, threading, time
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        if os.environ.get("READY"):
            open(os.environ["READY"], "a").write(".")
            time.sleep(0.05)
        return torch.nn.functional.linear(x, self.weight)
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 8))

def ending(end):
    class Ending(Net):
        def forward(self, x):
            end()
            return super().forward(x)
    return lambda: (Ending(), torch.ones(2, 8))

def thread():
    started = threading.Thread(target=os._exit, args=(0,))
    started.start()
    started.join()

def forked():
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

def forked_exit():
    child = os.fork()
    if child == 0:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0

def forked_return():
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0

plain = lambda: (Net(), torch.ones(2, 8))
exiting = ending(lambda: os._exit(0))
posix_exiting = ending(lambda: posix._exit(0))
replacing = ending(lambda: os.execvp("true", ["true"]))
in_thread = ending(thread)
forking = ending(forked)
forking_exit = ending(forked_exit)
forking_return = ending(forked_return)
starting = ending(lambda: subprocess.run(["true"], check=True))
def loading():
    os._exit(0)

def group():
    os.killpg(os.getpgrp(), signal.SIGKILL)

def everything():
    os.kill(0, signal.SIGKILL)

def by_shell():
    subprocess.run("kill -9 0", shell=True, check=True)

def by_system():
    raise ValueError(f"ended by {os.WTERMSIG(os.system('kill -9 0'))}, {os.system('exit 3') >> 8}")

def with_own_session():
    for options in ({"start_new_session": True}, {"preexec_fn": os.setsid}):
        subprocess.run("kill -9 0", shell=True, **options)
    raise ValueError("still here")

def aborting():
    os.abort()

class Own(BaseException):
    pass

def own_exception():
    raise Own("its own words")

def without_stderr():
    sys.stderr = None
    raise ValueError("its own words")

def with_another_stderr():
    sys.stderr = open(os.devnull, "w")
    sys.stdout = None
    raise ValueError("its own words")

raising = ending(own_exception)
handled = ending(lambda: os.kill(os.getpid(), signal.SIGWINCH))
"""


@pytest.fixture
def models(tmp_path):
    path = tmp_path / "models.py"
    path.write_text(MODEL)
    return path


@pytest.mark.parametrize(
    "name",
    ["exiting", *(pytest.param(n, marks=pytest.mark.slow) for n in ("posix_exiting", "replacing"))],
)
def test_a_forward_that_ends_the_process_is_a_failed_measurement(models, name, tmp_path, capsys):
    arguments = [f"{models}:{name}", *QUICK, "--threshold", "latency:10s"]
    assert main(["profile", *arguments, "--output-dir", str(tmp_path / "out")]) == 1
    record = tg.load(tmp_path / "out" / "profile.json")
    failed = {warning.id for warning in record.all_warnings if warning.failed}
    assert "model-exited" in failed
    assert record.latency is None
    assert "os." in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["profile", "count"])
def test_a_target_that_ends_the_process_while_it_is_loaded_is_an_error(models, verb, capsys):
    assert main([verb, f"{models}:loading"]) != 0
    assert "os._exit(0)" in capsys.readouterr().err
    assert os._exit.__module__ == "posix"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("group", "os.killpg("),
        ("everything", "os.kill(0, "),
        ("by_shell", "died with <Signals.SIGKILL: 9>"),
        ("by_system", "ended by 9, 3"),
        ("with_own_session", "still here"),
        ("aborting", "os.abort()"),
        ("own_exception", "Own: its own words"),
        ("without_stderr", "its own words"),
        ("with_another_stderr", "its own words"),
    ],
)
def test_whatever_a_factory_does_to_the_process_it_is_an_error_with_its_exit_code(
    models, name, words, capsys
):
    assert main(["count", f"{models}:{name}", "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("[factory-raised]") == 1


@pytest.mark.parametrize(("name", "code"), [("raising", 1), ("handled", 0)])
def test_what_a_forward_raises_may_be_no_exception_and_its_signals_are_its_own(
    models, name, code, capsys
):
    assert main(["count", f"{models}:{name}", "--device", "cpu"]) == code
    assert ("Own: its own words" in capsys.readouterr().err) == (code == 1)


@pytest.mark.slow
def test_a_thread_that_ends_the_process_is_told(models):
    done = subprocess.run([*COMMAND, "profile", f"{models}:in_thread", *QUICK], **PIPES)
    assert done.returncode == 1
    assert "[model-exited]" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["forking", "forking_exit", "forking_return", "starting"])
def test_processes_that_a_forward_starts_end_as_they_like(models, name, tmp_path):
    alone = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    out = ["--output-dir", str(tmp_path)]
    arguments = [f"{models}:{name}", *QUICK, "--detail", "summary", "--threshold", "latency:10s"]
    done = subprocess.run([*COMMAND, "profile", *arguments, *out], env=alone, timeout=300, **PIPES)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("/profile.json") == 1
    assert tg.load(tmp_path / "profile.json").latency is not None
    assert list((tmp_path / "tmp").glob("torchgauge-*")) == []


@pytest.mark.slow
@pytest.mark.parametrize("times", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 6))])
def test_ctrl_c_several_times_in_a_row_ends_with_130(models, tmp_path, times):
    ready = tmp_path / "ready"
    with subprocess.Popen(
        [*COMMAND, "profile", f"{models}:plain", "--iterations", "1000"],
        env=os.environ | {"READY": str(ready)}, **PIPES,
    ) as run:  # fmt: skip
        while not ready.exists():
            assert run.poll() is None
            time.sleep(0.02)
        for _ in range(times):
            run.send_signal(signal.SIGINT)
            time.sleep(0.03)
        _, said = run.communicate(timeout=60)
    assert run.returncode == 130, said
    assert "Traceback" not in said


def test_ctrl_c_while_the_first_one_is_told_is_130_too(models, monkeypatch):
    before = signal.getsignal(signal.SIGINT)  # the import takes its place
    from torchgauge import __main__ as entry

    monkeypatch.setattr(entry, "_end_now", lambda code: (_ for _ in ()).throw(SystemExit(code)))

    def told(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "tell", told)
    monkeypatch.setattr(sys, "argv", ["torchgauge", "profile", f"{models}:interrupting"])
    models.write_text(MODEL + "\ndef interrupting():\n    raise KeyboardInterrupt\n")
    try:
        with pytest.raises(SystemExit) as ended:
            entry.main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.value.code == 130


@pytest.mark.slow
def test_ctrl_c_while_a_text_is_evaluated_is_130(models):
    """Python ends by the signal where an interrupt left an `exec`, whatever is returned."""
    models.write_text(MODEL + '\ndef interrupting():\n    exec("raise KeyboardInterrupt")\n')
    done = subprocess.run([*COMMAND, "count", f"{models}:interrupting"], **PIPES)
    assert (done.returncode, done.stderr) == (130, "torchgauge: interrupted\n")
