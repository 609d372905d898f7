"""Modules that torch itself cannot walk or copy, and names that are none, are told by an id."""

from __future__ import annotations

import threading
import types
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import torchgauge as tg
from torchgauge.errors import InputError, TorchgaugeError, text_of
from torchgauge.measure.forward import translated
from torchgauge.targets.modules import check_tree
from torchgauge.targets.precisions import name_of

X = torch.ones(2, 4)


class Equal(nn.Linear):
    """Compares by value, as a dataclass does, and so has no hash."""

    __hash__ = None

    def __eq__(self, other):
        return True


class Anything:
    """Answers whatever it is asked."""

    def __getattr__(self, name):
        return types.SimpleNamespace()

    def __call__(self, x):
        return x * 2


def quick(model, inputs=X, **options):
    options = {"detail": "layers", "iterations": 2, "processes": 1} | options
    return tg.profile(model, inputs, roofs=False, progress=False, **options)


@pytest.mark.parametrize("model", [Equal(4, 4), nn.Sequential(nn.Identity(), Equal(4, 4))])
def test_a_module_without_a_hash_is_refused_by_name(model):
    for measure in (quick, tg.count_cost, tg.measure_memory):
        with pytest.raises(InputError) as caught:
            measure(model, X)
        assert caught.value.id == "module-unhashable"
        assert "Equal" in caught.value.cause


def test_the_layer_that_raised_is_told_of_modules_without_a_hash():
    model = nn.Linear(4, 4)
    model.part = Equal(4, 4)
    with pytest.raises(RuntimeError) as raised:
        model(torch.ones(2, 5))
    assert "Linear" in translated(raised.value, "cpu", "It").cause


def test_a_module_that_contains_itself_is_refused_once():
    model = nn.Sequential(nn.Linear(4, 4), nn.Identity())
    model[1].back = model
    for measure in (quick, tg.count_cost):
        with pytest.raises(InputError) as caught:
            measure(model, X)
        assert caught.value.id == "module-cycle"
        assert "1.back" in caught.value.message


def refused_everywhere(model, id):
    """Refused by a sweep and by `ModelProfiler`, which look at a model before they open it."""
    for measure in (
        lambda: tg.sweep(model, X, {"batch": [2]}, progress=False),
        lambda: tg.ModelProfiler(model).profile(X, num_runs=1, warmup_runs=0),
    ):
        with pytest.raises(InputError) as caught:
            measure()
        assert caught.value.id == id


def test_what_looks_at_a_model_first_refuses_it_as_the_others_do():
    cycle = nn.Sequential(nn.Linear(4, 4), nn.Identity())
    cycle[1].back = cycle
    refused_everywhere(cycle, "module-cycle")
    refused_everywhere(nn.Sequential(Equal(4, 4)), "module-unhashable")


class Raising:
    """Raises at what it is asked, and can be called."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __call__(self, x):
        return x * 2


@pytest.mark.thorough
def test_a_callable_that_raises_at_every_attribute_is_profiled():
    found = tg.ModelProfiler(Raising()).profile(X, num_runs=2, warmup_runs=1)
    assert "Raising" in str(found)


NESTED = torch.nested.nested_tensor([torch.ones(1, 4), torch.ones(3, 4)])


@pytest.mark.slow
@pytest.mark.parametrize(("model", "inputs"), [(nn.LazyLinear(3), X), (nn.Linear(4, 4), NESTED)])
def test_tensors_without_a_shape_of_their_own_are_swept(model, inputs):
    result = tg.sweep(
        model, inputs, {"precision": ["fp32"]}, iterations=2, warmup=0, progress=False
    )
    assert [cell.status for cell in result.cells] == ["done"]


def test_shared_and_repeated_modules_are_no_cycle():
    part = nn.Linear(4, 4)
    check_tree(nn.Sequential(part, part, nn.Sequential(part)))


def test_a_callable_that_answers_everything_has_a_name_that_is_text(tmp_path):
    found = quick(Anything())
    assert found.target.name == "Anything"
    assert not [one for one in found.warnings if one.failed]
    found.save(tmp_path / "found.json")
    assert "Anything" in str(tg.load(tmp_path / "found.json"))
    assert name_of(nn.Linear) == "Linear"


@pytest.mark.parametrize("attribute", ["lock", "stream"])
def test_what_cannot_be_copied_is_told_as_that(attribute):
    model = nn.Linear(4, 4)
    model.held = threading.Lock() if attribute == "lock" else Path("/dev/null").open()  # noqa: SIM115
    assert quick(model).latency is not None
    with pytest.raises(InputError) as caught:
        quick(model, precision="bf16")
    assert caught.value.id == "not-copyable"
    assert model.weight.dtype is torch.float32


def test_a_fake_model_is_counted_and_never_timed():
    with FakeTensorMode():
        model, x = nn.Linear(4, 4), torch.ones(2, 4)
    found = quick(model, x)
    assert found.cost.flops == 64
    assert found.latency is found.memory is found.system is None
    assert [one.id for one in found.warnings] == ["meta-device"]
    for measure in (tg.measure_latency, tg.measure_memory):
        with pytest.raises(TorchgaugeError) as caught:
            measure(model, x)
        assert caught.value.id == "meta-model"


def test_nothing_is_measured_inside_of_a_fake_mode():
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.raises(InputError) as caught:
        quick(nn.Linear(4, 4))
    assert caught.value.id == "fake-mode"


def test_an_error_whose_text_raises_is_told_by_its_class():
    class Silent(Exception):
        def __str__(self):
            raise ValueError

    def fail(_):
        raise Silent

    assert text_of(Silent()) == "Silent"
    with pytest.raises(TorchgaugeError) as caught:
        tg.count_cost(fail, X)
    assert caught.value.cause == "Silent"
