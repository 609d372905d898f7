"""torch's private names: in one table, each in this torch, and what an absent one costs."""

import ast
import re
from pathlib import Path

import pytest
import torch

import torchgauge as tg
from torchgauge import torch_private
from torchgauge.errors import MeasurementError

SRC = Path(torch_private.__file__).parent
SOURCES = {path.relative_to(SRC).as_posix(): path.read_text() for path in SRC.rglob("*.py")}
# These are there in builds with CUDA alone.
OF_CUDA = {"watch_cuda_memory"}


def private_uses(source: str) -> list[str]:
    """Return the private names of torch that a file imports, or reads below `torch`."""
    tree = ast.parse(source)
    names, aliases = [], {"torch": "torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name.startswith("torch.")]
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("torch."):
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    names += aliases.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root, _, path = ast.unparse(node).partition(".")
            if root in aliases and path.replace(".", "").isidentifier():
                names.append(f"{aliases[root]}.{path}")
    return [name for name in names if any(map(is_private, name.split(".")))]


def is_private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__")


@pytest.mark.parametrize(
    "source",
    [
        "import torch._dynamo", "from torch._C import _functorch", "from torch import _VF",
        "import torch\ntorch.nn.Module._call_impl", "from torch import nn\nnn.Module._call_impl(x)",
        "from torch.utils import _pytree as trees\ntrees.tree_map",
    ],
)  # fmt: skip
def test_private_names_are_seen(source):
    assert private_uses(source)
    assert not private_uses("import torch\nfrom torch import nn\nnn.Module()(x)._private.torch")


def test_private_names_of_torch_stand_in_one_table():
    uses = {
        name: private_uses(source)
        for name, source in SOURCES.items()
        if re.search(r"^ *(from|import) torch\b", source, re.MULTILINE)
    }
    assert "measure/step.py" in uses
    assert {name: found for name, found in uses.items() if found} == {}


def test_each_name_is_in_this_torch_and_used():
    here = {name for name in torch_private.NAMES if name not in OF_CUDA or torch.version.cuda}
    assert all(getattr(torch_private, name) is not None for name in here)
    used = set(re.findall(r"torch_private\.(\w+)", "".join(SOURCES.values())))
    assert torch_private.NAMES.keys() <= used


def lacking(monkeypatch, name):
    """Have torch lack what a name stands for."""
    _, since, purpose = torch_private.NAMES[name]
    monkeypatch.delitem(vars(torch_private), name, raising=False)
    monkeypatch.setitem(torch_private.NAMES, name, ("torch:_C._absent", since, purpose))


def test_a_name_that_torch_lacks_is_an_error_that_says_what_it_is_for(monkeypatch):
    lacking(monkeypatch, "RecordFunction")
    with pytest.raises(MeasurementError, match=r"no torch\._C\._absent") as caught:
        torch_private.RecordFunction  # noqa: B018
    assert caught.value.id == "torch-unsupported"
    assert "spans of layers" in caught.value.cause


@pytest.mark.thorough
def test_a_name_that_torch_lacks_costs_its_own_figures(monkeypatch):
    lacking(monkeypatch, "RecordFunction")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    profile = tg.profile(model, torch.ones(2, 4), effort="quick", keep_going=True)
    assert profile.latency is not None
    assert profile.cost.flops == 2 * 2 * 4 * 4
    assert profile.tree is None or not profile.tree.root.children
    assert "torch-unsupported" in {warning.id for warning in profile.all_warnings}
