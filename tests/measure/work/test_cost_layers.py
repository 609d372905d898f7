"""Whose work it is: call paths, shared and nested layers, hooks, recomputation, threads."""

import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchgauge as tg


def by_path(cost):
    return {layer.node.path: layer for _, layer in cost.tree.walk()}


def macs_by_path(cost):
    return {path: layer.work.macs for path, layer in by_path(cost).items()}


class Block(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)


def test_a_shared_layer_counts_under_each_of_its_parents():
    shared = nn.Linear(10, 10)
    model = nn.Sequential(Block(shared), Block(shared))
    cost = tg.count_cost(model, torch.ones(1, 10))
    assert macs_by_path(cost) == {"": 200, "0": 100, "0.layer": 100, "1": 100, "1.layer": 100}
    assert cost.nodes[0].parameters == 110


def test_a_layer_called_twice_by_its_parent_is_one_place_with_two_calls():
    class Twice(Block):
        def forward(self, x):
            return self.layer(self.layer(x))

    cost = tg.count_cost(Twice(nn.Linear(10, 10)), torch.ones(1, 10))
    assert macs_by_path(cost) == {"": 200, "layer": 200}
    assert by_path(cost)["layer"].node.calls == 2


def test_recursion_nests():
    class Down(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x, depth=2):
            x = self.layer(x)
            return self(x, depth - 1) if depth else x

    cost = tg.count_cost(Down(), torch.ones(1, 4))
    assert cost.macs == 48
    level = [level for level, layer in cost.tree.walk() if layer.node.kind == "Down"]
    assert level == [0, 1, 2]


def test_a_callable_with_two_models_of_one_class():
    one, two = nn.Linear(4, 4), nn.Linear(4, 8)

    def both(x):
        return two(one(x)).sum()

    cost = tg.count_cost(both, torch.ones(1, 4))
    assert macs_by_path(cost) == {"": 48, "Linear": 16, "Linear#2": 32}


def test_a_child_that_raises_and_is_caught_is_left_properly():
    class Raises(nn.Module):
        def forward(self, x):
            x @ x.T
            raise ValueError("no")

    class Catches(nn.Module):
        def __init__(self):
            super().__init__()
            self.child, self.after = Raises(), nn.Linear(4, 4)

        def forward(self, x):
            try:
                return self.child(x)
            except ValueError:
                return self.after(x) * (x @ x.T)

    cost = tg.count_cost(Catches(), torch.ones(1, 4))
    assert macs_by_path(cost) == {"": 24, "child": 4, "after": 16}
    assert by_path(cost)[""].own.macs == 4


def test_a_layer_called_from_a_hook_belongs_to_the_hooked_layer():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    extra = nn.Linear(4, 2)
    model[1].register_forward_hook(lambda module, args, output: extra(output))
    cost = tg.count_cost(model, torch.ones(1, 4))
    assert by_path(cost)["1"].work.macs == 8
    assert by_path(cost)["0"].work.macs == 16


def test_lazy_layers_and_generators():
    class Generates(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LazyLinear(3)

        def forward(self, x):
            for _ in range(2):
                yield self.layer(x)

    model = Generates()
    cost = tg.count_cost(lambda x: list(model(x)), torch.ones(1, 5))
    assert cost.macs == 30


@pytest.mark.parametrize(("reentrant", "executed"), [(False, 2_800), (True, 3_200)])
def test_recomputation_is_executed_and_not_the_models(reentrant, executed):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 10))

        def forward(self, x):
            return checkpoint(self.block, x, use_reentrant=reentrant)

    x = torch.ones(2, 10, requires_grad=True)
    cost = tg.count_cost(Checkpointed(), x, backward=True)
    assert cost.flops - cost.vector_flops == 2_400
    recomputed = cost.total(["recompute"])
    assert cost.matmul_flops + recomputed.matmul_flops == executed
    paths = by_path(cost)
    assert set(paths) == {"", "block", "block.0", "block.1"}
    assert paths["block.1"].node.calls == 1
    assert sum(child.work.matmul_flops for child in paths["block"].children) == executed


def test_backward_work_belongs_to_the_layer_of_its_forward():
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Tanh(), nn.Linear(8, 2, bias=False))
    cost = tg.count_cost(model, torch.ones(3, 4), backward=True)
    # The first layer's input needs no gradient.
    assert macs_by_path(cost) == {"": 3 * 32 * 2 + 3 * 16 * 3, "0": 192, "1": 0, "2": 144}
    both = by_path(cost)["2"].work
    assert both.macs == 144


def test_work_on_other_threads_is_counted():
    layer = nn.Linear(8, 8)

    class Threaded(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            results = []
            thread = threading.Thread(target=lambda: results.append(self.layer(x)))
            thread.start()
            thread.join()
            return self.layer(x) + results[0]

    cost = tg.count_cost(Threaded(), torch.ones(1, 8))
    assert cost.macs == 128
    assert by_path(cost)["layer"].node.calls == 2


def test_backward_work_of_other_threads_belongs_to_their_layers():
    class Threaded(nn.Module):
        def __init__(self):
            super().__init__()
            self.before = nn.Linear(8, 8, bias=False)
            self.branches = nn.ModuleList(
                nn.Sequential(nn.Linear(8, size), nn.Tanh(), nn.Linear(size, 4, bias=False))
                for size in (16, 32)
            )
            self.after = nn.Linear(4, 2, bias=False)

        def forward(self, x):
            x, results = self.before(x), {}

            def run(branch):
                with torch.enable_grad():
                    results[branch] = branch(x)

            for branch in self.branches:
                thread = threading.Thread(target=run, args=(branch,))
                thread.start()
                thread.join()
            return self.after(sum(results.values()))

    cost = tg.count_cost(Threaded(), torch.ones(1, 8, requires_grad=True), backward=True)
    macs = macs_by_path(cost)
    assert (macs["before"], macs["after"]) == (3 * 64, 3 * 8)
    assert [macs[f"branches.{n}.0"] for n in (0, 1)] == [3 * 8 * 16, 3 * 8 * 32]
    assert [macs[f"branches.{n}.2"] for n in (0, 1)] == [3 * 16 * 4, 3 * 32 * 4]
    assert by_path(cost)["branches.1.1"].work.vector_flops == 2 * 32
    assert by_path(cost)[""].own.macs == 0


def test_the_graph_that_made_the_inputs_is_neither_counted_nor_used_up():
    before, model = nn.Linear(64, 8), nn.Linear(8, 2, bias=False)
    x = before(torch.ones(3, 64))
    assert tg.count_cost(model, x, backward=True).macs == 3 * 48
    assert before.weight.grad is None
    x.sum().backward()
    assert before.weight.grad is not None


def test_a_class_with_its_own_call_is_a_layer_once():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def __call__(self, x):
            return self.layer(x)

    class Further(Own):
        def __call__(self, x):
            return nn.Module.__call__(self, x)

        def forward(self, x):
            return self.layer(x)

    for kind in (Own, Further):
        model = nn.Sequential(kind(), kind())
        before = kind.__call__
        cost = tg.count_cost(model, torch.ones(1, 4))
        assert macs_by_path(cost) == {"": 32, "0": 16, "0.layer": 16, "1": 16, "1.layer": 16}
        assert kind.__call__ is before


def test_compiled_callables_are_counted_eager_and_scripted_ones_collapsed():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = torch.compile(model, backend="eager")
    cost = tg.count_cost(compiled, torch.ones(1, 4))
    assert cost.macs == 16
    assert [warning.id for warning in cost.warnings] == ["counted-eager"]
    scripted = nn.Sequential(torch.jit.script(nn.Sequential(nn.Linear(4, 4))), nn.Linear(4, 2))
    cost = tg.count_cost(scripted, torch.ones(1, 4))
    assert cost.macs == 24
    assert cost.collapsed == ("0",)


def test_functional_transforms_and_custom_functions():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x @ x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient @ x.T + x.T @ gradient

    x = torch.ones(4, 4, requires_grad=True)
    cost = tg.count_cost(Square.apply, x, backward=True)
    assert cost.macs == 3 * 64
    weights = torch.ones(4, 4)

    def mapped(x):
        return torch.func.vmap(lambda row: weights @ row)(x)

    assert tg.count_cost(mapped, torch.ones(5, 4)).macs == 5 * 16

    def gradient(x):
        return torch.func.grad(lambda x: (weights @ x).sum())(x)

    assert tg.count_cost(gradient, torch.ones(4)).macs == 2 * 16


@pytest.mark.thorough
def test_totals_are_self_and_children_and_the_model_is_as_it_was():
    from torchvision import models

    model = models.resnet18().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    call = nn.Module.__call__
    cost = tg.count_cost(model, torch.ones(2, 3, 64, 64), backward=True)
    for _, layer in cost.tree.walk():
        total = layer.own
        for child in layer.children:
            total = total.plus(child.work)
        assert total == layer.work
    assert cost.tree.work == cost.total(["forward", "backward", "recompute"])
    assert nn.Module.__call__ is call
    assert all(p.grad is None for p in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_gradients_that_are_there_stay_and_are_not_added_to():
    model, x = nn.Linear(600, 600), torch.ones(1, 600, requires_grad=True)
    (model(x) * 2).sum().backward()
    before = [model.weight.grad, model.bias.grad, x.grad]
    values = [one.clone() for one in before]
    with_them = tg.count_cost(model, x, backward=True)
    for one, value, now in zip(before, values, (model.weight, model.bias, x), strict=True):
        assert now.grad is one
        assert torch.equal(one, value)
    model.zero_grad()
    x.grad = None
    assert tg.count_cost(model, x, backward=True).rows == with_them.rows


@pytest.mark.thorough
def test_retained_for_backward():
    model = nn.Sequential(
        nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.Dropout(), nn.Linear(1000, 10)
    )
    cost = tg.count_cost(model, torch.ones(64, 1000), backward=True)
    assert cost.retained_for_backward == 768_000
    on_meta = tg.count_cost(model.to("meta"), torch.ones(64, 1000, device="meta"), backward=True)
    assert on_meta.retained_for_backward <= 768_000
