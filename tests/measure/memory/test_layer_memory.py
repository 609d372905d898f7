"""Memory by layer and operator, equal to the byte to what a hand and torch's own table count.

float32 has 4 bytes.
"""

from __future__ import annotations

import threading
from collections import defaultdict

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from torchgauge.analyze.memory.tree_memory import with_memory
from torchgauge.analyze.timeline.call_tree import CallTree
from torchgauge.measure.forward import opened
from torchgauge.measure.memory import layer_memory, memory
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.recording.recording import Marks, record
from torchgauge.measure.step import prepared
from torchgauge.measure.timeline import timeline
from torchgauge.measure.timeline.ranges import LAYER
from torchgauge.records.timeline import tables
from torchgauge.targets.builds.source import Source
from torchgauge.targets.training.training import Training

# The gradient of a plain sum is one number, expanded: products would copy it.
SGD = Training(lambda outputs, _: outputs.square().sum(), lambda p: torch.optim.SGD(p, lr=0.1))
ADAM = Training(lambda outputs, _: outputs.sum(), torch.optim.Adam)


def placed(model, *inputs, train=None):
    return opened(Source.of_object(model, inputs, training=train is not None))


def measured(model, *inputs, train=None):
    placement = placed(model, *inputs, train=train)
    with prepared(placement, train) as step:
        modules = Modules(placement.model)
        step()
        calls = CallTree(modules.table, modules.name)
        return layer_memory.measure(placement, step, modules, calls)


def figures(tree, path):
    node = tree.find(path)
    return node.allocations, node.peak, node.retained_for_backward


def bytes_of(*shape):
    return torch.Size(shape).numel() * 4


class Call(nn.Module):
    """A module around a function of (module, inputs), with submodules by name."""

    def __init__(self, function, **children):
        super().__init__()
        self.function = function
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, *args):
        return self.function(self, *args)


def stack():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def test_a_stack_in_inference():
    tree = measured(stack(), torch.ones(2, 8))
    hidden, out = bytes_of(2, 16), bytes_of(2, 4)
    assert figures(tree, "0") == (hidden, hidden, None)
    assert figures(tree, "1") == (hidden, hidden, None)
    assert figures(tree, "2") == (out, out, None)
    # The first hidden tensor goes when the second is there.
    assert figures(tree, "") == (2 * hidden + out, 2 * hidden, None)
    assert tree.root.memory_self == -2 * hidden
    assert [tree.find(path).memory for path in ("0", "1", "2")] == [hidden, hidden, out]
    assert tree.root.memory == 0


def test_a_stack_in_training():
    tree = measured(stack(), torch.ones(2, 8), train=SGD)
    hidden, out = bytes_of(2, 16), bytes_of(2, 4)
    # Backward: gradients of weight and bias, and of the input where it has any.
    assert figures(tree, "0") == (hidden + bytes_of(8, 16) + bytes_of(16), hidden, 0)
    # Both ReLU and the linear layer after it keep ReLU's result, and nobody its input.
    assert figures(tree, "1") == (2 * hidden, hidden, hidden)
    assert figures(tree, "2") == (out + bytes_of(16, 4) + bytes_of(4) + hidden, out, 0)
    assert (tree.root.peak, tree.root.retained_for_backward) == (2 * hidden, hidden)
    assert tree.root.memory == 0  # as much as the step before left is freed


def test_an_operation_in_place_allocates_nothing():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 4))
    tree = measured(model, torch.ones(2, 8), train=SGD)
    assert tree.find("1").peak == 0
    # What it overwrote and both keep was allocated by the layer before.
    assert tree.find("0").retained_for_backward == bytes_of(2, 16)
    assert tree.find("1").retained_for_backward == 0


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_block_retains_its_output_alone(reentrant):
    def forward(self, x):
        hidden = checkpoint(self.block, x, use_reentrant=reentrant, preserve_rng_state=False)
        return self.head(hidden)

    block = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 16))
    model = Call(forward, block=block, head=nn.Linear(16, 4))
    x = torch.ones(2, 8, requires_grad=True)
    tree = measured(model, x, train=SGD)
    hidden = bytes_of(2, 16)
    retained = {path: tree.find(f"block.{path}").retained_for_backward for path in "012"}
    assert retained == {"0": 0, "1": 0, "2": hidden}
    assert tree.root.retained_for_backward == hidden
    again = [row for row in tree.rows if row.phase == "recompute"]
    # Of three hidden tensors the last is the output, which is needed no more.
    assert sum(row.allocations for row in again) == (3 if reentrant else 2) * hidden
    assert not any(row.retained for row in again)
    # The first time, the first of three goes when the second is there; the second time all stay.
    assert tree.find("block").peak == (3 if reentrant else 2) * hidden


def test_a_module_called_twice_has_its_parameters_once_and_its_memory_at_both_places():
    shared = nn.Linear(8, 8)
    model = nn.Sequential(nn.Sequential(shared, nn.ReLU()), shared)
    tree = measured(model, torch.ones(2, 8))
    first, second = (node for node in tree.root.walk() if node.row.type == "Linear")
    assert (first.parameters, second.parameters, tree.root.parameters) == (72, 0, 72)
    assert first.allocations == second.allocations == bytes_of(2, 8)


def test_of_several_calls_the_largest_peak_counts():
    def forward(self, x):
        return self.layer(x).sum() + self.layer(x[:1]).sum()

    tree = measured(Call(forward, layer=nn.Linear(8, 16)), torch.ones(5, 8))
    assert tree.find("layer").calls == 2
    assert figures(tree, "layer") == (bytes_of(6, 16), bytes_of(5, 16), None)


def test_a_layer_that_frees_what_another_allocated():
    box = []

    def fill(_, x):
        box.append(torch.empty(100))
        return x + 1

    def empty(_, x):
        box.clear()
        return x + 1

    tree = measured(nn.Sequential(Call(fill), Call(empty)), torch.ones(8))
    assert tree.find("0").memory == bytes_of(100) + bytes_of(8)
    assert (tree.find("1").memory, tree.find("1").peak) == (bytes_of(8) - bytes_of(100), 0)


def test_a_layer_that_replaces_what_it_keeps_retains_nothing():
    def forward(self, x):
        self.cache = torch.zeros(100)
        return self.layer(x)

    model = Call(forward, layer=nn.Linear(8, 4))
    assert measured(model, torch.ones(2, 8), train=SGD).root.retained_for_backward == 0


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_what_layers_retain_adds_up_to_what_the_memory_probe_says(dropout):
    def forward(self, x):
        return torch.softmax(self.net(x), -1), x

    net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(dropout))
    train = Training(lambda outputs, _: outputs[0].sum(), torch.optim.Adam)
    model, x = Call(forward, net=net), torch.ones(2, 8)
    tree = measured(model, x, train=train)
    known = memory.measure(placed(model, x, train=train), train=train).retained_for_backward
    assert tree.root.retained_for_backward == sum(row.retained for row in tree.rows) == known > 0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


def torch_s_table(model, x, optimizer, steps, *, shapes):
    def step():
        if optimizer is None:
            with torch.inference_mode():
                model(x)
        else:
            optimizer.zero_grad(set_to_none=True)
            outputs = model(x)
            outputs.sum().backward()
            optimizer.step()

    step()
    if optimizer is not None:
        optimizer.zero_grad(set_to_none=True)
    kinds = [ProfilerActivity.CPU]
    with profile(activities=kinds, record_shapes=True, profile_memory=True) as recorded:
        for _ in range(steps):
            step()
    found = defaultdict(lambda: [0, 0, 0])
    for event in recorded.key_averages(group_by_input_shape=shapes):
        sizes = event.cpu_memory_usage, event.self_cpu_memory_usage
        for place, value in enumerate((event.count, *sizes)):
            found[event.key, str(event.input_shapes or "")][place] += value
    return found


@pytest.mark.parametrize("shapes", [False, True])
@pytest.mark.parametrize("train", [None, ADAM])
def test_calls_and_memory_are_those_of_torch_s_own_table(train, shapes):
    model, x = Net().train(train is not None), torch.rand(2, 3, 9, 9)
    tree = measured(model, x, train=train)
    optimizer = torch.optim.Adam(model.parameters()) if train else None
    # The second step, as the first cannot see what it frees of the gradients before it.
    one, two = (torch_s_table(model, x, optimizer, n, shapes=shapes) for n in (1, 2))
    wanted = {key: [a - b for a, b in zip(two[key], one[key], strict=True)] for key in two}
    # torch calls it an operator what is allocated and freed outside of operators.
    outside = [sizes for (name, _), sizes in wanted.items() if name == "[memory]"]
    wanted = {key: sizes for key, sizes in wanted.items() if key[0] != "[memory]"}
    found = {
        (row["Name"], row.get("Input Shapes", "").removeprefix("[]")): [
            row[column] for column in ("# of Calls", "CPU Mem", "Self CPU Mem")
        ]
        for row in tables.operators(tree, by_shape=shapes).rows()
    }
    assert found == wanted
    layers = (row.allocated for row in tree.rows if row.kind != "operator")
    assert sum(layers) == sum(own for _, _, own in outside)


@pytest.mark.thorough
def test_the_same_figures_stand_on_the_timed_tree():
    model, x = Net(), torch.rand(2, 3, 9, 9)
    found = measured(model, x, train=SGD)
    tree = with_memory(timeline.measure(placed(model, x, train=SGD), train=SGD), found)
    both = [tables.layers(one).columns for one in (found, tree)]
    for name in ("allocated", "allocations", "peak", "retained_for_backward", "parameters"):
        assert both[0][name] == both[1][name]
    assert all(row.allocated is not None for row in tree.rows)
    assert tree.passes[-1].bare == tree.passes[0].bare


def test_a_parameter_of_two_layers_is_the_first_one_s():
    words, head = nn.Embedding(10, 4), nn.Linear(4, 10)
    head.weight = words.weight
    tree = measured(nn.Sequential(words, head), torch.tensor([1, 2]))
    assert [tree.find(path).parameters for path in ("0", "1", "")] == [40, 10, 50]


def test_parameters_of_modules_that_are_never_called_belong_to_those_that_hold_them():
    attention = nn.MultiheadAttention(8, 2)
    model = Call(lambda self, x: self.attention(x, x, x)[0], attention=attention)
    model.unused = nn.Linear(3, 3)
    tree = measured(model, torch.ones(5, 8), train=SGD)
    assert tree.find("attention").parameters == sum(p.numel() for p in attention.parameters())
    assert tree.root.parameters == sum(p.numel() for p in model.parameters())
    assert tree.root.row.parameters == 3 * 3 + 3


def test_a_callable_that_is_no_module():
    layer = nn.Linear(8, 4)
    tree = measured(lambda x: torch.relu(layer(x)), torch.ones(2, 8))
    (node,) = tree.root.layers[:1]
    assert (node.allocations, node.peak, node.parameters) == (bytes_of(2, 4), bytes_of(2, 4), 36)
    assert tree.root.allocations == 2 * bytes_of(2, 4)
    assert tree.root.peak is None


def test_operators_of_another_thread_are_said_to_be_unseen():
    def forward(_, x):
        thread = threading.Thread(target=lambda: torch.zeros(10))
        thread.start()
        thread.join()
        return x + 1

    assert [w.id for w in measured(Call(forward), torch.ones(2)).warnings] == ["threads-unrecorded"]
    assert not measured(stack(), torch.ones(2, 8)).warnings


def test_points_of_a_recording_are_no_layers():
    marks = Marks()
    names = []
    recorded = record(lambda: names.append(marks.set()))
    assert names[0].encode() in recorded
    assert not names[0].startswith(LAYER)
