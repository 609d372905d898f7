"""Processes that wait: the protocol on small fakes, then real builds."""

import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from torchgauge.errors import InputError, MeasurementError
from torchgauge.measure.latency.blocks import Pace, block, log_difference
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes import waiting_process as waiting_module
from torchgauge.measure.processes.waiting_process import Answer, Build, Question, waiting
from torchgauge.targets.builds.home import Home
from torchgauge.targets.builds.source import Source
from torchgauge.targets.target import TargetRequest
from torchgauge.targets.training.named_training import named_training

QUESTION = Question(0.0, 1)
QUICK = Pace(rounds=2, seconds=0.01, calls=2, layer_rounds=2)


@pytest.fixture(autouse=True)
def _no_process_is_left():
    before = psutil.Process().children(recursive=True)
    yield
    left = [one for one in psutil.Process().children(recursive=True) if one not in before]
    assert [one for one in left if one.status() != psutil.STATUS_ZOMBIE] == []


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Have another script than ours be the process, and return how to open it."""

    def make(code):
        script = tmp_path / "child.py"
        script.write_text(textwrap.dedent(code))
        monkeypatch.setattr(waiting_module, "CHILD", script)
        monkeypatch.setattr(waiting_module, "LOOK", 0.05)
        build = Build(Source.of_object(print, None), LatencyOptions(), None, "base")
        return waiting(build, tmp_path / "folder")

    return make


def test_questions_and_answers_are_lines(fake):
    code = """
        import sys
        print('{"step": 0.5}', flush=True)
        for number, line in enumerate(sys.stdin):
            print('{"figures": {"latency": %d}}' % (number + 1), flush=True)
    """
    with fake(code) as one:
        assert one.ready() == Answer(step=0.5)
        assert [one.ask(QUESTION).figures["latency"] for _ in range(2)] == [1.0, 2.0]


def test_an_answer_in_pieces_is_put_together(fake):
    code = """
        import sys, time
        for part in ('{"st', 'ep": ', '1.5}', chr(10)):
            sys.stdout.write(part); sys.stdout.flush(); time.sleep(0.02)
        sys.stdin.read()
    """
    with fake(code) as one:
        assert one.ready().step == 1.5


@pytest.mark.parametrize(
    ("code", "id", "cause"),
    [
        ("import os; os.kill(os.getpid(), 9)", "child-killed", "Signal 9"),
        ("import sys; sys.exit('it was me')", "child-failed", "it was me"),
        ("print('no json', flush=True)", "child-failed", "cannot be read"),
    ],
)
def test_a_process_that_dies_is_named_with_its_build(fake, code, id, cause):
    with fake(code) as one, pytest.raises(MeasurementError) as caught:
        one.ready()
    assert caught.value.id == id
    assert cause in caught.value.cause
    assert caught.value.message.startswith("The base build: ")


def test_a_process_that_hangs_is_given_up(fake):
    began = time.monotonic()
    with fake("import time; time.sleep(600)") as one, pytest.raises(MeasurementError) as caught:
        one.ready(limit=0.3)
    assert caught.value.id == "child-timeout"
    assert time.monotonic() - began < 600


def test_a_pipe_that_another_process_holds_hides_no_death(fake):
    code = """
        import os, subprocess, sys
        subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], close_fds=False)
        os._exit(3)
    """
    began = time.monotonic()
    with fake(code) as one, pytest.raises(MeasurementError) as caught:
        one.ready(limit=600)
    assert "Exit code 3" in caught.value.cause
    assert time.monotonic() - began < 600


def test_who_dies_while_asked_is_told_of(fake):
    code = """
        import sys
        print('{"step": 0.1}', flush=True)
        sys.exit(4)
    """
    with fake(code) as one:
        one.ready()
        with pytest.raises(MeasurementError) as caught:
            one.ask(QUESTION)
    assert caught.value.id == "child-failed"


def test_a_full_disk_is_said(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(waiting_module, "write_request", full)
    build = Build(Source.of_object(print, None), LatencyOptions())
    with pytest.raises(InputError) as caught:
        block(build, build, QUICK)
    assert caught.value.id == "output-unwritable"
    assert "No space left" in caught.value.cause


def request(path, name, options=None, **more):
    return Build(
        Source.of_request(TargetRequest(f"{path}:{name}", **more)), options or LatencyOptions()
    )


MODEL = """
    import sys
    import time
    import torch
    from torch import nn

    class Sleeping(nn.Linear):
        seconds = 0.0

        def forward(self, x):
            time.sleep(self.seconds)
            return super().forward(x)

    class Net(nn.Module):
        def __init__(self, seconds):
            super().__init__()
            self.first, self.second = nn.Linear(64, 64), Sleeping(64, 64)
            self.second.seconds = seconds

        def forward(self, x):
            print("noise on standard output")
            sys.stdin.read()
            return self.second(self.first(x))

    def quick():
        return Net(0.0), torch.ones(8, 64)

    def slow():
        return Net(0.05), torch.ones(8, 64)

    def broken():
        raise ValueError("my own mistake")
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "net_of_blocks.py"
    path.write_text(textwrap.dedent(MODEL))
    return path


@pytest.mark.slow
def test_a_block_finds_the_slower_build_and_its_layer_whatever_the_model_prints(model):
    found = block(request(model, "quick"), request(model, "slow"), QUICK)
    assert found.differences()["latency"] > 0.2
    assert found.differences()["throughput"] < -0.2
    assert [len(visits) for visits in found.figures["latency"]] == [2, 2, 2, 2]
    layers = found.layer_logs()
    assert set(layers) == {"", "first", "second"}
    assert log_difference(layers["second"]) > 0.2
    a, b, b_again, a_again = found.undisturbed
    assert min(b, b_again) > 0.05 > max(a, a_again) > 0
    # In seconds: beside other work a layer of microseconds may take a thousand times as long.
    slower = {path: found.layers[1][path] - found.layers[0][path] for path in layers}
    assert max(slower, key=slower.get) == "second"
    assert (found.target.name, found.threads > 0) == ("Net", True)


@pytest.mark.slow
def test_one_at_a_time_trains_a_step(model):

    training = LatencyOptions(train=named_training("mean", "sgd", precision=None, device="cpu"))
    alone = Pace(rounds=2, seconds=0.01, calls=1, concurrent=False)
    build = request(model, "quick", training, training=True)
    found = block(build, build, alone)
    assert {"forward", "backward", "optimizer", "latency"} <= set(found.figures)
    assert [len(visits) for visits in found.figures["latency"]] == [1, 1, 1, 1]


@pytest.mark.slow
def test_what_a_build_raises_is_its_own(model, tmp_path):
    with (
        pytest.raises(InputError) as caught,
        waiting(request(model, "broken"), tmp_path / "broken") as one,
    ):
        one.ready()
    assert caught.value.id == "factory-raised"
    assert "my own mistake" in caught.value.message


@pytest.mark.slow
def test_code_of_the_other_build_is_found_out(model):
    home = Home(tuple(sys.path), str(Path.cwd()), foreign=str(model.parent))
    build = request(model, "quick")._replace(home=home)
    with pytest.raises(InputError) as caught, waiting(build, model.parent / "leaked") as one:
        one.ready()
    assert caught.value.id == "side-leaked"
    assert "net_of_blocks" in caught.value.message
