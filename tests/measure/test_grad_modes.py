"""A forward that takes gradients itself runs in the grad mode that it needs; the record has it."""

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.errors import ModelError
from torchgauge.measure.latency import latency
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.memory import memory
from torchgauge.measure.step import prepared
from torchgauge.measure.work.count import measure_cost
from torchgauge.targets.builds.source import Source
from torchgauge.version import TORCH_DERIVES_IN_INFERENCE, torch_release


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))


class Force(Model):
    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return -torch.autograd.grad(self.net(x).sum(), x)[0]


class WithGradients(Model):
    """Fails under no_grad as well: whoever calls it has gradients on."""

    def forward(self, x):
        x = x.detach().requires_grad_()
        return -torch.autograd.grad(self.net(x).sum(), x)[0]


class Functional(Model):
    """Gives zeros in inference mode, without an error."""

    def forward(self, x):
        return torch.autograd.functional.vjp(lambda v: self.net(v).sum(), x)[1]


def placed(model, inputs=None):
    return Source.of_object(model.eval(), torch.randn(5, 3) if inputs is None else inputs).open()


@pytest.mark.parametrize(
    ("model", "grad_mode"),
    [(Force, "no_grad"), (Functional, "no_grad"), (WithGradients, "enable_grad")],
)
def test_every_probe_runs_it_in_the_mode_that_it_needs(model, grad_mode):
    run = latency.measure(placed(model()), LatencyOptions(iterations=3, processes=1))
    assert run.grad_mode == grad_mode
    assert memory.measure(placed(model())).grad_mode == grad_mode
    # Products of the pass forward, and of the inputs' gradients: 5 · (3 · 16 + 16) each.
    assert measure_cost(placed(model()), backward=False).macs == 640


def test_the_memory_of_a_gradient_in_the_forward_is_exact():
    parameters, inputs, hidden, number = 4 * (3 * 16 + 16 + 16 + 1), 4 * 15, 4 * 5 * 16, 4
    # At the peak: tanh's output, its gradient and that of its input; the sum and its gradient.
    assert memory.measure(placed(Force())).peak == parameters + inputs + 3 * hidden + 2 * number


@pytest.mark.thorough
def test_a_profile_says_so():
    profile = tg.profile(Force().eval(), torch.randn(5, 3), effort="quick", roofs=False)
    assert profile.target.grad_mode == profile.latency.grad_mode == "no_grad"
    assert profile.complete
    assert "inference under torch.no_grad" in str(profile)
    assert profile.tree.find("net.0").calls == 1


def test_other_forwards_stay_in_inference_mode_and_run_once():
    modes = []

    class Plain(Model):
        def forward(self, x):
            modes.append(torch.is_inference_mode_enabled())
            with torch.no_grad():
                return torch.func.grad(lambda v: self.net(v).sum())(x)

    placement = placed(Plain())
    with prepared(placement) as step:
        step()
    derives = torch_release() >= TORCH_DERIVES_IN_INFERENCE  # before, it returns zeros there
    assert modes == ([True] if derives else [True, False])
    assert placement.grad_modes == ["inference_mode" if derives else "no_grad"]


def test_a_failed_try_leaves_nothing_behind():
    class Stateful(Force):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))
            self.cache = []

        def forward(self, x):
            self.calls += 1
            self.cache.append(torch.rand(1))
            x.add_(1)
            return super().forward(x) * 0 + self.calls + x

    torch.manual_seed(0)
    expected_draw = torch.rand(1)
    torch.manual_seed(0)
    model, inputs = Stateful(), torch.zeros(5, 3)
    torch.manual_seed(0)
    with prepared(placed(model, inputs)) as step:
        outputs = step()
        assert model.calls == 1
        assert len(model.cache) == 1
        assert torch.equal(model.cache[0], expected_draw)
        assert torch.equal(outputs, torch.full((5, 3), 2.0))
    assert model.calls == 0
    assert model.cache == []
    assert not inputs.any()
    assert not inputs.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


def test_where_all_modes_fail_the_first_error_is_raised_with_the_others():
    class Broken(WithGradients):
        def forward(self, x):
            return super().forward(x) @ torch.ones(7, 7)

    calls = []

    class Unfit(Model):
        def forward(self, x):
            calls.append(torch.is_grad_enabled())
            raise ValueError("no good")

    for probe in (memory.measure, lambda placement: measure_cost(placement, backward=False)):
        with pytest.raises(ModelError) as caught:
            probe(placed(Broken()))
        first, last = caught.value.cause.split("\nUnder torch.enable_grad: ")
        assert "does not require grad" in first
        assert "5x3 and 7x7" in last
    with pytest.raises(ModelError) as caught, prepared(placed(Unfit())) as step:
        step()
    assert caught.value.cause == "In Unfit: ValueError: no good"
    assert calls == [False, False, True]


def test_the_first_call_is_timed_without_the_failed_tries(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("torchgauge.measure.step.time.perf_counter", lambda: now[0])

    class Slow(Force):
        def forward(self, x):
            now[0] += 1.0
            return super().forward(x)

    with prepared(placed(Slow())) as step:
        step()
    assert step.lost == 1.0


def test_stages_around_the_model_do_not_hide_what_it_needs():
    options = LatencyOptions(iterations=3, processes=1, preprocess=lambda inputs: inputs * 2)
    placement = placed(Force())
    assert latency.measure(placement, options).grad_mode == "no_grad"
