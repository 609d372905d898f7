"""Every public function shows how it is used, and the examples do what they show."""

import doctest
import importlib
import inspect

import pytest
from tests.support.snapshots import block, segment, whole, written

import torchgauge as tg
from torchgauge.formulas import registry

FUNCTIONS = sorted(name for name in tg.__all__ if name[0].islower())
# These start processes, which import torch, or compute for seconds.
LONG = ("advise", "count_parallel", "measure_serving", "plan_capacity", "sweep")
RUN = [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in FUNCTIONS]


def examples(name):
    return doctest.DocTestParser().get_examples(inspect.getdoc(getattr(tg, name)))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(whole([segment(0, block(0, 20 * 2**20))]), tmp_path / "snapshot.pickle")
    yield tmp_path
    registry.forget("example::double")


@pytest.mark.thorough
@pytest.mark.parametrize("name", RUN)
def test_it_has_an_example_that_runs(name, folder):
    shown = examples(name)
    assert any(f"tg.{name}(" in example.source for example in shown)
    case = doctest.DocTest(shown, {}, name, None, 0, None)
    output = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(case, out=output.append)
    assert runner.failures == 0, "".join(output)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_example_needs_nothing_but_torch(name):
    for example in examples(name):
        imported = example.source.removeprefix("import ").split(", ")
        if example.source.startswith("import "):
            modules = [module.split(" as ")[0].strip() for module in imported]
            assert set(modules) <= {"torch", "torchgauge"}
            assert all(map(importlib.import_module, modules))
