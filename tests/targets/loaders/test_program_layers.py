"""Saved programs have the layers of the model that they were made of, with its work."""

from __future__ import annotations

import io
from collections import Counter

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.targets.loaders import exported as script_layers
from torchgauge.targets.loaders import exported_layers

X = torch.ones(2, 6)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.act = nn.Linear(6, 6), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.linear(self.act(x))) + x


class Network(nn.Module):
    """Calls `act` twice in a block, `shared` under two names, and a method that is no layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.shared = nn.Linear(6, 6)
        self.again = self.shared
        self.tied = nn.Linear(6, 6)
        self.tied.weight = self.shared.weight
        self.head = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3))

    def features(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.again(self.shared(self.features(x)))
        return self.head(torch.cat([x, self.tied(x)])[: x.shape[0]])


class Nested(nn.Module):
    """Calls a container twice, under two names; the one in it has its class and parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.outer = nn.Sequential(nn.Sequential(nn.Linear(6, 6)))
        self.again = self.outer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(self.outer(x))


class Branches(nn.Module):
    """Layers in a branch, in a loop and between changes of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, times: int = 3) -> torch.Tensor:
        seen = [x]
        for _ in range(times):
            seen.append(self.linear(seen[-1]))
        if x.sum() > 0:  # noqa: SIM108 - a branch of TorchScript
            x = self.other(torch.cat(seen))
        else:
            x = self.linear(x)
        return x + float(len(seen))


def model(kind: type[nn.Module] = Network) -> nn.Module:
    torch.manual_seed(0)
    return kind().eval()


def saved_script(script) -> nn.Module:
    file = io.BytesIO()
    torch.jit.save(script, file)
    file.seek(0)
    return torch.jit.load(file)


def exported(network: nn.Module, *, decomposed: bool = False) -> nn.Module:
    batch = {0: torch.export.Dim("batch")}
    program = torch.export.export(network, (X,), dynamic_shapes=(batch,))
    file = io.BytesIO()
    torch.export.save(program.run_decompositions() if decomposed else program, file)
    file.seek(0)
    return exported_layers.with_layers(torch.export.load(file).module())


MAKERS = {
    "exported": exported,
    "decomposed": lambda network: exported(network, decomposed=True),
    "scripted": lambda network: script_layers.with_layers(saved_script(torch.jit.script(network))),
    "traced": lambda network: script_layers.with_layers(saved_script(torch.jit.trace(network, X))),
}


def by_layer(network: nn.Module, inputs=X) -> dict[str, tuple]:
    """Return class, calls, parameters, and FLOPs by kind, of each layer."""
    cost = tg.count_cost(network, inputs)
    work = Counter()
    for row in cost.rows:
        work[row.node, "matmul"] += row.matmul_flops
        work[row.node, "vector"] += row.vector_flops
    return {
        f"{node.parent}/{node.path}": (
            node.kind, node.calls, node.parameters, work[i, "matmul"], work[i, "vector"]
        )
        for i, node in enumerate(cost.nodes)
    }  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("how", MAKERS)
def test_layers_are_those_of_the_model_with_calls_parameters_and_work(how):
    network = model()
    program = MAKERS[how](model())
    truth = by_layer(network)
    assert by_layer(program) == truth
    assert tg.measure_size(program).parameters == tg.measure_size(network).parameters
    torch.testing.assert_close(program(X), network(X))
    # The blocks' act is called twice in each, the shared layer under one name.
    assert any(path.endswith("blocks.0.act") and row[1] == 2 for path, row in truth.items())


@pytest.mark.parametrize("how", ["exported", "scripted", "traced"])
def test_a_container_that_is_its_parent_s_only_part_is_a_layer_of_its_own(how):
    program = MAKERS[how](model(Nested))
    assert by_layer(program) == by_layer(model(Nested))
    torch.testing.assert_close(program(X), model(Nested)(X))


@pytest.mark.parametrize("how", ["exported", "scripted"])
def test_memory_is_that_of_the_model(how):
    program, truth = tg.measure_memory(MAKERS[how](model()), X), tg.measure_memory(model(), X)
    assert abs(program.peak - truth.peak) <= X.numel() * 4
    assert program.parameters == truth.parameters


@pytest.mark.parametrize("positive", [True, False])
def test_a_script_with_layers_in_branches_and_loops(positive):
    network, x = model(Branches), X if positive else -X
    program = MAKERS["scripted"](model(Branches))
    assert isinstance(program, script_layers.Program)
    torch.testing.assert_close(program.run_layers(x), network(x))
    torch.testing.assert_close(program.run_layers(x, times=1), network(x, 1))
    assert by_layer(program, x) == by_layer(network, x)


def test_unobserved_the_program_runs_as_it_was_saved(monkeypatch):
    program = MAKERS["exported"](model())
    program.bodies[1] = lambda *_: pytest.fail("its layers ran")
    program(X)
    script = MAKERS["scripted"](model())
    monkeypatch.setattr(script_layers.Method, "run", lambda *_: pytest.fail("its layers ran"))
    script(X)


def test_nodes_without_a_path_are_in_a_layer_of_their_own():
    program = torch.export.export(model(), (X,)).module()
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    adds = [node for node in nodes if "add" in node.name]
    for node in adds:
        del node.meta["nn_module_stack"]
    layers = by_layer(exported_layers.with_layers(program))
    bucket = [row for path, row in layers.items() if exported_layers.NO_PATH in path]
    assert [(kind, matmul) for kind, _, _, matmul, _ in bucket] == [("Operators", 0)] * len(bucket)
    assert sum(row[4] for row in bucket) == len(adds) * X.numel()
    assert sum(row[3] for row in layers.values()) == sum(r[3] for r in by_layer(model()).values())


def test_a_program_without_any_path_has_one_layer_of_them_all():
    program = torch.export.export(model(), (X,)).module()
    for node in program.graph.nodes:
        node.meta.pop("nn_module_stack", None)
    layered = exported_layers.with_layers(program)
    assert len(by_layer(layered)) == 2
    torch.testing.assert_close(layered(X), model()(X))


def test_tensors_that_are_converted_are_the_programs(tmp_path):
    program = MAKERS["scripted"](model()).to(torch.float64)
    assert program(X.double()).dtype == torch.float64
    assert program.script.shared.weight.dtype == torch.float64


class Forks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        future = torch.jit.fork(self.linear, x)
        return self.linear(x) + torch.jit.wait(future)


def test_a_script_that_cannot_be_followed_stays_one_layer():
    script = saved_script(torch.jit.script(model(Forks)))
    assert script_layers.with_layers(script) is script


def test_layers_that_return_something_else_are_not_shown(monkeypatch):
    program = MAKERS["scripted"](model())
    assert script_layers.if_same(program, (X,), {}) is program
    monkeypatch.setattr(script_layers.Method, "run", lambda *_: torch.zeros(2, 3))
    assert script_layers.if_same(program, (X,), {}) is program.script
