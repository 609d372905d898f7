"""The phases of a training step on clocks and devices whose time is known, and through the api."""

import collections
import dataclasses

import pytest
import torch
from tests.support.fakes import FakeClock, FakeGpu
from torch import nn

import torchgauge as tg
from torchgauge.analyze.latency.latency import combine, run_figures
from torchgauge.analyze.latency.training_phases import training_time
from torchgauge.errors import InputError
from torchgauge.measure.latency.latency import measure
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.targets.builds.source import Source
from torchgauge.targets.training.named_training import mean_of_outputs, named_training
from torchgauge.targets.training.training import Training

DURATIONS = {"forward": 3e-3, "loss": 1e-3, "backward": 6e-3, "optimizer": 2e-3, "zero_grad": 5e-4}
QUICK = {"warmup": 1, "iterations": 4}


class Timed:
    """A training step in which every phase does a known amount of work, through `work`."""

    def __init__(self, work):
        outer = self
        self.work = work

        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                outer.work(DURATIONS["forward"])
                return x.clone()

            @staticmethod
            def backward(ctx, gradient):
                outer.work(DURATIONS["backward"])
                return gradient

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(2))

            def forward(self, x):
                return Function.apply(self.weight * x)

        class Sgd(torch.optim.SGD):
            def step(self, *args, **kwargs):
                outer.work(DURATIONS["optimizer"])
                return super().step(*args, **kwargs)

            def zero_grad(self, *args, **kwargs):
                outer.work(DURATIONS["zero_grad"])
                return super().zero_grad(*args, **kwargs)

        self.model = Model()
        self.training = Training(self.loss, lambda p: Sgd(p, lr=0.1))

    def loss(self, outputs, _):
        self.work(DURATIONS["loss"])
        return outputs.sum()


def test_phases_on_the_cpu_are_exact_and_add_up_to_the_step():
    clock = FakeClock()
    timed = Timed(clock.advance)
    placement = Source.of_object(timed.model, torch.ones(2), training=True).open()
    options = LatencyOptions(train=timed.training, **QUICK)
    latency = combine([measure(placement, options, clock=clock)])
    found = training_time(latency, optimizer="Sgd")
    assert {p.name: p.seconds for p in found.phases} == pytest.approx(DURATIONS)
    assert [p.name for p in found.phases] == [
        "zero_grad", "forward", "loss", "backward", "optimizer",
    ]  # fmt: skip
    assert found.step == pytest.approx(sum(DURATIONS.values()))
    assert found.outside == pytest.approx(0.0)
    assert found.phase("backward") == pytest.approx(6e-3)
    assert found.clock == "host"


def test_phases_on_a_gpu_are_timed_by_its_events_without_waiting_in_between():
    clock = FakeClock()
    gpu = FakeGpu(clock)
    timed = Timed(gpu.launch)
    placement = Source.of_object(timed.model, torch.ones(2), training=True).open()
    placement = dataclasses.replace(placement, device="cuda:0")
    options = LatencyOptions(train=timed.training, **QUICK)
    latency = combine([measure(placement, options, clock=clock, device=gpu)])
    found = training_time(latency, optimizer="Sgd")
    assert {p.name: p.seconds for p in found.phases} == pytest.approx(DURATIONS)
    assert found.clock == "device"
    assert latency.device_time == pytest.approx(sum(DURATIONS.values()))
    assert gpu.log[:7] == ["synchronize", *["launch"] * 5, "synchronize"]


def test_phases_add_up_to_the_step_however_the_steps_drift():
    forward, backward = (1.0, 1.0, 9.0, 2.0), (1.0, 3.0, 1.0, 4.0)
    run = run_figures(
        [8.0, *map(sum, zip(forward, backward, strict=True))],
        first_call=9.0,
        stop="iterations done",
        warmup=1,
        stage_samples={"forward": (0.0, *forward), "backward": (8.0, *backward)},
    )
    latency = combine([run])
    assert sum(stage.median for stage in latency.stages) == 3.5
    found = training_time(latency, optimizer="SGD")
    assert found.step == 5.0  # the middle of 2, 4, 6 and 10
    share = (1 / 2 + 1 / 4 + 9 / 10 + 2 / 6) / 4
    assert [p.share for p in found.phases] == pytest.approx([share, 1 - share])
    assert [p.seconds for p in found.phases] == pytest.approx([5 * share, 5 - 5 * share])
    assert found.outside == pytest.approx(0.0)


@pytest.mark.thorough
def test_the_profile_of_a_training_step_names_its_phases(tmp_path):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    train = tg.Training(lambda out, _: out.square().mean(), torch.optim.AdamW)
    profile = tg.profile(model, torch.ones(2, 8), train=train, precision="bf16", **QUICK)
    training = profile.training
    assert (training.optimizer, training.autocast, training.scaled) == ("AdamW", "bf16", False)
    assert 0.0 <= training.outside < 0.5
    assert sum(p.seconds for p in training.phases) == pytest.approx(
        (1 - training.outside) * training.step
    )
    for run in profile.latency.processes:
        for index, total in enumerate(run.samples):
            parts = sum(samples[index] for samples in run.stage_samples.values())
            assert 0.5 * total < parts <= total
    assert tg.load(profile.save(tmp_path / "run.json")).training == training
    assert "Training step" in str(profile)
    assert profile.summary()["training_backward_ms"] == training.phase("backward") * 1e3


@pytest.mark.thorough
def test_gradients_are_scaled_with_fp16():
    model = nn.Linear(8, 4)
    train = named_training("mean", "sgd", precision="fp16", device="cpu")
    profile = tg.profile(model, torch.ones(2, 8), train=train, precision="fp16", **QUICK)
    assert profile.complete, profile.warnings
    assert profile.training.scaled
    assert profile.training.autocast == "fp16"
    assert "fp16 autocast, scaled gradients" in " ".join(str(profile).split())


@pytest.mark.thorough
def test_inference_has_no_training_part():
    assert tg.profile(nn.Linear(2, 2), torch.ones(1, 2), **QUICK).training is None


def test_the_mean_of_all_differentiable_outputs_by_hand():
    a, b = torch.tensor([1.0, 3.0], requires_grad=True), torch.tensor([5.0], requires_grad=True)
    outputs = {"a": a, "more": [b, torch.tensor([100.0]), torch.tensor([7])]}
    assert mean_of_outputs(outputs, None).item() == 2.0 + 5.0

    @dataclasses.dataclass
    class Output:
        logits: torch.Tensor

    assert mean_of_outputs(Output(a), None).item() == 2.0
    assert mean_of_outputs(collections.UserDict(outputs), None).item() == 2.0 + 5.0

    @dataclasses.dataclass(slots=True)
    class Slotted:
        logits: torch.Tensor

    assert mean_of_outputs(Slotted(a), None).item() == 2.0
    with pytest.raises(InputError) as caught:
        mean_of_outputs(torch.ones(2), None)
    assert caught.value.id == "loss-not-scalar"


def test_losses_and_optimizers_by_name(tmp_path):
    (tmp_path / "losses.py").write_text("def l2(out, inputs): return out.square().sum()\nX = 3\n")
    file = tmp_path / "losses.py"
    train = named_training(f"{file}:l2", "AdamW", precision=None, device="cpu")
    assert train.loss(torch.tensor([3.0]), None).item() == 9.0
    assert train.optimizer is torch.optim.AdamW
    assert named_training(None, None, precision=None, device="cpu").optimizer is torch.optim.AdamW


@pytest.mark.parametrize(
    ("loss", "optimizer", "id"),
    [
        ("nonsense", None, "loss-unknown"),
        ("FILE:X", None, "loss-unknown"),
        ("FILE:missing", None, "factory-missing"),
        ("no_such_module:f", None, "module-missing"),
        ("none.py:f", None, "file-missing"),
        (None, "adamv", "optimizer-unknown"),
        (None, "Optimizer", "optimizer-unknown"),
    ],
)
def test_names_that_lead_nowhere(tmp_path, loss, optimizer, id):
    (tmp_path / "losses.py").write_text("X = 3\n")
    if loss is not None:
        loss = loss.replace("FILE", str(tmp_path / "losses.py"))
    with pytest.raises(InputError) as caught:
        named_training(loss, optimizer, precision=None, device="cpu")
    assert caught.value.id == id
    assert caught.value.remedy


@pytest.mark.slow
def test_training_from_the_command_line_in_fresh_processes(tmp_path, capsys):
    import json

    from torchgauge.cli.main import main

    (tmp_path / "net.py").write_text(
        "import torch\n"
        "def make(): return torch.nn.Linear(4, 2), torch.ones(3, 4)\n"
        "def loss(outputs, inputs): return (outputs.sum() - inputs.sum()) ** 2\n"
    )
    net = tmp_path / "net.py"
    arguments = ["profile", f"{net}:make", "--train", "--loss", f"{net}:loss", "--optimizer", "sgd",
                 "--processes", "2", "--iterations", "3", "--json"]  # fmt: skip
    assert main(arguments) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["training"]["optimizer"] == "SGD"
    assert record["target"]["training"] is True
    assert record["memory"]["step"] == "training"


def test_a_loss_without_training_is_a_mistake(capsys):
    from torchgauge.cli.main import main

    assert main(["profile", "examples/resnet18.py:resnet18", "--loss", "mean"]) == 2
    assert "[option-conflict]" in capsys.readouterr().err
