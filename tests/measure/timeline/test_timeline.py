"""The tree of a real run: what adds up, whose each operator is, and torch's own table beside it."""

import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import torchgauge as tg
from torchgauge.analyze.work.tree_costs import with_costs
from torchgauge.measure.effort import USUAL
from torchgauge.measure.forward import opened
from torchgauge.measure.recording import capture_limit as capture
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.timeline import timeline
from torchgauge.records.timeline import tables
from torchgauge.records.timeline.node import base_name, own_nodes
from torchgauge.targets.builds.source import Source


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.shared = nn.Linear(16, 16)
        self.block = nn.Sequential(self.shared, nn.ReLU())

    def forward(self, x):
        return self.shared(self.block(self.first(x))) * 2


def tree_of(model, *inputs, train=None, **options):
    source = Source.of_object(model, inputs, training=train is not None)
    return timeline.measure(opened(source), train=train, **options)


def sgd(loss=lambda outputs, _inputs: outputs.sum()):
    return tg.Training(loss, lambda parameters: torch.optim.SGD(parameters, lr=0.1))


def names_below(node, phase):
    return Counter(
        base_name(one.name)
        for one in own_nodes(node)
        if one.kind == "operator" and one.row.phase == phase
    )


@pytest.fixture(scope="module")
def inference():
    return tree_of(Net().eval(), torch.ones(4, 8))


@pytest.fixture(scope="module")
def training():
    return tree_of(Net(), torch.ones(4, 8), train=sgd())


def test_layers_are_those_that_were_called(inference):
    paths = [node.row.path for node in inference.root.walk() if node.kind in ("model", "layer")]
    assert paths == ["", "first", "block", "block.0", "block.1", "shared"]
    assert inference.find("block").layers[0].path == "block.0"
    assert [node.calls for node in inference.match("*")] == [1] * 6


def test_every_total_is_the_sum_of_its_parts(training):
    for node in training.root.walk():
        below = sum(child.total("host") for child in node.children)
        assert node.total("host") == node.row.host + below
    assert training.root.total("host") == sum(row.host for row in training.rows)


def test_operators_are_in_their_layer(inference):
    assert names_below(inference.find("first"), "forward")["aten::addmm"] == 1
    assert names_below(inference.find("block.1"), "forward") == Counter(
        {"aten::relu": 1, "aten::clamp_min": 1}
    )
    assert names_below(inference.root, "forward")["aten::mul"] == 1
    assert not names_below(inference.root, "forward")["aten::relu"]


def test_backward_operators_are_where_their_forward_was(training):
    first = names_below(training.find("first"), "backward")
    assert (first["AddmmBackward0"], first["torch::autograd::AccumulateGrad"]) == (1, 2)
    assert names_below(training.find("block.1"), "backward")["ReluBackward0"] == 1
    assert names_below(training.root, "backward")["MulBackward0"] == 1
    buckets = {node.name: node for node in training.root.children if node.kind == "bucket"}
    assert set(buckets) == {"optimizer", "autograd engine", "outside the model"}
    assert any("SGD.step" in node.name for node in buckets["optimizer"].children)
    assert names_below(buckets["outside the model"], "backward")["SumBackward0"] == 1


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_operators_are_in_their_layer_and_told_apart(reentrant):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            return checkpoint(self.layer, x, use_reentrant=reentrant)

    x = torch.ones(4, 8, requires_grad=True)
    layer = tree_of(Checkpointed(), x, train=sgd()).find("layer")
    assert names_below(layer, "recompute")["aten::addmm"] == 1
    assert names_below(layer, "backward")["AddmmBackward0"] == 1
    assert names_below(layer, "forward")["aten::addmm"] == 1


@pytest.mark.parametrize("train", [False, True])
def test_names_and_calls_are_those_of_torch_s_own_table(train):
    model, x = Net(), torch.ones(4, 8)
    tree = tree_of(model if train else model.eval(), x, train=sgd() if train else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        if not train:
            with torch.inference_mode():
                return model(x)
        optimizer.zero_grad(set_to_none=True)
        model(x).sum().backward()
        return optimizer.step()

    step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        step()
    wanted = Counter({event.key: event.count for event in recorded.key_averages()})
    found = tables.operators(tree)
    assert dict(zip(found.columns["Name"], found.columns["# of Calls"], strict=True)) == wanted


def test_the_work_on_the_tree_is_what_was_counted(training):
    model, x = Net(), torch.ones(4, 8)
    cost = tg.count_cost(model, x, backward=True)
    tree = with_costs(training, cost)
    assert (tree.root.flops, tree.root.bytes) == (cost.flops, cost.bytes)
    by_path = {layer.node.path: layer.work.flops for _, layer in cost.tree.walk()}
    assert tree.find("block").flops == by_path["block"]
    matmul = 2 * 4 * 8 * 16
    found = [n for n in tree.find("first").children if base_name(n.name) == "aten::linear"]
    assert [node.flops for node in found] == [matmul]


def test_an_operator_that_only_the_count_saw_is_its_layer_s_own():
    model, x = nn.Sequential(nn.Linear(8, 8)).eval(), torch.ones(4, 8)
    other = nn.Sequential(nn.Conv1d(8, 8, 1)).eval()
    tree = with_costs(tree_of(model, x), tg.count_cost(other, torch.ones(1, 8, 4)))
    assert tree.find("0").row.flops == 2 * 4 * 8 * 8
    assert tree.root.flops == 2 * 4 * 8 * 8


def test_the_model_and_torch_are_as_before():
    model = Net()
    before, flag = nn.Module.__call__, model.training
    tree_of(model, torch.ones(4, 8), train=sgd())
    assert nn.Module.__call__ is before
    assert model.training == flag


def test_an_unknown_layer_is_named_with_those_most_like_it(inference):
    with pytest.raises(KeyError, match=r"block\.1"):
        inference.find("block.2")


class Fresh(nn.Module):
    """Makes its loss anew in every call, as transformers' heads do, and keeps another outside."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return nn.Sequential(nn.MSELoss(reduction="none"), nn.Identity())[0](
            nn.Softplus()(KEPT(self.linear(x))), x
        )


KEPT = nn.Softplus()


def test_modules_made_anew_in_every_call_are_one_layer():
    tree = tree_of(Fresh().eval(), torch.ones(4, 8))
    paths = [node.row.path for node in tree.root.walk() if node.kind == "layer"]
    assert sorted(paths) == ["MSELoss", "Softplus", "Softplus#2", "linear"]
    assert [tree.find(path).calls for path in paths] == [1, 1, 1, 1]
    assert all(tree.find(path).host_time > 0 for path in paths)


def test_modules_that_are_gone_are_let_go():
    modules = Modules(nn.Linear(1, 1))
    kept = nn.ReLU()
    numbers = set()
    for _ in range(5):
        numbers.add((modules.number(kept), modules.number(nn.Sequential(nn.ReLU()))))
        modules.forget_gone()
    assert len(numbers) == 1
    assert sum(one is not None for one in modules.by_number) == 2


def test_a_recording_stays_within_its_memory(monkeypatch):
    whole = tree_of(Net().eval(), torch.ones(4, 8))
    monkeypatch.setattr(capture, "memory_of", lambda _file: 2)
    monkeypatch.setattr(capture, "budget", lambda: 9)
    few = tree_of(Net().eval(), torch.ones(4, 8))
    assert [next(p.steps for p in t.passes if p.name == "recording") for t in (whole, few)] == [
        USUAL.recorded_steps,
        3,  # and the one that is not read
    ]
    monkeypatch.setattr(capture, "budget", lambda: 0)
    assert tree_of(Net().eval(), torch.ones(4, 8)).find("first").calls == 1


def test_layers_called_with_other_parameters_are_the_same_layers():
    net = Net().eval()
    other = {name: value.detach() * 2 for name, value in net.named_parameters()}
    tree = tree_of(lambda x: torch.func.functional_call(net, other, (x,)), torch.ones(4, 8))
    assert [node.row.path for node in tree.match("*first")] == ["Net.first"]
    assert names_below(tree.find("Net.first"), "forward")["aten::addmm"] == 1
    assert tree.find("Net.shared").calls == 1


STACKS = """
import torch, torchgauge as tg
from torch.profiler import ProfilerActivity, profile

model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval(), torch.ones(2, 4)

def modules():
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as recorded:
        model(x)
    return sorted(e.name for e in recorded.events() if e.name.startswith("nn.Module"))

def ours():
    return tg.profile(model, x, iterations=2).tree.find("0").calls

{order}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "order", ["print(ours(), modules())", "first = modules(); print(ours(), modules() == first)"]
)
def test_torchs_own_stacks_see_modules_before_and_after(order):
    done = subprocess.run(
        [sys.executable, "-c", STACKS.format(order=order)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = ["nn.Module: Linear_0", "nn.Module: ReLU_0", "nn.Module: Sequential_0"]
    assert done.stdout.strip() in (f"1 {found}", "1 True")


class Beside(nn.Module):
    """Runs one layer on another thread."""

    def __init__(self):
        super().__init__()
        self.there = nn.Linear(8, 8)
        self.here = nn.Linear(8, 8)

    def forward(self, x):
        found = []
        thread = threading.Thread(target=lambda: found.append(self.there(x)))
        thread.start()
        y = self.here(x)
        thread.join()
        return found[0] + y


def test_a_layer_on_another_thread_is_in_the_tree_with_its_operators():
    tree = tree_of(Beside().eval(), torch.ones(4, 8), all_threads=True)
    for path in ("there", "here"):
        assert tree.find(path).calls == 1
        assert tree.find(path).host_time > 0
        assert names_below(tree.find(path), "forward")["aten::addmm"] == 1


@pytest.mark.thorough
def test_an_optimizer_that_is_slow_when_recorded_takes_its_bare_time(monkeypatch):
    recording = threading.Event()
    record = timeline.record

    def recorded(*args, **kwargs):
        recording.set()
        try:
            return record(*args, **kwargs)
        finally:
            recording.clear()

    class Slow(torch.optim.SGD):
        def step(self, closure=None):
            if recording.is_set():
                time.sleep(0.05)
            return super().step(closure)

    monkeypatch.setattr(timeline, "record", recorded)
    train = tg.Training(
        lambda outputs, _inputs: outputs.sum(), lambda parameters: Slow(parameters, lr=0.1)
    )

    tree = tree_of(Net(), torch.ones(4, 8), train=train)

    assert next(one for one in tree.passes if one.name == "recording").duration > 0.05
    optimizer = next(one for one in tree.root.children if one.name == "optimizer")
    assert optimizer.host_time < 0.025
