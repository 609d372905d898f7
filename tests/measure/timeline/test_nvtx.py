"""NVTX ranges of layers, with a stand-in that notes what is pushed and popped."""

import threading

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.cli.main import main
from torchgauge.measure.timeline.ranges import STEPS, nvtx


class Fake:
    def __init__(self):
        self.said = []
        self.open = {}

    def mark(self, name):
        pass

    def range_push(self, name):
        mine = self.open.setdefault(threading.get_ident(), [])
        self.said.append("  " * len(mine) + name)
        mine.append(name)

    def range_pop(self):
        self.open[threading.get_ident()].pop()

    @property
    def balanced(self):
        return not any(self.open.values())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.block = nn.Sequential(self.shared, nn.ReLU())

    def forward(self, x):
        return self.shared(self.block(x))


NESTED = ["Net", "  block (Sequential)", "    block.0 (Linear)", "    block.1 (ReLU)"]
NESTED += ["  shared (Linear)"]


def test_layers_are_ranges_under_their_names():
    model, fake = Net(), Fake()
    before = nn.Module.__call__
    with nvtx(model, fake):
        model(torch.ones(2, 4))
    assert fake.said == NESTED
    assert fake.balanced
    assert nn.Module.__call__ is before
    model(torch.ones(2, 4))
    assert fake.said == NESTED


def test_ranges_end_where_a_layer_raises():
    model, fake = Net(), Fake()
    with nvtx(model, fake):
        for _ in range(2):
            with pytest.raises(RuntimeError):
                model(torch.ones(2, 5))
    # The second is no deeper than the first: what the first began has ended.
    assert fake.said == NESTED[:3] * 2
    assert fake.balanced


def test_names_are_ascii_whatever_the_layers_are_called():
    model, fake = nn.Sequential(), Fake()
    model.add_module("línea\ud800", nn.ReLU())
    with nvtx(model, fake):
        model(torch.ones(1))
    assert fake.said == ["Sequential", r"  l\xednea\ud800 (ReLU)"]


def test_every_thread_has_its_own():
    model, fake = Net(), Fake()
    with nvtx(model, fake):
        threads = [threading.Thread(target=model, args=(torch.ones(2, 4),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(fake.said) == sorted(NESTED * 4)
    assert fake.balanced


@pytest.fixture
def without_nvtx(monkeypatch):
    """What a torch for the CPU does, whichever is installed; one for CUDA needs no GPU for it."""

    def absent(message):
        raise RuntimeError("NVTX functions not installed. Are you sure you have a CUDA build?")

    monkeypatch.setattr(torch.cuda.nvtx, "mark", absent)


def test_without_cuda_it_says_so(without_nvtx):
    with pytest.raises(tg.MeasurementError) as caught, tg.nvtx(Net()):
        pass
    assert caught.value.id == "nvtx-unavailable"


MODEL = """
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(2, 4)
"""


@pytest.fixture
def target(tmp_path):
    (tmp_path / "mymodel.py").write_text(MODEL)
    return f"{tmp_path}/mymodel.py:make"


@pytest.mark.thorough
def test_the_command_runs_steps_with_ranges(target, monkeypatch):
    fake = Fake()
    monkeypatch.setattr(torch.cuda, "nvtx", fake)
    quick = ("--iterations", "3", "--warmup", "1", "--detail", "summary")
    assert main(["profile", target, *quick, "--nvtx"]) == 0
    step = ["Sequential", "  0 (Linear)", "  1 (ReLU)"]
    assert fake.said == [
        line for n in range(STEPS) for line in [f"step {n}", *("  " + one for one in step)]
    ]
    assert fake.balanced


def test_without_cuda_the_command_measures_nothing(target, without_nvtx, monkeypatch, capsys):
    monkeypatch.setattr("torchgauge.measure.plan.profile", lambda *_: pytest.fail("it measured"))
    assert main(["profile", target, "--nvtx"]) == 1
    assert "nvtx-unavailable" in capsys.readouterr().err
