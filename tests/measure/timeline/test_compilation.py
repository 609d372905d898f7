"""Compiled models: what was compiled is reported, and stays compiled whatever is measured."""

import shutil

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import torchgauge as tg
from torchgauge.measure.timeline.compilation import watching
from torchgauge.report.content.sections import compilation as section


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.block = Block()

    def forward(self, x):
        return self.block(self.first(x).relu())


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 4)

    def forward(self, x):
        return self.inner(x).sin() + 1


class Broken(Net):
    def forward(self, x):
        x = self.first(x).relu()
        torch._dynamo.graph_break()
        return self.block(x)


X = torch.ones(2, 8)


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()
    counters.clear()


def profiled(model, **options):
    return tg.profile(model, X, iterations=3, warmup=1, effort="quick", progress=False, **options)


def frames():
    return counters["frames"]["total"]


def call(model):
    with torch.inference_mode():
        return model(X)


@pytest.mark.thorough
def test_graphs_breaks_and_time_are_those_of_the_first_call():
    model = torch.compile(Broken().eval(), backend="eager")
    found = profiled(model).compilation
    assert found.graphs == counters["stats"]["unique_graphs"] == 2
    (reason,) = found.graph_breaks
    assert "torch._dynamo.graph_break" in reason
    assert "\n" not in reason
    assert found.graph_breaks[reason] == 1
    assert found.recompiles == {}
    assert 0 < found.compile_time < 60
    assert found.layers == ("first", "block.inner", "block")


def test_recompilations_are_counted_by_reason():
    model = torch.compile(Net().eval(), backend="eager", dynamic=False)
    with watching(model) as watch:
        for batch in (2, 3, 4):
            model(torch.ones(batch, 8))
    found = watch.result()
    assert found.graphs == 3
    assert sum(found.recompiles.values()) == 2
    assert all("size mismatch" in reason for reason in found.recompiles)


def compiled_root():
    return torch.compile(Broken().eval(), backend="eager")


def compiled_by_method():
    model = Broken().eval()
    model.compile(backend="eager")
    return model


def compiled_part():
    model = Net().eval()
    model.block = torch.compile(model.block, backend="eager")
    return model


def part_compiled_by_method():
    model = Net().eval()
    model.block.compile(backend="eager")
    return model


def compiled_function():
    model = Broken().eval()
    return torch.compile(lambda x: model(x) * 2, backend="eager")


def part_that_dynamo_skips():
    model = Net().eval()
    model.first = nn.Sequential(model.first)
    model.first.compile(backend="eager")  # torch's own layers it runs as they are
    return model


EVERY = [
    compiled_root,
    compiled_by_method,
    compiled_part,
    part_compiled_by_method,
    compiled_function,
    part_that_dynamo_skips,
]


@pytest.mark.slow
@pytest.mark.parametrize("make", EVERY)
def test_what_was_compiled_stays_so_and_nothing_is_compiled_for_us(make):
    model = make()
    wanted = call(model)
    before, breaks = frames(), dict(counters["graph_break"])
    found = profiled(model).compilation
    assert torch.equal(call(model), wanted)
    assert frames() == before
    assert counters["graph_break"] == breaks
    if make is not compiled_function:  # of which no module is compiled
        assert (found.graphs, found.compile_time) == (None, None)


@pytest.mark.slow
@pytest.mark.parametrize("make", EVERY)
def test_compiled_by_the_profile_it_is_compiled_afterwards(make):
    alone = make()
    call(alone)
    wanted = frames()
    torch._dynamo.reset()
    counters.clear()
    model = make()
    profiled(model)
    assert frames() == wanted
    call(model)
    assert frames() == wanted


@pytest.mark.thorough
def test_the_root_of_a_compiled_model_has_its_name_and_one_node_for_each_graph():
    tree = profiled(compiled_root()).tree
    assert (tree.root.name, tree.root.row.type) == ("Broken", "OptimizedModule")
    regions = [n for n in tree.root.walk() if n.name.startswith("Torch-Compiled Region")]
    assert len(regions) == 2
    assert not tree.root.layers


def added_up(comparison):
    rows = comparison.rows
    return sum(row.eager or 0.0 for row in rows), sum(row.compiled or 0.0 for row in rows)


@pytest.mark.thorough
def test_eager_layers_stand_beside_compiled_code_that_no_kernel_divides():
    comparison = profiled(compiled_part(), detail="layers").compilation.beside_eager
    rows = {row.layers or row.part: row for row in comparison.rows}
    assert rows["block.inner",].eager > 0
    assert rows["block.inner",].compiled is None
    assert rows["first",].compiled > 0  # it is not compiled
    assert rows["compiled code outside kernels"].compiled > 0
    assert added_up(comparison) == pytest.approx((comparison.eager, comparison.compiled))
    assert comparison.interval.low < comparison.speed_up < comparison.interval.high


@pytest.mark.thorough
def test_layers_of_a_model_compiled_before_are_those_below_what_is_compiled():
    model = compiled_part()
    call(model)
    found = profiled(model).compilation
    assert found.layers == ("block", "block.inner")


def test_a_model_that_is_not_compiled_has_none():
    assert profiled(Net().eval(), detail="summary").compilation is None


@pytest.mark.slow
def test_a_training_step_s_layers_are_told_too():
    model = torch.compile(Net(), backend="aot_eager")
    step = tg.Training(lambda out, _: out.sum(), lambda p: torch.optim.SGD(p, lr=0.1))
    found = profiled(model, train=step, detail="summary").compilation
    assert found.graphs == 1
    assert found.layers == ("first", "block.inner", "block")


def test_the_section_says_what_is_not_told_apart():
    shown = section(profiled(compiled_root(), detail="summary").compilation)
    rows = {row.label: row for row in shown.rows}
    assert rows["graphs"].value == "2"
    assert rows["graph breaks"].value == "1"
    assert "User-inserted" in rows["graph breaks"].note
    assert rows["in graphs"].note.endswith("first; block.inner; block")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
def test_kernels_of_inductor_have_operators_and_layers():
    model = torch.compile(Net())
    step = tg.Training(lambda out, _: out.sum(), lambda p: torch.optim.SGD(p, lr=0.1))
    found = profiled(model, train=step, detail="layers").compilation
    addmm = [k.layers for k in found.kernels if k.name == "extern_kernels.addmm"]
    assert addmm == [("first",), ("block.inner",)]
    (relu,) = (k for k in found.kernels if k.name.startswith("cpp_fused_relu"))
    compared = {row.layers: row.kernels for row in found.beside_eager.rows if row.kernels}
    assert compared["first",] == compared["block.inner",] == ("extern_kernels.addmm",)
    assert relu.name in compared["",]
    (sine,) = compared["block",]
    assert "sin" in sine
    assert added_up(found.beside_eager) == pytest.approx(
        (found.beside_eager.eager, found.beside_eager.compiled)
    )
    assert set(found.beside_eager.phases) >= {"backward", "optimizer"}
    assert relu.operators[0] == "aten.relu"
    backward = [k.layers for k in found.kernels if k.name == "extern_kernels.mm"]
    assert ("block.inner",) in backward
    (row,) = (row for row in section(found).rows if row.label == "kernels")
    assert "cpp_fused_relu" in row.note
    assert "addmm" not in row.note
