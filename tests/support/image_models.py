"""Small vision–language models with random weights, and prompts with an image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as tf
from tests.support.generating_models import BATCH, PROMPT, VOCABULARY, GeneratingModel

IMAGE = 90  # the token that stands for a part of an image
PARTS = 4

_TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_TOWER = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
}


def _pixels(*shape: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(BATCH, *shape, 3, 16, 16)}


def _qwen2_vl() -> tuple[Any, dict[str, torch.Tensor]]:
    """Patches of 4 × 4 pixels, and a token for four of them."""
    rotary = {"mrope": {"type": "mrope", "rope_type": "default", "mrope_section": [1, 1, 2]}}
    config = tf.Qwen2VLConfig(
        text_config={**_TEXT, "rope_scaling": rotary["mrope"]},
        vision_config={
            "depth": 2, "embed_dim": 32, "num_heads": 4, "hidden_size": 32, "mlp_ratio": 2,
            "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3,
        },
        image_token_id=IMAGE, video_token_id=91, vision_start_token_id=92, vision_end_token_id=93,
    )  # fmt: skip
    grid = {"image_grid_thw": torch.tensor([[1, 4, 4]] * BATCH)}
    return config, {"pixel_values": torch.randn(BATCH * 16, 3 * 2 * 4 * 4), **grid}


def _idefics3() -> tuple[Any, dict[str, torch.Tensor]]:
    config = tf.Idefics3Config(
        text_config=tf.LlamaConfig(**_TEXT),
        vision_config={**_TOWER, "patch_size": 4},
        scale_factor=2,
        image_token_id=IMAGE,
    )
    return config, _pixels(1)


def _blip2() -> tuple[Any, dict[str, torch.Tensor]]:
    """Its `generate()` calls that of the language model in it."""
    text = tf.OPTConfig(
        hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4,
        vocab_size=VOCABULARY, word_embed_proj_dim=32,
    )  # fmt: skip
    queries = {**_TOWER, "encoder_hidden_size": 32, "vocab_size": VOCABULARY}
    del queries["image_size"]
    config = tf.Blip2Config(
        text_config=text,
        vision_config={**_TOWER, "patch_size": 8},
        qformer_config=queries,
        num_query_tokens=PARTS,
        image_token_index=IMAGE,
    )
    return config, _pixels()


def _mllama() -> tuple[Any, dict[str, torch.Tensor]]:
    """A layer of it attends to the image alone, whose keys are in the same cache."""
    tower = {
        "hidden_size": 32, "attention_heads": 4, "num_hidden_layers": 2, "num_global_layers": 1,
        "intermediate_size": 48, "vision_output_dim": 64, "image_size": 16, "patch_size": 8,
        "max_num_tiles": 1, "supported_aspect_ratios": [[1, 1]], "intermediate_layers_indices": [0],
    }  # fmt: skip
    text = {**_TEXT, "cross_attention_layers": [1], "rope_scaling": None}
    config = tf.MllamaConfig(text_config=text, vision_config=tower, image_token_index=IMAGE)
    tiles = torch.ones(BATCH, 1, dtype=torch.long)
    inputs = {
        "aspect_ratio_ids": tiles,
        "aspect_ratio_mask": tiles[..., None],
        "cross_attention_mask": torch.ones(BATCH, PROMPT, 1, 1, dtype=torch.long),
    }
    return config, {**_pixels(1, 1), **inputs}


MODELS: dict[str, Callable[[], tuple[Any, dict[str, torch.Tensor]]]] = {
    "qwen2-vl": _qwen2_vl,
    "idefics3": _idefics3,
    "blip2": _blip2,
    "mllama": _mllama,
}


def image_model(name: str) -> GeneratingModel:
    """Return a small model with a prompt that holds an image, the same for every call."""
    torch.manual_seed(7)
    config, inputs = MODELS[name]()
    model = tf.AutoModelForImageTextToText.from_config(config).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    ids = torch.randint(5, 80, (BATCH, PROMPT))
    ids[:, 1 : 1 + (1 if name == "mllama" else PARTS)] = IMAGE
    if name == "qwen2-vl":
        inputs["mm_token_type_ids"] = (ids == IMAGE).int()
    inputs = {"input_ids": ids, **inputs}
    encoders = int(name != "mllama")  # which computes the image within its first forward
    return GeneratingModel(model, inputs, start=PROMPT, encoders=encoders, returns_cache=True)
