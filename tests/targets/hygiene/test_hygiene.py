"""The model leaves as it came: on success, and when forward raises at any operator."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import tracemalloc
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from torchgauge.targets import hygiene
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.training.training import Training, TrainingStep


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
    assert all(parameter.grad is not None for parameter in model.parameters())


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
    assert not model.mask.is_inference()


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


def test_inference_copies_little_and_training_every_parameter():
    model = nn.Sequential(nn.Linear(2000, 1000), nn.BatchNorm1d(1000))
    statistics = 1000 * 4 + 1000 * 4 + 8  # running mean and variance, num_batches_tracked (int64)
    small = 3 * 1000 * 4  # the bias, and the normalisation's two
    with hygiene.untouched(model, Inputs.of(torch.ones(2, 2000))) as kept:
        assert (kept.host, kept.device) == (statistics + small + 2 * 2000 * 4, 0)
    with hygiene.untouched(model, training=True) as kept:
        assert kept.host == statistics + small + 2000 * 1000 * 4


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


class Writes(nn.Module):
    """Its forward writes to its own tensors the way `write` does."""

    def __init__(self, write, size=4):
        super().__init__()
        self.linear, self.write = nn.Linear(size, size), write
        self.register_buffer("count", torch.zeros(2))
        self.linear.weight.grad = torch.ones(size, size)

    def forward(self, x):
        self.write(self)
        return x * 1


def _twice(tensor):
    tensor.data = tensor.data * 2


WRITES = {
    "linear.weight": (
        lambda m: m.linear.weight.data.mul_(2),
        lambda m: m.linear.weight.detach().mul_(2),
        lambda m: m.linear.weight.detach().numpy().fill(3),
        lambda m: _twice(m.linear.weight),
        lambda m: m.linear.weight.detach()[1, 2].fill_(3),
    ),
    "count": (lambda m: m.count.add_(1), lambda m: _twice(m.count.add_(1))),
    "linear.weight.grad": (lambda m: m.linear.weight.grad.add_(1),),
}
CASES = [(name, write) for name, writes in WRITES.items() for write in writes]


@pytest.mark.parametrize(("name", "write"), CASES)
def test_what_a_small_model_writes_to_itself_is_put_back_and_said(name, write):
    model = Writes(write)
    before, grads = state(model), model.linear.weight.grad.tolist()
    with hygiene.evaluation(model) as kept:
        model(torch.ones(1))
        assert state(model)["values"] != before["values"] or grads != (
            model.linear.weight.grad.tolist()
        )
    assert_same(before, state(model))
    assert model.linear.weight.grad.tolist() == grads
    assert (kept.restored, kept.altered) == ([name], [])
    (warning,) = kept.warnings("latency")
    assert (warning.id, warning.probe) == ("model-changed", "latency")
    assert name in warning.message
    assert "Not put back" not in warning.message


@pytest.mark.parametrize("write", WRITES["linear.weight"])
def test_what_a_large_model_writes_to_itself_is_said(write):
    model = Writes(write, size=1200)
    weight, values = model.linear.weight.data_ptr(), model.linear.weight.detach().clone()
    with hygiene.evaluation(model) as kept:
        model(torch.ones(1))
    assert model.linear.weight.data_ptr() == weight
    back = torch.equal(model.linear.weight, values)  # another storage can always be taken away
    assert (kept.restored, kept.altered) == (
        (["linear.weight"], []) if back else ([], ["linear.weight"])
    )
    (warning,) = kept.warnings("latency")
    assert ("Not put back: linear.weight" in warning.message) is not back


def test_a_cast_inside_the_forward_is_undone_whatever_the_size():
    model = Writes(lambda m: m.half(), size=1200)
    with hygiene.evaluation(model) as kept:
        model(torch.ones(1))
        assert model.linear.weight.dtype is torch.float16
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert kept.altered == []


def test_another_place_of_the_same_values_is_no_change():
    lstm = nn.LSTM(3, 3)
    places = [p.data_ptr() for p in lstm.parameters()]
    with hygiene.evaluation(lstm) as kept:
        for parameter in lstm.parameters():
            parameter.data = parameter.data.clone()
    assert [p.data_ptr() for p in lstm.parameters()] == places
    assert kept.warnings("latency") == ()


def test_a_training_step_changes_its_model_by_intent():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with hygiene.training(model) as kept:
        model(torch.ones(2, 2))
        model[0].weight.data.add_(1)
    assert kept.warnings("latency") == ()


def test_nan_is_no_change():
    model = Writes(lambda m: None)
    model.count.fill_(torch.nan)
    version = model.count._version
    with hygiene.evaluation(model) as kept:
        model(torch.ones(1))
    assert kept.warnings("latency") == ()
    assert model.count._version == version


@pytest.mark.parametrize(
    "tensor",
    [
        torch.eye(3).to_sparse(),
        torch.ones(3).to(torch.float8_e4m3fn),
        torch.ones(4, 1, 2, 2).to(memory_format=torch.channels_last),
        torch.ones(1).expand(3),
        torch.ones(3, dtype=torch.complex64),
        torch.tensor([], dtype=torch.int8),
    ],
    ids=lambda tensor: f"{tensor.layout} {tensor.dtype}",
)
def test_unusual_tensors_pass(tensor):
    model = Writes(lambda m: None)
    model.register_buffer("unusual", tensor)
    with hygiene.evaluation(model, Inputs.of(tensor)) as kept:
        model(torch.ones(1))
    assert kept.warnings("size") == ()


def test_inputs_and_their_containers_are_put_back():
    tensor, items = torch.ones(3), [torch.zeros(2)]
    first = items[0]
    inputs = Inputs(args=(tensor, items), kwargs={"more": {"a": torch.ones(2)}})

    def model(x, items, more):
        x.add_(1)
        items[0].add_(5)
        items.append(x)
        more.clear()

    with hygiene.evaluation(model, inputs) as kept:
        model(*inputs.args, **inputs.kwargs)
    assert tensor.tolist() == [1, 1, 1]
    assert first.tolist() == [0, 0]
    assert len(items) == 1
    assert items[0] is first
    assert list(inputs.kwargs["more"]) == ["a"]
    assert kept.inputs == {"0": True, "1.0": True}
    assert [w.id for w in kept.warnings("latency")] == ["inputs-changed"]


def test_large_inputs_that_change_are_said():
    x = torch.zeros(2_000_000)
    with hygiene.evaluation(lambda x: x.add_(1), Inputs.of(x)) as kept:
        x.add_(1)
    assert kept.inputs == {"0": False}
    assert "Not put back: 0" in kept.warnings("latency")[0].message


def _tracer(*_):
    return None


def process_state():
    return {
        "matmul": torch.matmul,
        "F.linear": nn.functional.linear,
        "namespaces": (torch.linalg.norm, torch.fft.fft, torch.special.erf),
        "Tensor.add": torch.Tensor.add,
        "Tensor.add is inherited": "add" not in vars(torch.Tensor),
        "call": nn.Module.__call__,
        "Linear.forward": nn.Linear.forward,
        "environment": dict(os.environ),
        "tracing": (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        "tracemalloc": tracemalloc.is_tracing(),
        "gc": (gc.isenabled(), gc.get_threshold()),
        "recursion": sys.getrecursionlimit(),
        "numpy": np.geterr(),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "benchmark": torch.backends.cudnn.benchmark,
        "matmul precision": torch.get_float32_matmul_precision(),
        "cache": torch.is_autocast_cache_enabled(),
    }


CHANGES = {
    "matmul": lambda: setattr(torch, "matmul", _tracer),
    "F.linear": lambda: setattr(nn.functional, "linear", _tracer),
    "linalg": lambda: setattr(torch.linalg, "norm", _tracer),
    "fft": lambda: setattr(torch.fft, "fft", _tracer),
    "special": lambda: setattr(torch.special, "erf", _tracer),
    "Tensor.add": lambda: setattr(torch.Tensor, "add", _tracer),
    "call": lambda: setattr(nn.Module, "__call__", _tracer),
    "Linear.forward": lambda: setattr(nn.Linear, "forward", _tracer),
    "environment": lambda: os.environ.update(HOME="/nowhere", TORCHGAUGE_TEST="1"),
    "environment less": lambda: os.environ.pop("PATH"),
    "trace": lambda: sys.settrace(_tracer),
    "profile": lambda: sys.setprofile(_tracer),
    "trace of threads": lambda: threading.settrace(_tracer),
    "profile of threads": lambda: threading.setprofile(_tracer),
    "tracemalloc": tracemalloc.start,
    "gc": gc.disable,
    "gc threshold": lambda: gc.set_threshold(1),
    "recursion": lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 7),
    "numpy": lambda: np.seterr(all="raise"),
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "matmul precision": lambda: torch.set_float32_matmul_precision("medium"),
    "cache": lambda: torch.set_autocast_cache_enabled(False),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_process_is_put_back(change):
    before = process_state()
    with hygiene.evaluation(nn.Linear(2, 2)):
        change()
        changed = process_state() != before
    assert changed
    after = process_state()
    assert {k for k in before if before[k] != after[k]} == set()


def test_tracemalloc_of_the_caller_goes_on():
    tracemalloc.start(3)
    try:
        with hygiene.evaluation(nn.Linear(2, 2)):
            tracemalloc.stop()
        assert (tracemalloc.is_tracing(), tracemalloc.get_traceback_limit()) == (True, 3)
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_what_dynamo_wraps_once_per_process_stays_wrapped():
    code = (
        "import torch\n"
        "from torchgauge.targets import hygiene\n"
        "before = torch.manual_seed\n"
        "model = torch.compile(torch.nn.Linear(2, 2), backend='eager')\n"
        "with hygiene.evaluation(model):\n"
        "    model(torch.ones(1, 2))\n"
        "    inside = torch.manual_seed\n"
        "assert inside is torch.manual_seed\n"
        "print(before is inside)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Broken(Exception):
    pass


def _break(monkeypatch):
    def dead(*_, **__):
        raise Broken("the device is gone")

    monkeypatch.setattr("torchgauge.targets.hygiene.values._put_back", dead)


def test_what_cannot_be_put_back_hides_no_error_and_stops_nothing_else(monkeypatch):
    _break(monkeypatch)
    model = nn.Linear(2, 2)

    def fail():
        torch.set_default_dtype(torch.float64)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised, hygiene.evaluation(model):
        fail()
    assert any("the device is gone" in note for note in raised.value.__notes__)
    assert torch.get_default_dtype() is torch.float32
    assert model.training


def test_what_cannot_be_put_back_after_success_is_a_warning(monkeypatch):
    _break(monkeypatch)
    with hygiene.evaluation(nn.Linear(2, 2)) as kept:
        pass
    (warning,) = kept.warnings("memory")
    assert warning.id == "not-restored"
    assert "values (Broken: the device is gone)" in warning.message


class Watching(type):
    """Runs `meanwhile` when a method of a class of it is put back."""

    meanwhile = None

    def __setattr__(cls, name, value):
        if Watching.meanwhile is not None and name == "helper":
            Watching.meanwhile()
        super().__setattr__(name, value)


class Patching(nn.Module, metaclass=Watching):
    """Its forward changes itself and replaces its own method."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(3))
        self.kept = []

    def helper(self):
        return 1

    def forward(self, x):
        self.calls += 1
        self.kept.append(x)
        self.linear.train(not self.linear.training)
        type.__setattr__(type(self), "helper", lambda _: 2)
        with torch.no_grad():
            self.linear.weight.mul_(2)
        return self.linear(x)


@pytest.fixture
def patching():
    helper = Patching.helper
    yield Patching()
    Watching.meanwhile = None
    type.__setattr__(Patching, "helper", helper)


def _as_it_was(model, before):
    assert {name: one.tolist() for name, one in model.state_dict().items()} == before
    assert (model.kept, model.training, model.linear.training) == ([], True, True)


@pytest.mark.parametrize("mode", [hygiene.evaluation, hygiene.training])
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_while_the_model_is_put_back_waits_until_it_is(patching, mode, times):
    before = {name: one.tolist() for name, one in patching.state_dict().items()}

    def sent():
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)

    Watching.meanwhile = sent
    with pytest.raises(KeyboardInterrupt), mode(patching) as kept:
        patching(torch.ones(2, 4))
    _as_it_was(patching, before)
    assert patching.helper() == 1
    assert kept.failed == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_of_code_that_restoring_runs_is_told_and_stops_nothing_else(patching):
    before = {name: one.tolist() for name, one in patching.state_dict().items()}

    def raising():
        raise KeyboardInterrupt

    Watching.meanwhile = raising
    with pytest.raises(KeyboardInterrupt) as raised, hygiene.evaluation(patching) as kept:
        patching(torch.ones(2, 4))
    _as_it_was(patching, before)
    assert kept.failed == ["functions (KeyboardInterrupt)"]
    (warning,) = hygiene.not_restored(raised.value, "memory")
    assert warning.id == "not-restored"
    assert "functions" in warning.message


def test_a_part_that_cannot_be_put_back_costs_no_other_of_its_kind(monkeypatch):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    before = [one.tolist() for one in model.parameters()]
    first = id(next(model.parameters()))
    put_back = hygiene.values._put_back

    def failing(item, *given, **named):
        if id(item.tensor) == first:
            raise Broken("gone")
        put_back(item, *given, **named)

    monkeypatch.setattr(hygiene.values, "_put_back", failing)
    with hygiene.training(model) as kept, torch.no_grad():
        for one in model.parameters():
            one.add_(1)
    assert [one.tolist() for one in model.parameters()][1:] == before[1:]
    assert "Broken" in kept.failed[0]


class Trainable(nn.Module):
    """As a library's object of a model: its `train` is a whole run, which torch's `eval` calls."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout())

    def train(self, trainer=None, **options):
        raise AssertionError("trained")

    def forward(self, x):
        return self.layer(x)


@pytest.mark.parametrize("wrap", [lambda model: model, nn.Sequential])
def test_modes_are_set_where_train_is_a_run_of_training(wrap):
    model = wrap(Trainable())
    modules = list(model.modules())
    with hygiene.evaluation(model):
        assert {one.training for one in modules} == {False}
    assert {one.training for one in modules} == {True}
    for one in modules:
        one.training = False
    with hygiene.training(model):
        assert {one.training for one in modules} == {True}
    assert {one.training for one in modules} == {False}


def test_an_own_train_that_takes_the_mode_is_called():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def train(self, mode=True):
            super().train(mode)
            self.norm.eval()
            return self

    model = Frozen().eval()
    with hygiene.training(model):
        assert (model.training, model.norm.training) == (True, False)
