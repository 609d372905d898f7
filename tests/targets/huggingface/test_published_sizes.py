"""Published models by name: as many parameters as their publishers give."""

import re

import psutil
import pytest
from tests.support.cases import few_quick
from tests.support.paths import ROOT
from transformers import CONFIG_MAPPING

from torchgauge.cli.main import main
from torchgauge.errors import InputError
from torchgauge.targets.huggingface.huggingface_config import PUBLISHED, with_published_values
from torchgauge.targets.loaders.load import load
from torchgauge.targets.target import TargetRequest

# A head that shares the embedding's weights counts once.
PARAMETERS = {
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "gpt2-large": 774_030_080,
    "gpt2-medium": 354_823_168,
    "gpt2-xl": 1_557_611_200,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "roberta-large": 355_359_744,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    "vit-base": 86_567_656,
    "vit-large": 304_326_632,
    "whisper-large-v3": 1_543_490_560,
    "whisper-large-v3-turbo": 808_878_080,
}


@pytest.mark.parametrize("name", few_quick(PUBLISHED))
def test_the_parameters_are_the_published_ones(name):
    target = load(TargetRequest(spec=f"hf:{name}", device="meta"))
    assert sum(tensor.numel() for tensor in target.model.parameters()) == PARAMETERS[name]


def test_no_name_hides_an_architecture():
    assert not {name.replace("-", "_") for name in PUBLISHED} & {
        key.replace("-", "_") for key in CONFIG_MAPPING
    }


def test_own_values_come_after_the_published_ones():
    assert with_published_values("GPT2-XL?n_layer=2").endswith("&n_head=25&n_layer=2")
    assert with_published_values("bert-base?num_hidden_layers=1") == "bert?num_hidden_layers=1"
    assert with_published_values("llama?vocab_size=5") == "llama?vocab_size=5"
    target = load(TargetRequest(spec="hf:gpt2-xl?n_layer=2", device="meta"))
    assert (target.model.config.n_layer, target.model.config.n_embd) == (2, 1600)


@pytest.mark.slow
def test_seventy_billion_parameters_are_counted_without_memory_for_them(capsys):
    before = psutil.Process().memory_info().rss
    assert main(["count", "hf:llama-3-70b", "--precision", "bf16", "--depth", "0"]) == 0
    assert psutil.Process().memory_info().rss - before < 1e9
    printed = capsys.readouterr().out
    assert "70,553,706,496" in printed
    assert "141.1 GB" in printed
    assert "70.55 B" in printed
    assert "70.55 G" not in printed


@pytest.mark.thorough
def test_the_name_that_was_meant_is_proposed():
    for name in ("lama-3-70b", "meta-llama/Meta-Llama-3-70B"):
        with pytest.raises(InputError) as error:
            load(TargetRequest(spec=f"hf:{name}", device="meta"))
        assert error.value.id == "hf-unknown"
        assert "llama-3-70b" in error.value.remedy


def test_the_pages_name_them_all():
    page = (ROOT / "docs" / "getting-started.md").read_text()
    table = page[page.index("| family | names |") :].partition("\n\n")[0]
    assert set(re.findall(r"`(.*?)`", table)) == {"gpt2", *PUBLISHED}
