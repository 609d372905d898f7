"""What a text that is no target probably means."""

import pytest
from tests.support import mistakes

from torchgauge.errors import InputError
from torchgauge.files import path_remedy
from torchgauge.targets.loaders.load import likely_scheme, likely_targets, load
from torchgauge.targets.loaders.python_source import candidates
from torchgauge.targets.target import TargetRequest


@pytest.mark.parametrize(
    ("spec", "first"),
    [
        ("resnet18", "torchvision:resnet18"),
        ("ResNet-50", "torchvision:resnet50"),
        ("efficientnet-b0", "torchvision:efficientnet_b0"),
        ("bert-base-uncased", "hf:bert-base"),
        ("google-bert/bert-large-uncased", "hf:bert-large"),
        ("google-bert/bert-tiny", "hf:bert"),
        ("distilbert-base-uncased", "hf:distilbert"),
        ("meta-llama/Llama-3.2-1B", "hf:llama-3.2-1b"),
        ("mistralai/Mistral-7B-Instruct-v0.1", "hf:mistral-7b"),
        ("openai/whisper-large-v3-turbo", "hf:whisper-large-v3-turbo"),
        ("gpt2-medium", "hf:gpt2-medium"),
        ("resnt18", "torchvision:resnet18"),
    ],
)
def test_names_of_libraries_and_of_the_hub_are_known(spec, first):
    assert likely_targets(spec)[0] == first


@pytest.mark.parametrize("spec", ["", "no such thing", "http://x/y", "a:b:c"])
def test_nothing_is_guessed_of_what_is_like_nothing(spec):
    assert likely_targets(spec) == []


def test_a_point_in_place_of_the_colon_is_seen(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text("def make(): ...\n")
    monkeypatch.chdir(tmp_path)
    assert likely_targets("net.make") == ["net.py:make"]
    assert likely_targets("other.make") == []


@pytest.mark.parametrize(
    ("spec", "meant"),
    [("torchvison:resnet18", "torchvision:resnet18"), ("HF:bert", "hf:bert"), ("models:make", "")],
)
def test_a_scheme_is_told_from_a_module(spec, meant):
    assert likely_scheme(spec) == meant


def test_factories_are_listed_without_running_the_file(tmp_path):
    file = tmp_path / "models.py"
    file.write_text(
        "raise RuntimeError('it ran')\n"
        "class Wide:\n    def __init__(self, width): ...\n"
        "class Plain:\n    def forward(self, x): ...\n"
        "def _own(): ...\n"
        "def needs(width): ...\n"
        "def make(width=3, *, depth=4): ...\n"
    )
    assert candidates(file) == ["make", "Plain"]
    with pytest.raises(InputError) as caught:
        load(TargetRequest(str(file)))
    assert "make, Plain" in caught.value.cause
    assert caught.value.remedy.endswith(f"{file}:make.")


def test_a_misspelt_factory_is_told_with_its_file(tmp_path):
    mistakes.write_files(tmp_path)
    with pytest.raises(InputError) as caught:
        load(TargetRequest(f"{tmp_path}/models.py:Maek"))
    assert caught.value.remedy == f"Did you mean {tmp_path}/models.py:make?"
    with pytest.raises(InputError) as caught:
        load(TargetRequest(f"{tmp_path}/models.py:zzz"))
    assert "torch" not in caught.value.remedy  # what the file imports makes no model


def test_a_misspelt_file_is_told_by_the_one_beside_it(tmp_path):
    (tmp_path / "profile.json").touch()
    assert path_remedy(tmp_path / "profle.json") == f"Did you mean {tmp_path}/profile.json?"
    assert path_remedy(tmp_path / "zzz") == "Check the path."
    assert path_remedy(tmp_path / "none" / "profile.json") == "Check the path."
