"""file.py:factory and package.module:factory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from torchgauge.errors import InputError
from torchgauge.targets.loaders.load import load
from torchgauge.targets.target import TargetRequest

SOURCE = """
import torch
import beside_it

def pair():
    return torch.nn.Linear(4, 3), torch.arange(8.0).reshape(2, 4)

def mapping():
    return torch.nn.Linear(4, 3), {"input": torch.ones(2, 4)}

def uneven():
    return torch.nn.Bilinear(4, 4, 3), (torch.ones(2, 4), torch.ones(1, 4))

def alone():
    return torch.nn.Linear(4, 3)

def needy(width, *, depth, bias=True):
    raise AssertionError("must not be called")

def number():
    return 3

def triple():
    return torch.nn.Linear(4, 3), torch.ones(2, 4), 5

def a_class():
    return torch.nn.Linear

def broken():
    raise ZeroDivisionError("in the factory")

def plain_callable():
    return (lambda x: x * 2), torch.ones(2, 4)

def scalar():
    return (lambda x: x * 2), torch.tensor(1.0)

def reads_a_value():
    layer = torch.nn.Linear(4, 3)
    assert layer.weight.sum().item() != 0
    return layer

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 3)

class Holder:
    inner = pair

model = Net()
"""


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Path]:
    path, modules = list(sys.path), set(sys.modules)
    (tmp_path / "beside_it.py").write_text("")
    (tmp_path / "my_factories.py").write_text(SOURCE)
    yield tmp_path / "my_factories.py"
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("my_factories", "beside_it", "my_package")):
            del sys.modules[name]


def refused(spec: str, **options: object) -> InputError:
    with pytest.raises(InputError) as caught:
        load(TargetRequest(spec, **options))
    return caught.value


@pytest.mark.parametrize("name", ["pair", "Holder.inner"])
def test_a_factory_gives_model_and_inputs(source: Path, name: str) -> None:
    target = load(TargetRequest(f"{source}:{name}"))
    assert target.kind == "python"
    assert target.name == "Linear"
    assert target.weights == "as the factory made them"
    assert target.batch == 2
    assert target.inputs.args[0].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert target.model(*target.inputs.args).shape == (2, 3)


def test_a_mapping_of_inputs_becomes_keywords(source: Path) -> None:
    assert list(load(TargetRequest(f"{source}:mapping")).inputs.kwargs) == ["input"]


@pytest.mark.parametrize("name", ["alone", "Net", "model"])
def test_a_function_a_class_or_a_model_will_do(source: Path, name: str) -> None:
    target = load(TargetRequest(f"{source}:{name}", inputs=("5x4",)))
    assert target.model(*target.inputs.args).shape == (5, 3)


def test_any_callable_can_be_a_model(source: Path) -> None:
    target = load(TargetRequest(f"{source}:plain_callable"))
    assert target.model(*target.inputs.args).tolist() == [[2.0] * 4] * 2


def test_given_inputs_replace_those_of_the_factory(source: Path) -> None:
    target = load(TargetRequest(f"{source}:pair", inputs=("7x4",)))
    assert target.inputs.args[0].shape == (7, 4)


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_batch_repeats_the_examples(source: Path, batch: int) -> None:
    (given,) = load(TargetRequest(f"{source}:pair", batch=batch)).inputs.args
    rows = [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert given.tolist() == [rows[row % 2] for row in range(batch)]


def test_batch_is_refused_where_leading_dimensions_differ(source: Path) -> None:
    error = refused(f"{source}:uneven", batch=4)
    assert error.id == "input-batch"


def test_batch_is_refused_where_no_input_has_a_dimension(source: Path) -> None:
    """A sweep would measure the same call under the name of every batch."""
    error = refused(f"{source}:scalar", batch=4)
    assert error.id == "input-batch"
    assert "None is a tensor with a dimension" in error.cause
    assert "--input" in error.remedy


def test_a_dotted_module_is_found_in_the_current_folder(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = source.parent / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "zoo.py").write_text(SOURCE)
    monkeypatch.chdir(source.parent)
    assert load(TargetRequest("my_package.zoo:pair")).name == "Linear"


def test_a_file_is_read_again_after_a_change(source: Path) -> None:
    load(TargetRequest(f"{source}:pair"))
    source.write_text("import torch\ndef pair(): return torch.nn.Linear(4, 9), torch.ones(2, 4)\n")
    assert load(TargetRequest(f"{source}:pair")).model.out_features == 9


def test_a_file_named_like_an_installed_module_does_not_replace_it(tmp_path: Path) -> None:
    path = list(sys.path)
    (tmp_path / "json.py").write_text("import torch\nmodel = torch.nn.Linear(4, 3)\n")
    try:
        load(TargetRequest(f"{tmp_path / 'json.py'}:model", inputs=("2x4",)))
        assert hasattr(sys.modules["json"], "dumps")
    finally:
        sys.path[:] = path


@pytest.mark.parametrize("name", ["pair", "alone", "reads_a_value"])
def test_on_the_meta_device_nothing_is_allocated(source: Path, name: str) -> None:
    model = load(TargetRequest(f"{source}:{name}", inputs=("2x4",), device="meta")).model
    assert all(parameter.is_meta for parameter in model.parameters())


def test_missing_inputs_are_asked_for_with_the_signature(source: Path) -> None:
    error = refused(f"{source}:alone")
    assert error.id == "input-missing"
    assert "forward(input: torch.Tensor)" in error.cause
    assert "--input input=" in error.remedy


@pytest.mark.parametrize(
    ("name", "id", "says"),
    [
        (":needy", "factory-arguments", "width, depth"),
        (":number", "factory-result", "int"),
        (":triple", "factory-result", "a tuple of 3"),
        (":a_class", "factory-result", "type"),
        (":pear", "factory-missing", "pair"),
        (":zzzzzz", "factory-missing", "number"),
        ("", "factory-missing", "pair, mapping, uneven, alone, number"),
    ],
)
def test_what_a_factory_cannot_be(source: Path, name: str, id: str, says: str) -> None:
    error = refused(f"{source}{name}")
    assert error.id == id
    assert says in str(error)


def test_an_exception_of_the_factory_is_the_cause(source: Path) -> None:
    error = refused(f"{source}:broken")
    assert error.id == "factory-raised"
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert error.__cause__.__traceback__ is not None


@pytest.mark.parametrize(
    "text", ["import no_such_module_xyz", "def f(:", "raise KeyError(1)", "raise SystemExit(3)"]
)
def test_a_file_that_cannot_be_imported(source: Path, text: str) -> None:
    source.write_text(text)
    error = refused(f"{source}:pair")
    assert error.id == "factory-raised"
    assert error.__cause__ is not None
    assert "my_factories" not in sys.modules


def test_missing_files_and_modules(tmp_path: Path) -> None:
    assert refused(f"{tmp_path}/none.py:f").id == "file-missing"
    assert refused("no_such_package_xyz.zoo:f").id == "module-missing"


def test_random_weights_are_the_same_each_time(source: Path) -> None:
    first, second = (load(TargetRequest(f"{source}:alone", inputs=("2x4",))) for _ in range(2))
    assert torch.equal(first.model.weight, second.model.weight)
    assert torch.equal(first.inputs.args[0], second.inputs.args[0])
