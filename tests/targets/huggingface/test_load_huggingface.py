"""hf:ARCHITECTURE and Hugging Face folders."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from torchgauge.errors import InputError
from torchgauge.targets.huggingface.huggingface_inputs import example_inputs
from torchgauge.targets.loaders.load import load
from torchgauge.targets.target import Target, TargetRequest

TEXT = "num_hidden_layers=2&hidden_size=64&num_attention_heads=4&intermediate_size=128"
GROUPED = f"{TEXT}&num_key_value_heads=2&vocab_size=500"
STACKS = (
    "d_model=64&encoder_layers=1&decoder_layers=1&encoder_attention_heads=4"
    "&decoder_attention_heads=4&encoder_ffn_dim=128&decoder_ffn_dim=128"
)
VISION = f"{TEXT}&image_size=64"
TINY = {
    "bert": TEXT,
    "distilbert": "n_layers=2&dim=64&n_heads=4&hidden_dim=128",
    "roberta": TEXT,
    "deberta-v2": TEXT,
    "gpt2": "n_layer=2&n_embd=64&n_head=4",
    "llama": GROUPED,
    "qwen2": GROUPED,
    "qwen3": f"{GROUPED}&head_dim=16",
    "gemma": f"{GROUPED}&head_dim=16",
    "phi": GROUPED,
    "opt": "num_hidden_layers=2&hidden_size=64&num_attention_heads=4&ffn_dim=128"
    "&word_embed_proj_dim=64",
    "mixtral": f"{GROUPED}&num_local_experts=4",
    "mamba": "num_hidden_layers=2&hidden_size=64&vocab_size=500",
    "t5": "num_layers=2&d_model=64&d_ff=128&num_heads=4&d_kv=16",
    "bart": STACKS,
    "whisper": STACKS,
    "wav2vec2": TEXT,
    "clip": "text_config.num_hidden_layers=1&vision_config.num_hidden_layers=1",
    "vit": VISION,
    "swin": "depths=[1,1]&embed_dim=24&num_heads=[2,4]&image_size=64&window_size=4",
    "resnet": "depths=[1,1,1,1]&hidden_sizes=[16,16,16,16]&embedding_size=16",
    "convnext": "depths=[1,1,1,1]&hidden_sizes=[8,8,8,16]",
    "segformer": "depths=[1,1,1,1]&hidden_sizes=[8,8,16,16]",
}
# One of each kind is quick: an encoder, a decoder, both, and a model of images.
MODEL_TYPES = [
    pytest.param(
        name, marks=[] if name in ("bert", "gpt2", "t5", "vit") else [pytest.mark.thorough]
    )
    for name in TINY
]


def forward(target: Target) -> Any:
    target.model.eval()
    with torch.inference_mode():
        return target.model(*target.inputs.args, **target.inputs.kwargs)


def parameters(target: Target) -> int:
    return sum(parameter.numel() for parameter in target.model.parameters())


def refused(spec: str, **options: object) -> InputError:
    with pytest.raises(InputError) as caught:
        load(TargetRequest(spec, **options))
    return caught.value


@pytest.mark.parametrize(
    ("spec", "name", "count"),
    [
        ("hf:gpt2", "GPT2LMHeadModel", 124_439_808),
        ("hf:bert", "BertModel", 109_482_240),
        ("hf:vit", "ViTForImageClassification", 85_800_194),
        ("hf:llama", "LlamaForCausalLM", 6_738_415_616),
        ("hf:t5", "T5ForConditionalGeneration", 60_506_624),
        ("hf:clip", "CLIPModel", 151_277_313),
        ("hf:BertForSequenceClassification", None, 109_483_778),
    ],
)
def test_class_and_parameters(spec: str, name: str | None, count: int) -> None:
    target = load(TargetRequest(spec, device="meta"))
    assert target.kind == "huggingface"
    assert target.name == name or name is None
    assert parameters(target) == count
    assert all(parameter.is_meta for parameter in target.model.parameters())


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_one_call_works_as_loaded_and_training_inputs_give_a_loss(model_type: str) -> None:
    request = TargetRequest(f"hf:{model_type}?{TINY[model_type]}", batch=2)
    target = load(request)
    forward(target)
    assert target.batch == 2
    assert target.weights == "random"
    inputs = example_inputs(target.model, dataclasses.replace(request, training=True))
    bare = {"bert", "distilbert", "roberta", "deberta-v2", "wav2vec2"}  # without a head
    output = forward(dataclasses.replace(target, inputs=inputs))
    assert (getattr(output, "loss", None) is None) == (model_type in bare)


@pytest.mark.parametrize(
    "name",
    [
        *("BertForSequenceClassification", "BertForTokenClassification", "BertForMaskedLM"),
        *("BertForMultipleChoice", "BertForQuestionAnswering", "BertForNextSentencePrediction"),
    ],
)
def test_labels_fit_each_head(name: str) -> None:
    output = forward(load(TargetRequest(f"hf:{name}?{TEXT}", batch=3, training=True)))
    assert output.loss.isfinite()


def test_labels_of_speech_and_pixels() -> None:
    speech = load(TargetRequest(f"hf:Wav2Vec2ForCTC?{TEXT}", batch=2, training=True))
    assert forward(speech).loss.isfinite()
    pixels = f"hf:SegformerForSemanticSegmentation?{TINY['segformer']}"
    assert forward(load(TargetRequest(pixels, training=True))).loss.isfinite()


def test_what_one_call_processes() -> None:
    text = load(TargetRequest("hf:gpt2", device="meta", batch=3))
    assert (text.batch, text.tokens, text.images) == (3, 3 * 128, None)
    both = load(TargetRequest("hf:t5", device="meta", batch=2))
    assert both.tokens == 2 * (128 + 128)
    image = load(TargetRequest("hf:vit", device="meta", batch=4))
    assert (image.batch, image.tokens, image.images) == (4, None, 4)


def test_token_ids_lie_in_the_vocabulary_and_are_no_special_ones() -> None:
    target = load(TargetRequest(f"hf:bart?{STACKS}&vocab_size=50", batch=64))
    ids = target.inputs.kwargs["input_ids"]
    assert 0 <= int(ids.min()) <= int(ids.max()) < 50
    config = target.model.config
    assert (ids[:, -1] == config.eos_token_id).all()
    special = torch.tensor([config.bos_token_id, config.pad_token_id, config.eos_token_id])
    assert not torch.isin(ids[:, :-1], special).any()


def test_the_sequence_is_as_long_as_the_positions_allow() -> None:
    short = load(TargetRequest(f"hf:roberta?{TEXT}&max_position_embeddings=66"))
    assert short.inputs.kwargs["input_ids"].shape == (1, 64)  # the padding index takes two
    forward(short)


def test_overrides_reach_nested_configurations() -> None:
    target = load(TargetRequest("hf:clip?vision_config.image_size=64", device="meta"))
    assert target.inputs.kwargs["pixel_values"].shape == (1, 3, 64, 64)
    assert target.model.config.vision_config.hidden_size == 768


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("num_hidden_layer=2", "num_hidden_layers"),
        ("num_hidden_layers", "has no value"),
        ("num_hidden_layers=two", "expected int, got str"),
        ("vision_config.image_size=3", "has no 'vision_config'"),
    ],
)
def test_overrides_that_cannot_be(query: str, says: str) -> None:
    error = refused(f"hf:llama?{query}")
    assert error.id == "hf-override"
    assert says in str(error)


def test_half_precision_is_built_in_half_precision() -> None:
    target = load(TargetRequest("hf:llama", device="meta", precision="bf16"))
    assert {parameter.dtype for parameter in target.model.parameters()} == {torch.bfloat16}
    assert torch.get_default_dtype() == torch.float32


def test_a_model_larger_than_the_memory_is_refused_before_it_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Memory:
        available = 10**8

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    error = refused("hf:gpt2")
    assert error.id == "model-too-large"
    assert "497.8 MB" in error.message  # 124,439,808 parameters of 4 bytes
    assert "100.0 MB" in error.message
    for remedy in ("num_hidden_layers=2", "--precision bf16", "--device meta"):
        assert remedy in error.remedy


def test_named_inputs_leave_the_rest_to_be_filled_in() -> None:
    target = load(TargetRequest(f"hf:t5?{TINY['t5']}", inputs=("input_ids=3x10",)))
    ids, decoder = target.inputs.kwargs["input_ids"], target.inputs.kwargs["decoder_input_ids"]
    assert ids.shape == (3, 10)
    assert ids.dtype == torch.int64
    assert decoder.shape[0] == 3
    forward(target)


def test_positional_inputs_and_other_ways_in() -> None:
    target = load(TargetRequest(f"hf:bert?{TEXT}", inputs=("2x16:int64<100",)))
    assert list(target.inputs.kwargs) == ["input_ids"]
    embedded = load(TargetRequest(f"hf:bert?{TEXT}", inputs=("inputs_embeds=2x16x64",)))
    assert list(embedded.inputs.kwargs) == ["inputs_embeds"]
    forward(embedded)


def test_an_input_nothing_describes_is_asked_for() -> None:
    error = refused("hf:oneformer", device="meta")
    assert error.id == "input-missing"
    assert "task_inputs" in error.message
    assert "--input task_inputs=" in error.remedy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = load(TargetRequest(f"hf:BertForSequenceClassification?{TEXT}"))
    target.model.save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def test_a_saved_folder_gives_the_saved_model(folder: Path) -> None:
    target = load(TargetRequest(str(folder), batch=2))
    assert target.name == "BertForSequenceClassification"
    assert target.weights == f"from {folder}"
    assert [path.name for path in target.files] == ["model.safetensors"]
    saved = load(TargetRequest(f"hf:BertForSequenceClassification?{TEXT}")).model.state_dict()
    assert all(torch.equal(value, saved[key]) for key, value in target.model.state_dict().items())
    assert forward(target).logits.shape == (2, 2)


def test_a_folder_on_the_meta_device_is_not_read(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")
    target = load(TargetRequest(str(folder), device="meta"))
    assert target.files == ()
    assert "not read" in target.weights


def test_pickled_weights_in_a_folder(folder: Path) -> None:
    model = load(TargetRequest(str(folder))).model
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    target = load(TargetRequest(str(folder)))
    assert [path.name for path in target.files] == ["pytorch_model.bin"]
    assert torch.equal(target.model.classifier.weight, model.classifier.weight)


def test_hostile_pickled_weights_in_a_folder(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "it-ran"

    class Hostile:
        def __reduce__(self) -> tuple[object, ...]:
            return os.system, (f"touch {marker}",)

    (folder / "model.safetensors").unlink()
    torch.save({"classifier.bias": Hostile()}, folder / "pytorch_model.bin")
    assert refused(str(folder)).id == "weights-untrusted"
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"classifier.bias": Hostile()}))
    refused(str(folder))
    assert not marker.exists()


def test_a_folder_that_wants_its_own_code_run(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "my-own",
        "architectures": ["MyOwnModel"],
        "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.MyOwnModel"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    marker = tmp_path / "it-ran"
    (folder / "code.py").write_text(f"open({str(marker)!r}, 'w')\n")
    error = refused(str(folder))
    assert error.id == "hf-remote-code"
    assert not marker.exists()


@pytest.mark.parametrize("text", ["", "[]", "{not json", "3"])
def test_a_config_that_is_none(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    assert refused(str(folder)).id == "hf-config"


def test_a_folder_of_an_unknown_architecture(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "bert", "architectures": ["Nonsense"]}')
    assert refused(str(folder)).id == "hf-unknown"


def test_weights_that_do_not_fill_the_model(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(folder / "model.safetensors")
    del state["classifier.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    error = refused(str(folder))
    assert error.id == "weights-mismatch"
    assert "classifier.weight" in error.cause


@pytest.mark.slow
def test_the_network_is_never_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    def refuse(*arguments: object, **_: object) -> None:
        tried.append(arguments)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    before = dict(os.environ)
    for spec in (f"hf:gpt2?{TINY['gpt2']}", str(folder), "timm:resnet18", "torchvision:alexnet"):
        load(TargetRequest(spec))
    with pytest.raises(InputError):
        load(TargetRequest("hf:google/bert-base"))
    assert tried == []
    assert dict(os.environ) == before
