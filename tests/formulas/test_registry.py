"""Formulas that users and packages bring."""

import pytest
import torch

import torchgauge as tg
from torchgauge.errors import InputError
from torchgauge.formulas import registry


@pytest.fixture
def scaled():
    with torch.library._scoped_library("tgformula", "FRAGMENT") as library:
        library.define("scaled(Tensor x, Tensor y) -> Tensor")
        library.impl("scaled", lambda x, y: x @ y * 2, "CPU")
        yield torch.ops.tgformula.scaled
    registry.forget("tgformula::scaled")


def test_a_formula_makes_a_custom_operator_known(scaled):
    x = torch.ones(4, 4)
    assert tg.count_cost(scaled, (x, x)).unknown == {"tgformula::scaled": 1}

    @tg.flop_formula("tgformula::scaled")
    def flops(x, y, *, outputs):
        assert outputs.shape == (4, 4)
        return 2 * x.shape[0] * x.shape[1] * y.shape[1]

    cost = tg.count_cost(scaled, (x, x))
    assert not cost.unknown
    assert cost.macs == 64
    with pytest.raises(InputError) as caught:
        tg.flop_formula("tgformula::scaled")(flops)
    assert caught.value.id == "formula-duplicate"


def test_a_formula_may_tell_vector_work(scaled):
    tg.flop_formula("tgformula::scaled")(lambda x, y: tg.Work(matmul=10, vector=3))
    cost = tg.count_cost(scaled, (torch.ones(2, 2), torch.ones(2, 2)))
    assert (cost.matmul_flops, cost.vector_flops) == (10, 3)


@pytest.mark.parametrize("result", ["12", -1, float("nan"), (1, 2)])
def test_a_formula_that_gives_nonsense_leaves_the_operator_unknown(scaled, result):
    tg.flop_formula("tgformula::scaled")(lambda x, y: result)
    cost = tg.count_cost(scaled, (torch.ones(2, 2), torch.ones(2, 2)))
    assert cost.unknown == {"tgformula::scaled": 1}
    assert [warning.id for warning in cost.warnings] == ["formula-failed"]


def test_a_formula_that_raises_does_not_end_the_count(scaled):
    @tg.flop_formula("tgformula::scaled")
    def flops(x, y):
        raise KeyError("mine")

    cost = tg.count_cost(scaled, (torch.ones(2, 2), torch.ones(2, 2)))
    assert cost.at_least
    assert "KeyError" in cost.warnings[0].cause


@pytest.mark.parametrize("name", ["mm", "aten::", "::mm", "aten::mm.default"])
def test_names_that_are_none(name):
    with pytest.raises(InputError) as caught:
        tg.flop_formula(name)(lambda: 0)
    assert caught.value.id == "formula-name"


def test_our_own_formulas_cannot_be_replaced():
    with pytest.raises(InputError) as caught:
        tg.flop_formula("aten::mm")(lambda a, b: 0)
    assert caught.value.id == "formula-duplicate"


def test_packages_bring_formulas_by_entry_point(monkeypatch):
    loaded = []

    class Entry:
        name, value, dist = "mine", "mine.formulas", None

        def load(self):
            loaded.append(self.name)

    class Broken(Entry):
        def load(self):
            raise ImportError("no such module")

    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Entry()])
    monkeypatch.setattr(registry, "_loaded", False)
    registry.load()
    assert loaded == ["mine"]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Broken()])
    monkeypatch.setattr(registry, "_loaded", False)
    with pytest.raises(InputError) as caught:
        registry.load()
    assert caught.value.id == "formula-entry-point"
