import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.errors import InputError
from torchgauge.measure import plan

QUICK = {"warmup": 1, "iterations": 4, "effort": "quick"}
SUMMARY = {**QUICK, "detail": "summary"}


class Net(nn.Sequential):
    pass


@pytest.fixture
def model():
    return Net(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def test_everything_is_measured_and_adds_up(model):
    profile = tg.profile(model, torch.ones(2, 8), **{**QUICK, "effort": "usual"})
    assert profile.complete
    assert profile.target.name == "Net"
    assert [i.shape for i in profile.target.inputs] == [(2, 8)]
    assert profile.size.parameters == 212
    assert profile.throughput.samples == pytest.approx(2 / profile.latency.median)
    assert sum(profile.memory.parts.values()) == profile.memory.peak
    # The ReLU holds its input and its output of 2×16 floats each; the result comes later.
    assert profile.memory.peak == 4 * 212 + 4 * 2 * 8 + 2 * (4 * 2 * 16)
    assert profile.system.calls >= 1
    whole = profile.tree.root.host_time
    assert profile.tree.headline_ratio == pytest.approx(whole / profile.latency.median)
    assert [p.probe for p in profile.passes] == [
        "loading", "size", "latency", "system", "cost", "memory", "timeline",
        "roofs",
    ]  # fmt: skip


def test_a_saved_profile_is_the_same_profile(model, tmp_path):
    profile = tg.profile(model, torch.ones(2, 8), **QUICK)
    assert tg.load(profile.save(tmp_path / "run.json")) == profile
    assert str(tg.load(tmp_path / "run.json")) == str(profile)


@pytest.mark.thorough
def test_training_is_profiled_and_undone(model):
    before = {k: v.clone() for k, v in model.state_dict().items()}
    train = tg.Training(lambda out, _: out.mean(), torch.optim.AdamW)
    profile = tg.profile(model, torch.ones(2, 8), train=train, **QUICK)
    assert profile.complete, profile.warnings
    assert profile.target.training
    assert profile.memory.gradients == 4 * 212
    assert profile.memory.optimizer == 2 * 4 * 212 + 4 * 4  # two moments, and a step a tensor
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_a_failing_probe_leaves_the_others(model, monkeypatch):
    def broken(*_, **__):
        raise tg.MeasurementError("No.", id="broken-probe", cause="C", remedy="R")

    monkeypatch.setattr(plan.system_probe, "measure", broken)
    profile = tg.profile(model, torch.ones(2, 8), **QUICK)
    assert profile.system is None
    assert profile.latency is not None
    assert profile.memory is not None
    assert not profile.complete
    assert [(w.id, w.probe, w.failed) for w in profile.warnings] == [
        ("broken-probe", "system", True)
    ]


def test_a_forward_that_raises_is_raised(model):
    with pytest.raises(InputError) as caught:
        tg.profile(model, torch.ones(2, 9), **QUICK)
    assert isinstance(caught.value, tg.MeasurementError)  # as before
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert caught.value.id == "forward-raised"


def test_a_profile_that_keeps_going_says_once_that_a_forward_raised(model):
    profile = tg.profile(model, torch.ones(2, 9), keep_going=True, **QUICK)
    assert [w.id for w in profile.warnings] == ["forward-raised", *["skipped"] * 4]
    assert "test_plan" not in profile.warnings[0].traceback
    assert "linear" in profile.warnings[0].traceback
    assert profile.size.parameters == 212


def test_an_interrupt_keeps_what_was_measured(model, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(plan.system_probe, "measure", interrupted)
    profile = tg.profile(model, torch.ones(2, 8), **QUICK)
    assert profile.interrupted
    assert profile.latency is not None
    assert profile.memory is None


@pytest.mark.thorough
def test_inputs_of_every_form():
    class Model(nn.Module):
        def forward(self, a, b=None):
            return a if b is None else a + b

    one = torch.ones(3, 4)
    shapes = {
        "tensor": one,
        "tuple": (one, one),
        "mapping": {"a": one, "b": one},
        "Inputs": tg.Inputs((one,), {"b": one}),
    }
    names = {
        form: [i.name for i in tg.profile(Model(), inputs, **SUMMARY).target.inputs]
        for form, inputs in shapes.items()
    }
    assert names == {
        "tensor": ["0"],
        "tuple": ["0", "1"],
        "mapping": ["a", "b"],
        "Inputs": ["0", "b"],
    }


def test_a_callable_is_profiled():
    profile = tg.profile(torch.relu, torch.ones(2, 3), **QUICK)
    assert profile.complete
    assert profile.size is None  # unknown, and never 0
    assert [w.id for w in profile.warnings] == ["not-a-module"]
    assert profile.target.kind == "callable"


def test_a_bound_method_is_that_of_its_module(model):
    profile = tg.profile(model.forward, torch.ones(2, 8), **QUICK)
    assert profile.size.parameters == 212
    assert profile.memory.parameters == 4 * 212


def test_an_error_nobody_foresaw_leaves_the_others_too(model, monkeypatch):
    def crashing(*_, **__):
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(plan.system_probe, "measure", crashing)
    profile = tg.profile(model, torch.ones(2, 8), **QUICK)
    assert profile.latency is not None
    assert profile.memory is not None
    (warning,) = profile.warnings
    assert (warning.id, warning.failed) == ("probe-crashed", True)
    assert "ZeroDivisionError: surprise" in warning.cause


def test_precision_is_stated_and_the_model_is_left(model):
    profile = tg.profile(model, torch.ones(2, 8), precision="bf16", **QUICK)
    assert (profile.target.precision, profile.target.precision_method) == ("bf16", "cast")
    assert profile.memory.parameters == 2 * 212
    assert profile.target.inputs[0].dtype == "bfloat16"
    assert model[0].weight.dtype is torch.float32


def test_a_gpu_that_is_not_there_is_no_silent_cpu_run(model):
    with pytest.raises(InputError) as caught:
        tg.profile(model, torch.ones(2, 8), device="cuda:63")
    assert caught.value.id == "device-absent"


@pytest.mark.thorough
def test_images_and_tokens_are_named():
    profile = tg.profile(nn.Conv2d(3, 4, 3), torch.ones(2, 3, 16, 16), **SUMMARY)
    assert profile.throughput.images == pytest.approx(2 / profile.latency.median)
    assert profile.throughput.tokens is None

    class Words(nn.Module):
        def forward(self, input_ids):
            return input_ids.float()

    profile = tg.profile(Words(), {"input_ids": torch.ones(2, 7, dtype=torch.int64)}, **SUMMARY)
    assert profile.throughput.tokens == pytest.approx(14 / profile.latency.median)
    assert profile.throughput.images is None


@pytest.mark.thorough
def test_profiling_twice_gives_the_same_counts(model):
    first, second = (tg.profile(model, torch.ones(2, 8), **SUMMARY) for _ in range(2))
    assert first.size == second.size
    assert first.memory.parts == second.memory.parts
    assert first.target == second.target


@pytest.mark.slow
def test_the_detail_asked_for_is_how_far_down_the_tree_goes():
    kinds = {}
    for detail in ("summary", "layers", "operators"):
        profile = tg.profile(nn.Linear(4, 4), torch.ones(2, 4), detail=detail, iterations=2)
        kinds[detail] = {row.kind for row in profile.tree.rows} if profile.tree else set()
    assert kinds == {
        "summary": set(),
        "layers": {"model", "bucket"},
        "operators": {"model", "bucket", "operator"},
    }
    with pytest.raises(InputError, match="not a level of detail"):
        tg.profile(nn.Linear(4, 4), torch.ones(2, 4), detail="deep")


@pytest.mark.slow
def test_tables_of_a_profile():
    profile = tg.profile(nn.Sequential(nn.Linear(4, 4)), torch.ones(2, 4), iterations=2)
    assert profile.table("layers").columns["path"] == ["", "0"]
    flops = [one for one in profile.table("operators").columns["flops"] if one]
    assert flops == [2 * 2 * 4 * 4]  # of one operator, whichever took longest
    assert "Input Shapes" in profile.table("operators", by_shape=True).columns
    assert len(profile.table("kernels")) == 0
    frame = profile.to_pandas()
    assert frame.loc[frame["path"] == "0", "flops"].item() == 2 * 2 * 4 * 4
    with pytest.raises(InputError, match="no table 'modules'"):
        profile.table("modules")
    bare = tg.profile(nn.Linear(4, 4), torch.ones(2, 4), detail="summary", iterations=2)
    with pytest.raises(InputError, match="no tree"):
        bare.table("layers")


def test_a_profile_comes_back_from_disk_with_its_tree(tmp_path):
    profile = tg.profile(nn.Sequential(nn.Linear(4, 4)), torch.ones(2, 4), iterations=2)
    again = tg.load(profile.save(tmp_path / "profile.json"))
    assert again.tree.rows == profile.tree.rows
    assert again.tree.find("0").host_time == profile.tree.find("0").host_time
    assert str(again) == str(profile)


@pytest.mark.parametrize(
    ("processes", "detail"),
    [
        pytest.param(2, "layers", marks=pytest.mark.slow),
        pytest.param(2, "summary", marks=pytest.mark.slow),
        (1, "layers"),
    ],
)
def test_each_of_several_processes_times_its_layers(model, processes, detail):
    """What a later comparison of layers needs; one process would say nothing of its spread."""
    profile = tg.profile(model, torch.ones(2, 8), processes=processes, detail=detail, **QUICK)
    wanted = processes > 1 and detail != "summary"
    for run in profile.latency.processes:
        assert set(run.layer_times) == ({"", "0", "1", "2"} if wanted else set())
        assert all(seconds > 0 for seconds in run.layer_times.values())
