"""What can be counted: fake and meta tensors, programs, control flow, checkpoints, any size."""

import subprocess
import sys

import pytest
import torch
from tests.support.torch_versions import SCAN_CALLS_MORE
from torch import nn
from torch._higher_order_ops import scan, while_loop
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

import torchgauge as tg


def by_path(cost):
    return {layer.node.path: layer.work for _, layer in cost.tree.walk()}


def recomputed(cost):
    return {
        layer.node.path: sum(
            row.matmul_flops
            for row in cost.rows
            if row.node == layer.number and row.phase == "recompute"
        )
        // 2
        for _, layer in cost.tree.walk()
    }


MODELS = {
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding="same"), nn.BatchNorm2d(4), nn.ReLU()),
        (2, 3, 8, 8),
    ),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (1, 5, 16)),
    "recurrent": (lambda: nn.LSTM(4, 3), (5, 2, 4)),
}


@pytest.mark.thorough
@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("backward", [False, True])
def test_fake_and_meta_tensors_have_the_products_of_real_ones(case, backward):
    make, shape = MODELS[case]

    def counted():
        cost = tg.count_cost(make(), torch.ones(*shape, requires_grad=True), backward=backward)
        assert cost.unknown == {}
        return cost

    real = counted()
    with FakeTensorMode():
        model, x = make(), torch.ones(*shape, requires_grad=True)
        assert counted().macs == real.macs
    outside = tg.count_cost(model, x, backward=backward)
    assert (outside.macs, outside.counted_on, outside.unknown) == (real.macs, "fake", {})
    with torch.device("meta"):
        on_meta = counted()
    assert (on_meta.counted_on, on_meta.macs) == ("meta", real.macs)


@pytest.mark.slow
def test_the_largest_llama_in_seconds_on_meta():
    import transformers

    hidden, wide, layers, heads, key_heads, words, tokens = 16384, 53248, 126, 128, 8, 128256, 4096
    config = transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=wide, num_hidden_layers=layers, vocab_size=words,
        num_attention_heads=heads, num_key_value_heads=key_heads,
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
        cost = tg.count_cost(model, torch.ones(1, tokens, dtype=torch.int64))
    keys = hidden // heads * key_heads
    layer = 2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * wide
    assert cost.nodes[0].parameters == 405_853_388_800
    assert cost.unknown == {}
    attention = layers * 2 * tokens * tokens * hidden
    assert cost.macs == tokens * (layers * layer + hidden * words) + attention
    triangle = layers * 2 * (tokens * (tokens + 1) // 2) * hidden
    assert cost.matmul_flops - cost.causal_matmul_flops == 2 * (attention - triangle)


@pytest.mark.parametrize("make", [torch.jit.script, "trace", "freeze"])
def test_a_scripted_model_is_one_layer(make):
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.ones(3, 4)
    if make == "trace":
        scripted = torch.jit.trace(model, x)
    elif make == "freeze":
        scripted = torch.jit.freeze(torch.jit.script(model))
    else:
        scripted = torch.jit.script(model)
    cost = tg.count_cost(scripted, x)
    assert (cost.macs, cost.collapsed) == (3 * 16, (type(scripted).__name__,))
    assert len(cost.nodes) == 1


def test_compiled_parts_anywhere_in_a_model_are_said():
    class Attribute(nn.Module):
        def __init__(self):
            super().__init__()
            self.call = torch.compile(lambda x: x @ x.T, backend="eager")

        def forward(self, x):
            return self.call(x)

    class Method(nn.Module):
        @torch.compile(backend="eager")
        def forward(self, x):
            return x @ x.T

    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3, bias=False)
            self.layer.compile(backend="eager")

        def forward(self, x):
            return self.layer(x)

    for kind in (Attribute, Method, Inside):
        cost = tg.count_cost(nn.Sequential(kind()), torch.ones(3, 4))
        assert cost.macs == 3 * 4 * 3
        assert [warning.id for warning in cost.warnings] == ["counted-eager"]


def test_control_flow_counts_the_functions_it_runs():
    x, steps = torch.ones(4, 4), torch.ones(5, 4, 4)

    def branch(x):
        return torch.cond(x.sum() > 0, lambda x: (x @ x,), lambda x: (x + 1,), (x,))

    def loop(x):
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x @ x), (torch.tensor(0), x))

    def scanned(steps):
        return scan(lambda carry, y: (carry + y @ y, carry + 1), torch.zeros(4, 4), steps)

    scans = 5 + SCAN_CALLS_MORE
    for call, inputs, products in ((branch, x, 1), (loop, x, 3), (scanned, steps, scans)):
        cost = tg.count_cost(call, inputs)
        assert cost.unknown == {}
        assert cost.macs == products * 64


FLEX = """
import torch, torchgauge as tg
from torch.nn.attention.flex_attention import flex_attention
cost = tg.count_cost(lambda q: flex_attention(q, q, q), torch.ones(1, 2, 16, 16))
print(cost.unknown, cost.macs)
"""


@pytest.mark.slow
def test_flex_attention_is_counted_where_nothing_was_compiled_before():
    command = [sys.executable, "-W", "ignore", "-c", FLEX]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["{}", str(2 * 2 * 16 * 16 * 16)]


def test_a_custom_operator_is_unknown_and_its_backward_is_not():
    @torch.library.custom_op("tgtest2::square", mutates_args=())
    def square(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    square.register_fake(torch.empty_like)
    square.register_autograd(
        lambda ctx, gradient: gradient @ ctx.saved_tensors[0].T,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    for device in ("cpu", "meta"):
        x = torch.ones(4, 4, device=device, requires_grad=True)
        cost = tg.count_cost(square, x, backward=True)
        assert (cost.unknown, cost.at_least) == ({"tgtest2::square": 1}, True)
        assert cost.macs == 64


def test_a_generator_is_run_to_its_end():
    class Generates(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4, bias=False)

        def forward(self, x):
            for _ in range(3):
                x = self.layer(x)
                yield x

    x = torch.ones(1, 4, requires_grad=True)
    cost = tg.count_cost(Generates(), x, backward=True)
    assert by_path(cost)["layer"].macs == cost.macs == 3 * 3 * 16


@pytest.mark.parametrize("backward", [False, True])
def test_a_lazy_model_gets_its_parameters(backward):
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(2, bias=False))
    cost = tg.count_cost(model, torch.ones(2, 3, 8, 8), backward=backward)
    convolution, linear = 2 * 4 * 36 * 3 * 9, 2 * 4 * 36 * 2
    assert cost.macs == (2 * convolution + 3 * linear if backward else convolution + linear)


def test_a_copy_that_shares_its_hooks_counts_as_the_layer_that_it_copies():
    class Parallel(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            copies = [self.layer._replicate_for_data_parallel() for _ in range(2)]
            for copy in copies:
                copy.weight, copy.bias = self.layer.weight, self.layer.bias
            return torch.cat([copy(part) for copy, part in zip(copies, x.chunk(2), strict=True)])

    cost = tg.count_cost(Parallel(), torch.ones(4, 4), backward=True)
    assert by_path(cost).keys() == {"", "layer"}
    assert by_path(cost)["layer"].macs == cost.macs == 2 * 4 * 16


@pytest.mark.parametrize(("reentrant", "again"), [(False, 1), (True, 2)])
def test_a_function_under_a_checkpoint_is_recomputed(reentrant, again):
    weight = torch.ones(4, 4, requires_grad=True)

    def call(x):
        return checkpoint(lambda x: torch.tanh(x @ weight) @ weight, x, use_reentrant=reentrant)

    cost = tg.count_cost(call, torch.ones(3, 4, requires_grad=True), backward=True)
    assert cost.macs == 3 * 2 * 3 * 16
    assert recomputed(cost) == {"": again * 3 * 16}


@pytest.mark.parametrize(("reentrant", "first", "second"), [(False, 1, 0), (True, 2, 1)])
def test_a_checkpoint_inside_a_checkpoint(reentrant, first, second):
    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)

        def inner(self, x):
            return self.b(checkpoint(self.a, x, use_reentrant=reentrant))

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=reentrant)

    cost = tg.count_cost(Nested(), torch.ones(3, 4, requires_grad=True), backward=True)
    assert cost.macs == 3 * 2 * 3 * 16
    assert recomputed(cost) == {"": 0, "a": first * 3 * 16, "b": second * 3 * 16}


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_runs_without_gradients_is_recomputed_too(reentrant):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.layer = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)

        def part(self, x):
            with torch.no_grad():
                table = self.table(x)
            return self.layer(torch.tanh(x)) * table

        def forward(self, x):
            return checkpoint(self.part, x, use_reentrant=reentrant)

    cost = tg.count_cost(Model(), torch.ones(3, 4, requires_grad=True), backward=True)
    assert cost.macs == (3 + 1) * 3 * 16
    assert recomputed(cost)["table"] == 3 * 16
