"""The model leaves as it came: on success, and when forward raises at any operator."""

from __future__ import annotations

import contextlib
import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from torchgauge.target import hygiene
from torchgauge.target.inputs import Inputs
from torchgauge.target.training import Training, TrainingStep


class Interrupted(RuntimeError):
    pass


class RaiseAt(TorchDispatchMode):
    """Raises at the k-th operator."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.left = k

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.left -= 1
        if self.left < 0:
            raise Interrupted
        return func(*args, **(kwargs or {}))


class Messy(nn.Module):
    """Its forward changes everything that a forward can get at."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("loss_scale", None)
        self.cache = []
        self.seen = None
        self.norm.eval()

    def forward(self, x):
        self.train(not self.training)
        self.calls += 1
        self.register_buffer("mask", torch.ones(3))
        self.loss_scale = torch.ones(2)
        self.cache.append(x)
        self.seen = x * 2
        self.extra = nn.Linear(2, 2)
        self.linear.register_forward_hook(lambda *_: None)
        nn.modules.module.register_module_forward_hook(lambda *_: None)
        self.linear.weight.requires_grad_(False)
        torch.set_grad_enabled(not torch.is_grad_enabled())
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_num_threads(torch.get_num_threads() + 1)
        torch.set_autocast_enabled("cpu", True)
        torch.set_autocast_dtype("cpu", torch.float16)
        warnings.simplefilter("ignore", ResourceWarning)
        random.random(), np.random.rand(), torch.rand(2, device="cpu")
        out = self.drop(self.norm(self.linear(x.double().float())))
        with torch.autocast("cpu", enabled=False):
            return out.sum(dim=1)


def state(model):
    """Everything that has to stay, in a form that compares by ==."""
    hooks = nn.modules.module
    return {
        "keys": list(model.state_dict()),
        "values": {k: v.tolist() for k, v in model.state_dict().items()},
        "identities": {k: id(v) for k, v in model.state_dict(keep_vars=True).items()},
        "attributes": {(n, k): id(v) for n, m in model.named_modules() for k, v in vars(m).items()},
        "lists": [len(v) for v in vars(model).values() if isinstance(v, list)],
        "training": {n: m.training for n, m in model.named_modules()},
        "requires": {n: p.requires_grad for n, p in model.named_parameters()},
        "grads": {n: None if p.grad is None else id(p.grad) for n, p in model.named_parameters()},
        "hooks": {n: len(m._forward_hooks) for n, m in model.named_modules()},
        "global hooks": len(hooks._global_forward_hooks),
        "rng": (random.getstate(), torch.get_rng_state().tolist(), str(np.random.get_state())),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "threads": torch.get_num_threads(),
        "filters": list(warnings.filters),
    }


def assert_same(before, after):
    assert before.keys() == after.keys()
    for key in before:
        assert before[key] == after[key], key


@pytest.fixture(autouse=True)
def _process_state():
    hooks = dict(nn.modules.module._global_forward_hooks)
    threads = torch.get_num_threads()
    with warnings.catch_warnings():
        yield
    nn.modules.module._global_forward_hooks.clear()
    nn.modules.module._global_forward_hooks.update(hooks)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_num_threads(threads)
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_dtype("cpu", torch.bfloat16)


def test_the_model_of_these_tests_changes_every_item():
    model = Messy()
    model(torch.ones(2, 4))
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    model.linear.weight.requires_grad_(True)
    warnings.resetwarnings()
    before = state(model)
    model(torch.ones(2, 4))
    after = state(model)
    unchanged = {key for key in before if before[key] == after[key]}
    assert unchanged == {"keys", "grads"}  # the keys were added by the first call


@pytest.mark.parametrize("guard", [hygiene.untouched, hygiene.evaluation, hygiene.training])
def test_everything_is_put_back_after_success(guard):
    model = Messy()
    model.linear.weight.grad = torch.ones(4, 4)
    before = state(model)
    with guard(model):
        model(torch.ones(2, 4))
    assert_same(before, state(model))


@pytest.mark.parametrize("guard", [hygiene.untouched, hygiene.evaluation, hygiene.training])
@pytest.mark.parametrize("k", range(0, 14, 3))
def test_everything_is_put_back_when_an_operator_raises(guard, k):
    model = Messy()
    before = state(model)
    with pytest.raises(Interrupted), guard(model), RaiseAt(k):
        model(torch.ones(2, 4))
    assert_same(before, state(model))


@pytest.mark.parametrize("fails", [False, True])
def test_a_training_step_leaves_parameters_statistics_and_gradients(fails):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))
    gradient = torch.full((4, 4), 7.0)
    model[0].weight.grad = gradient
    before = state(model)
    how = Training(
        loss=lambda out, x: out.square().mean() if not fails else 1 / 0,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.1),
    )
    expected = pytest.raises(ZeroDivisionError) if fails else contextlib.nullcontext()
    with expected, hygiene.training(model):
        step = TrainingStep(model, Inputs.of(torch.randn(8, 4)), how)
        step()
        assert not torch.equal(model[0].weight, torch.tensor(before["values"]["0.weight"])), (
            "the step trained nothing: this test could not fail"
        )
    assert_same(before, state(model))
    assert model[0].weight.grad is gradient
    assert gradient.eq(7.0).all()


def test_a_pending_backward_of_the_caller_still_works():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    pending = model(torch.randn(3, 4)).sum()
    with hygiene.evaluation(model):
        model(torch.randn(3, 4))
    pending.backward()  # raises if a saved buffer or parameter was written to


def test_a_cache_made_under_inference_mode_does_not_stay():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.mask = nn.Linear(2, 2), None

        def forward(self, x):
            if self.mask is None:
                self.mask = torch.ones(2)
            return self.linear(x) * self.mask

    model = Cached()
    with hygiene.evaluation(model):
        model(torch.ones(1, 2))
    model(torch.ones(1, 2)).sum().backward()  # an inference tensor in the graph would raise


def test_evaluation_switches_off_training_and_gradients():
    model = nn.Sequential(nn.Dropout(), nn.Linear(2, 2))
    with hygiene.evaluation(model):
        assert not any(m.training for m in model.modules())
        assert torch.is_inference_mode_enabled()
    assert all(m.training for m in model.modules())


def test_training_keeps_the_frozen_parts_of_a_training_model():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[1].eval()
    with torch.no_grad(), hygiene.training(model):
        assert torch.is_grad_enabled()
    with torch.inference_mode(), hygiene.training(model):
        assert not model[1].training
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
    model.eval()
    with hygiene.training(model):
        assert model[1].training


def test_inference_copies_no_parameter_and_training_says_what_it_copied():
    model = nn.Sequential(nn.Linear(10, 10), nn.BatchNorm1d(10))
    statistics = 10 * 4 + 10 * 4 + 8  # running mean and variance, num_batches_tracked (int64)
    with hygiene.untouched(model) as kept:
        assert (kept.host, kept.device) == (statistics, 0)
    with hygiene.untouched(model, training=True) as kept:
        assert kept.host == statistics + (10 * 10 + 10 + 10 + 10) * 4


@pytest.mark.parametrize("training", [False, True])
def test_meta_and_lazy_models_do_not_crash(training):
    meta = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to("meta")
    with hygiene.untouched(meta, training=training):
        meta(torch.ones(2, 4, device="meta"))
    lazy = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    with hygiene.untouched(lazy, training=training):
        lazy(torch.ones(2, 4))
    assert lazy(torch.ones(2, 4)).shape == (2, 3)  # initialised once, and usable


def test_an_unused_lazy_model_stays_lazy():
    lazy = nn.Sequential(nn.LazyLinear(3))
    with hygiene.evaluation(lazy):
        pass
    assert lazy(torch.ones(2, 4)).shape == (2, 3)


def test_functions_bound_methods_and_scripted_modules_are_targets_too():
    before = torch.get_rng_state().tolist()
    with hygiene.evaluation(lambda: None):
        torch.rand(3)
    assert torch.get_rng_state().tolist() == before
    model = nn.Sequential(nn.Dropout(), nn.Linear(2, 2))
    with hygiene.evaluation(model.forward):
        assert not model.training
    assert model.training
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(model)
    with hygiene.evaluation(scripted):
        assert not scripted.training
        scripted(torch.ones(1, 2))
    assert scripted.training
    assert getattr(scripted, "0").training


def test_wrappers_around_objects_in_cpp_keep_what_they_noted_and_get_their_flags_back():
    model = nn.DataParallel(nn.Linear(2, 2))
    with hygiene.evaluation(model):
        assert not model.training
        model.noted = model.module.noted = 1
    assert hasattr(model, "noted")
    assert not hasattr(model.module, "noted")
    assert model.training
    assert model.module.training


def test_a_compiled_graph_is_kept():
    compiled = []

    def backend(graph, _):
        compiled.append(graph)
        return graph.forward

    model = torch.compile(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), backend=backend)
    for _ in range(3):
        with hygiene.evaluation(model):
            model(torch.ones(1, 2))
    assert len(compiled) == 1
