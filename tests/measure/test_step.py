import pytest
import torch
from torch import nn

from torchgauge.errors import InputError, MeasurementError, user_traceback
from torchgauge.measure.latency import latency
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.memory import memory
from torchgauge.measure.step import prepared
from torchgauge.targets.builds.source import Source
from torchgauge.targets.training.training import Training


def placed(model, inputs, **options):
    return Source.of_object(model, inputs, **options).open()


def test_inference_runs_in_evaluation_and_inference_mode():
    seen = []

    class Model(nn.Module):
        def forward(self, x):
            seen.append((self.training, torch.is_inference_mode_enabled()))
            return x

    model = Model()
    with prepared(placed(model, torch.ones(1))) as step:
        step()
    assert seen == [(False, True)]
    assert model.training
    assert not torch.is_inference_mode_enabled()


def test_training_steps_change_the_model_only_inside():
    model = nn.Linear(4, 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    train = Training(lambda out, _: out.square().mean(), lambda p: torch.optim.SGD(p, lr=1.0))
    with prepared(placed(model, torch.ones(3, 4)), train) as step:
        step()
        assert not torch.equal(model.weight, before["weight"])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.weight.grad is None


def test_what_the_model_raises_is_named_with_the_users_own_traceback():
    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("no good")

    placement = placed(Broken(), torch.ones(1))
    with pytest.raises(MeasurementError) as caught, prepared(placement) as step:
        step()
    assert caught.value.id == "forward-raised"
    assert caught.value.cause == "In Broken: ValueError: no good"
    trace = user_traceback(caught.value)
    assert "in forward" in trace
    assert "torchgauge/measure" not in trace


def test_what_the_measuring_code_raises_is_not_blamed_on_the_model():
    with pytest.raises(TypeError), prepared(placed(nn.Identity(), torch.ones(1))):
        raise TypeError("a bug of ours")


def test_an_optimizer_that_cannot_be_made_is_named():
    train = Training(lambda out, _: out.sum(), lambda p: torch.optim.SGD(p, lr=-1.0))
    placement = placed(nn.Linear(1, 1), torch.ones(1, 1))
    with (
        pytest.raises(MeasurementError, match="Making the optimizer raised ValueError") as caught,
        prepared(placement, train),
    ):
        pass
    assert caught.value.id == "forward-raised"
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_mark_hears_of_every_phase_of_either_step():
    seen = []
    placement = placed(nn.Linear(2, 2), torch.ones(1, 2))
    with prepared(placement) as step:
        assert torch.equal(step(seen.append), step())
        assert step.optimizer is None
    assert seen == ["forward", "end"]
    seen.clear()
    train = Training(lambda out, _: out.sum(), torch.optim.SGD)
    with prepared(placement, train) as step:
        step(seen.append)
        assert type(step.optimizer) is torch.optim.SGD
        assert step.saved_state.host == (2 * 2 + 2 + 2 * 1 * 2) * 4  # parameters, the input twice
    assert seen == ["zero_grad", "forward", "loss", "backward", "optimizer", "end"]


def test_an_error_of_torchgauge_passes_through_unchanged():
    train = Training.resolve(train=True)
    with (
        pytest.raises(InputError) as caught,
        prepared(placed(nn.Linear(1, 1), torch.ones(1, 1)), train) as step,
    ):
        step()
    assert caught.value.id == "training-missing"
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)],
)
def test_a_cast_happens_on_a_copy(precision, dtype):
    model, x = nn.Linear(4, 2), torch.ones(1, 4)
    placement = placed(model, x, precision=precision)
    with prepared(placement) as step:
        assert step().dtype is dtype
    assert model.weight.dtype is x.dtype is torch.float32
    assert placement.method == ("native" if precision == "fp32" else "cast")
    assert (placement.model is model) == (precision == "fp32")


def test_training_in_low_precision_is_autocast():
    seen = []

    def loss(out, _):
        seen.append(out.dtype)
        return out.float().mean()

    train = Training(loss, lambda p: torch.optim.SGD(p))
    placement = placed(nn.Linear(4, 2), torch.ones(1, 4), precision="bf16", training=True)
    with prepared(placement, train) as step:
        step()
    assert seen == [torch.bfloat16]
    assert placement.method == "autocast"
    assert not torch.is_autocast_enabled("cpu")


def test_autocast_is_around_forward_and_loss_and_nothing_else():
    seen = {}

    def on(phase):
        seen[phase] = torch.is_autocast_enabled("cpu")

    def loss(out, _):
        on("in the loss")
        out.register_hook(lambda gradient: on("in backward"))
        return out.sum()

    class Optimizer(torch.optim.SGD):
        def step(self, closure=None):
            on("in the optimizer")

    class Model(nn.Linear):
        def forward(self, x):
            on("in forward")
            return super().forward(x)

    placement = placed(Model(4, 2), torch.ones(1, 4), precision="bf16", training=True)
    with prepared(placement, Training(loss, Optimizer)) as step:
        step()
    assert seen == {
        "in forward": True,
        "in the loss": True,
        "in backward": False,
        "in the optimizer": False,
    }


def test_autocast_casts_the_weights_anew_in_every_step():
    outputs = []

    def loss(out, _):
        outputs.append(out.detach().clone())
        return out.float().sum()

    train = Training(loss, lambda p: torch.optim.SGD(p, lr=1.0))
    placement = placed(nn.Linear(4, 2), torch.ones(1, 4), precision="bf16", training=True)
    with prepared(placement, train) as step:
        step()
        step()
    assert not torch.equal(*outputs)  # a weight cached from the first step would give the same


def test_native_precision_is_that_of_most_bytes():
    assert placed(nn.Linear(4, 2).double(), torch.ones(1, 4).double()).precision == "float64"
    assert placed(nn.Linear(4, 2).bfloat16(), torch.ones(1, 4)).precision == "bf16"
    assert placed(torch.relu, torch.ones(1)).precision == "fp32"
    assert placed(torch.relu, torch.ones(1, dtype=torch.int64)).precision == "unknown"


@pytest.mark.parametrize(
    ("options", "id"),
    [({"precision": "fp8"}, "precision-unknown"), ({"precision": "tf32"}, "precision-unsupported")],
)
def test_precisions_that_cannot_be_are_refused(options, id):
    with pytest.raises(InputError) as caught:
        placed(nn.Linear(1, 1), None, **options)
    assert caught.value.id == id


@pytest.mark.parametrize("options", [{"precision": "bf16"}, {"device": "meta"}])
def test_a_callable_cannot_be_cast_or_moved(options):
    with pytest.raises(InputError, match="plain callable"):
        placed(torch.relu, torch.ones(1), **options)


def test_a_bound_method_is_measured_where_its_module_is():
    model = nn.Linear(4, 2).bfloat16()
    placement = placed(model.forward, torch.ones(1, 4), precision="bf16")
    assert (placement.precision, placement.method) == ("bf16", "native")


def test_a_model_on_several_devices_is_not_taken_for_one():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    with pytest.raises(InputError) as caught:
        placed(model, torch.ones(1, 2))
    assert caught.value.id == "several-devices"
    assert placed(model, torch.ones(1, 2), device="meta").device == "meta"


def test_a_model_that_changes_itself_is_said_by_the_probes_that_run_it():
    model = nn.BatchNorm1d(2)
    model.forward = lambda x: (model.weight.data.mul_(2), x.add_(1))[1]
    placement = placed(model, torch.ones(2, 2))
    run = latency.measure(placement, LatencyOptions(warmup=0, iterations=2))
    for warnings in (run.warnings, memory.measure(placement).warnings):
        ids = {w.id for w in warnings}
        assert "model-changed" in ids
        assert "inputs-changed" not in ids  # each call got the same
    assert model.weight.tolist() == [1, 1]
    assert placement.inputs.args[0].tolist() == [[1, 1], [1, 1]]
