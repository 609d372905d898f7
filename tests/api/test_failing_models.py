"""A model that raises, or what is no model: every function that measures says so alike."""

import pytest
import torch
from torch import nn

import torchgauge as tg

QUICK = {"warmup": 0, "iterations": 2}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, mask=None):
        return self.linear(x)


class Optional(nn.Module):
    def forward(self, ids=None):
        return ids.shape


def raising(x):
    raise KeyError("the user's own words")


FUNCTIONS = {
    "profile": lambda model, *inputs: tg.profile(
        model, *inputs, detail="summary", roofs=False, **QUICK
    ),
    "measure_latency": lambda model, *inputs: tg.measure_latency(model, *inputs, **QUICK),
    "measure_memory": tg.measure_memory,
    "count_cost": tg.count_cost,
    "ModelProfiler": lambda model, *inputs: tg.ModelProfiler(model).profile(*inputs, 2, 0),
    "quick_profile": tg.quick_profile,
}
# These measure in processes of their own.
SLOW = {
    "gate": lambda model, inputs=None: tg.gate(
        (model, inputs), (model, inputs), blocks=3, max_blocks=3
    ),
    "compare": lambda model, inputs=None: tg.compare((model, inputs), (model, inputs), blocks=3),
    "advise": lambda model, inputs=None: tg.advise(model, inputs, candidates=["inference-mode"]),
    "sweep": lambda model, inputs=None: tg.sweep(model, inputs, {"batch": [1]}, **QUICK),
}
DIRECT = ("profile", "measure_latency", "measure_memory", "count_cost")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_model_raises_is_the_cause_of_an_input_error(name):
    with pytest.raises(tg.InputError) as caught:
        FUNCTIONS[name](Net(), torch.ones(2, 5))
    assert isinstance(caught.value, tg.MeasurementError)
    assert caught.value.exit_code == 1  # the command line's, where it is not raised
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert "In linear (Linear)" in caught.value.cause


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["advise", *(pytest.param(verb, marks=pytest.mark.slow) for verb in ("gate", "compare"))],
)
def test_so_it_is_where_another_process_measures(name):
    with pytest.raises(tg.InputError) as caught:
        SLOW[name](Net(), torch.ones(2, 5))
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert "mat1 and mat2" in str(caught.value.__cause__)


@pytest.mark.slow
def test_processes_of_their_own_tell_the_models_error():
    with pytest.raises(tg.InputError) as caught:
        tg.measure_latency(raising, torch.ones(1), processes=2, **QUICK)
    assert caught.value.__cause__.args == ("the user's own words",)
    assert isinstance(caught.value.__cause__, KeyError)
    assert "in raising" in caught.value.traceback


@pytest.mark.slow
def test_a_sweep_raises_where_no_cell_was_measured():
    with pytest.raises(tg.InputError, match="No cell was measured"):
        SLOW["sweep"](Net(), torch.ones(2, 5))


@pytest.mark.slow
def test_a_sweep_that_keeps_going_tells_how_its_cells_ended():
    swept = tg.sweep(Net(), torch.ones(2, 5), {"batch": [1]}, keep_going=True, **QUICK)
    assert [(cell.status, cell.error) for cell in swept.cells] == [("failed", "forward-raised")]


def test_ctrl_c_still_returns_what_was_measured():
    class Interrupted(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            if self.calls > 3:
                raise KeyboardInterrupt
            return x

    profile = tg.profile(Interrupted(), torch.ones(1), detail="summary", iterations=50, warmup=0)
    assert profile.interrupted


def test_a_later_probe_that_fails_leaves_the_record():
    """The model was timed: what comes after it must not take that away."""

    class Once(nn.Module):
        def forward(self, x):
            if torch.utils._python_dispatch._get_current_dispatch_mode() is not None:
                raise ValueError("not under a dispatch mode")
            return x * 2

    profile = tg.profile(Once(), torch.ones(1), detail="summary", roofs=False, **QUICK)
    assert profile.latency is not None
    assert "forward-raised" in {warning.id for warning in profile.warnings if warning.failed}


NOT_MODELS = {
    "a name": ("resnet18", "torchvision.models.resnet18()"),
    "a class": (Net, "Net()"),
    "a state dict": (Net().state_dict(), "load_state_dict"),
    "a tensor": (torch.ones(1), "torch.nn.Module"),
    "nothing": (None, "torch.nn.Module"),
}


@pytest.mark.parametrize("value", NOT_MODELS)
@pytest.mark.parametrize("name", [*DIRECT, *SLOW])
def test_what_is_no_model_is_refused_before_anything_runs(name, value):
    model, remedy = NOT_MODELS[value]
    with pytest.raises(tg.InputError) as caught:
        (FUNCTIONS | SLOW)[name](model, torch.ones(2, 4))
    assert caught.value.id == "not-callable"
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("value", NOT_MODELS)
def test_the_size_of_no_model_is_refused(value):
    with pytest.raises(tg.InputError) as caught:
        tg.measure_size(NOT_MODELS[value][0])
    assert caught.value.id == "not-callable"


INPUTS = {
    "a list": ([torch.ones(2, 4)], "forward-raised", "tuple of several"),
    "an array": (torch.ones(2, 4).numpy(), "forward-raised", "torch.from_numpy(array)"),
    "a shape": ((2, 4), "forward-raised", "torch.randn(2, 4)"),
    "a text": ("hello", "forward-raised", "these are str"),
    "float64": (torch.ones(2, 4).double(), "forward-raised", "float64 and its parameters float32"),
    "another name": (
        {"x": torch.ones(2, 4), "maks": None},
        "inputs-unfit",
        "mask in place of maks",
    ),
    "too many": ((1.0, 2.0, 3.0), "inputs-unfit", "these are float"),
}


@pytest.mark.parametrize("value", INPUTS)
@pytest.mark.parametrize("name", DIRECT)
def test_inputs_that_do_not_fit_have_a_remedy(name, value):
    inputs, error_id, remedy = INPUTS[value]
    with pytest.raises(tg.InputError) as caught:
        FUNCTIONS[name](Net(), inputs)
    assert caught.value.id == error_id
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("name", DIRECT)
def test_no_inputs_are_told_with_the_models_signature(name):
    with pytest.raises(tg.InputError) as caught:
        FUNCTIONS[name](Net())
    assert caught.value.id == "input-missing"
    assert "forward(x, mask=None)" in caught.value.message


def test_a_model_that_all_may_be_left_out_of_is_asked_for_inputs():
    with pytest.raises(tg.InputError) as caught:
        tg.count_cost(Optional())
    assert isinstance(caught.value.__cause__, AttributeError)
    assert caught.value.remedy.startswith("Give its inputs")


def test_stages_take_other_inputs_than_the_model():
    latency = tg.measure_latency(
        Net(), (1, 2, 3), preprocess=lambda numbers: torch.ones(1, 4), **QUICK
    )
    assert [stage.name for stage in latency.stages] == ["preprocess", "model"]
