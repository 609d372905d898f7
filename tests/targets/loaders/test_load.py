"""Which loader a target goes to, and what holds for all of them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torchgauge.errors import InputError
from torchgauge.targets.loaders.load import load
from torchgauge.targets.target import TargetRequest


def refused(spec: str, **options: object) -> InputError:
    with pytest.raises(InputError) as caught:
        load(TargetRequest(spec, **options))
    return caught.value


@pytest.mark.parametrize("spec", ["", "bert/base uncased", "http://x/y", "a:b:c:d e"])
def test_what_is_no_target_names_the_forms(spec: str) -> None:
    error = refused(spec)
    assert error.id == "target-unknown"
    for form in ("file.py:factory", "package.module:factory", "config.json", "hf:", "timm:"):
        assert form in error.remedy


@pytest.mark.parametrize("name", ["m.pt2", "m.pt", "m.pth", "m.safetensors"])
def test_forms_that_are_not_loaded_say_what_to_do(tmp_path: Path, name: str) -> None:
    assert refused(str(tmp_path / name)).id == "file-missing"
    (tmp_path / name).touch()
    error = refused(str(tmp_path / name))
    if name.endswith(".pt2"):
        assert error.id == "untrusted-file"
        return
    assert error.id == "target-not-supported"
    assert "file.py:factory" in error.remedy


def test_a_folder_without_config(tmp_path: Path) -> None:
    assert "config.json" in refused(str(tmp_path)).cause


@pytest.mark.parametrize(
    ("spec", "near"),
    [
        ("torchvision:resnet19", "resnet18"),
        pytest.param("timm:efficientnet_b00", "efficientnet_b0", marks=pytest.mark.thorough),
        ("hf:lama", "llama"),
        pytest.param(
            "hf:BertForSequenceClasification",
            "BertForSequenceClassification",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_an_unknown_name_brings_suggestions(spec: str, near: str) -> None:
    error = refused(spec)
    assert near in error.remedy
    assert error.remedy.count(" or ") < 3


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["torchvision", "timm", "hf"])
def test_an_unknown_name_brings_no_long_list_but_says_how_to_see_it(scheme: str) -> None:
    found = refused(f"{scheme}:qqqqqq").remedy
    code = found.removeprefix('To see all names: python -c "').removesuffix('"')
    names = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(names) > 50
    assert "mobilebert" in names or "resnet18" in names


def test_a_name_is_near_in_any_case() -> None:
    assert "Did you mean resnet50" in refused("torchvision:RESNET50").remedy


def test_random_numbers_of_the_caller_are_left_alone() -> None:
    def draw() -> tuple[float, ...]:
        return torch.rand(1).item(), random.random(), np.random.rand()

    seeds = (torch.manual_seed, random.seed, np.random.seed)
    for seed in seeds:
        seed(11)
    expected = draw()
    for seed in seeds:
        seed(11)
    load(TargetRequest("torchvision:squeezenet1_1"))
    assert draw() == expected


@pytest.mark.slow
def test_weights_and_inputs_are_the_same_in_another_process() -> None:
    program = (
        "from torchgauge.targets.loaders.load import load\n"
        "from torchgauge.targets.target import TargetRequest\n"
        "def sums():\n"
        "    t = load(TargetRequest('torchvision:squeezenet1_1', batch=2))\n"
        "    return [x.double().sum().item() for x in (*t.model.parameters(), *t.inputs.args)]\n"
    )
    here: dict[str, Any] = {}
    exec(program, here)
    program += "print(sums())"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert json.loads(run.stdout) == here["sums"]()


def test_weights_file_is_loaded_and_named(tmp_path: Path) -> None:
    state = load(TargetRequest("torchvision:squeezenet1_1")).model.state_dict()
    name = "features.0.bias"
    state[name] = torch.full_like(state[name], 5.0)
    torch.save(state, tmp_path / "w.pt")
    target = load(TargetRequest("torchvision:squeezenet1_1", weights=tmp_path / "w.pt"))
    assert target.weights == "w.pt"
    assert target.files == (tmp_path / "w.pt",)
    assert target.model.state_dict()[name].unique().item() == 5.0


@pytest.mark.slow
def test_loading_imports_only_the_library_that_is_needed() -> None:
    program = (
        "import sys\nimport torchgauge.targets.loaders.load\n"
        "print([m for m in ('torchvision', 'timm', 'transformers') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr
