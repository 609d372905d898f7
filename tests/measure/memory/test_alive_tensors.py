"""What is alive at the peak, by name and shape; float32 has 4 bytes."""

import torch
from tests.support.step_memory import ADAM, measured
from torch import nn

from torchgauge.analyze.memory.tree_memory import (
    MAX_ROWS,
    OTHERS_NAME,
    AliveStorage,
    Ranges,
    alive_tensors,
)
from torchgauge.report.console import blocks
from torchgauge.report.console.plain import plain
from torchgauge.report.tables.alive_tensors import alive as alive_table


def rows(memory):
    return {(one.part, one.name): one for one in memory.tensors}


def assert_sums(memory):
    assert sum(one.size for one in memory.tensors) == memory.peak
    for part, size in memory.parts.items():
        assert sum(one.size for one in memory.tensors if one.part == part) == size


class Net(nn.Module):
    """Peak in the ReLU: its input, which the convolution made, and its output are alive."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 100), nn.ReLU())
        self.register_buffer("shift", torch.zeros(5))

    def forward(self, x):
        return self.body(x).sum() + self.shift


def test_the_peak_of_inference_by_name_shape_layer_and_operator():
    memory = measured(Net(), {"x": torch.ones(3, 4)})
    assert_sums(memory)
    found = rows(memory)
    weight = found["parameters", "body.0.weight"]
    assert (weight.shape, weight.dtype, weight.size) == ((100, 4), "float32", 1600)
    assert found["inputs", "input x"].shape == (3, 4)
    assert found["buffers", "shift"].size == 20
    made = found["activations", "body.0"]
    assert (made.shape, made.operator, made.size) == ((3, 100), "aten::linear", 1200)
    relu = found["activations", "body.1"]
    assert (relu.shape, relu.operator, relu.size) == ((3, 100), "aten::relu", 1200)
    assert memory.peak == 1600 + 400 + 48 + 20 + 1200 + 1200


def test_a_training_step_names_gradients_and_the_optimizer_s_state():
    memory = measured(Net(), torch.ones(3, 4), train=ADAM)
    assert_sums(memory)
    found = rows(memory)
    assert found["optimizer", "body.0.weight: exp_avg"].shape == (100, 4)
    assert found["optimizer", "body.0.bias: exp_avg_sq"].size == 400
    assert found["gradients", "body.0.weight.grad"].shape == (100, 4)
    assert found["gradients", "body.0.weight.grad"].operator


def test_after_the_call_its_outputs_are_held_and_a_leak_stays():
    linear = measured(nn.Linear(4, 8), torch.ones(2, 4))
    # 32 + 8 weights, 8 numbers in, 16 out.
    assert (linear.before, linear.after, linear.growth) == (4 * 48, 4 * 64, 64)

    class Leaking(nn.Linear):
        def __init__(self):
            super().__init__(4, 8)
            self.kept = []

        def forward(self, x):
            self.kept.append(torch.zeros(1000))
            return super().forward(x)

    leaking = measured(Leaking(), torch.ones(2, 4))
    assert leaking.growth == 64 + 4000
    assert ("workspace", "kept.0") in {key[:2] for key in rows(leaking)}
    assert_sums(leaking)


def test_what_a_layer_makes_and_drops_lives_no_longer_for_being_named():
    class Fresh(nn.Module):
        """Makes a layer of 4 kB in every call, which is gone before 8 kB are taken."""

        def forward(self, x):
            x = nn.Linear(1000, 1, bias=False)(x)
            return torch.zeros(2000) + x

    memory = measured(Fresh(), torch.ones(1, 1000))
    assert_sums(memory)
    # The input, then zeros and their sum; the layer's weight is no longer there.
    assert memory.peak < 4000 + 2 * 8000 + 100


def test_the_small_ones_of_many_are_told_together():
    nothing = Ranges((), *(torch.zeros(0).long().numpy() for _ in range(3)))
    alive = [AliveStorage("buffers", size, f"b{size}") for size in range(1, MAX_ROWS + 4)]
    found = alive_tensors(alive, nothing, nothing, {})
    rest = next(one for one in found if one.name == OTHERS_NAME)
    assert (rest.count, rest.size, len(found)) == (3, 1 + 2 + 3, MAX_ROWS + 1)
    assert sum(one.size for one in found) == sum(one.size for one in alive)
    assert found[0].name == f"b{MAX_ROWS + 3}"


def test_the_terminal_s_table_has_the_largest_and_the_bytes_of_the_others():
    memory = measured(nn.Sequential(*[nn.Linear(4, 4) for _ in range(6)]), torch.ones(1, 4))
    lines = plain(lambda width: blocks.table(alive_table(memory), width)).splitlines()
    assert lines[2].split()[:5] == ["0.weight", "64", "B", f"{6400 / memory.peak:.1f}", "%"]
    left = memory.peak - 6 * 64
    assert lines[-1].split()[:4] == [str(len(memory.tensors) - 6), "others", str(left), "B"]
