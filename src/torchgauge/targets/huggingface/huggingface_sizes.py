"""Input sizes that a transformers configuration gives: vocabulary, positions, image, sound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

SEQUENCE = 128
IMAGE_SIDE = 224
FRAMES = 8
SAMPLES = 16_000  # one second at the 16 kHz that speech models are trained on

CLAP_FRAMES, CLAP_MELS = 1001, 64  # ten seconds, as its feature extractor cuts them
# Whisper-like front ends whose configuration does not name their source positions.
MELS_FIRST = ("glmasr_encoder", "clvp", "clvp_encoder", "voxtral_realtime_encoder")
MELS_POSITIONS = 1500
# Types that take (channels, samples) and do not say how many channels: one.
CHANNELLED = ("pe_audio", "pe_audio_encoder", "pe_audio_video_encoder", "vibevoice_acoustic")

TEXT_PARTS = ("text_config", "text_encoder", "language_config", "llm_config", "decoder", "encoder")
VISION_PARTS = ("vision_config", "vision", "image_encoder", "backbone_config", "encoder")
AUDIO_PARTS = ("audio_config", "audio_encoder", "speech_encoder", "encoder_config", "encoder")
# In this order: what the positions are limited to, under the names configurations use.
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_source_positions")
TARGET_POSITIONS = ("max_target_positions", *POSITIONS)


def nested(config: Any, parts: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield the configuration, then those inside it: the named parts first, then all, by depth."""
    visited: set[int] = set()
    level = [config]
    while level:
        next_level: list[Any] = []
        for section in level:
            if id(section) in visited:
                continue
            visited.add(id(section))
            yield section
            inner = [getattr(section, name, None) for name in parts]
            inner += [getattr(section, name, None) for name in getattr(section, "sub_configs", {})]
            inner += list(vars(section).values())
            next_level += [part for part in inner if hasattr(part, "model_type")]
        level = next_level


def find(config: Any, names: tuple[str, ...], parts: tuple[str, ...] = ()) -> Any:
    """Return the first value that is set under one of `names`, the outermost first."""
    for section in nested(config, parts):
        for name in names:
            value = getattr(section, name, None)
            if value is not None:
                return value
    return None


def vocabulary(model: Any, *, decoder: bool = False) -> int:
    """Return how many token ids there are to draw from; a decoder may have its own."""
    config = model.config
    own = find(config, ("decoder_vocab_size", "vocab_size"), ("decoder",)) if decoder else None
    size = own or find(config, ("vocab_size",), TEXT_PARTS)
    if isinstance(size, int) and size > 0:
        return size
    try:
        table = model.get_input_embeddings()
    except NotImplementedError:  # transformers says so for models without one
        return 2
    return int(table.num_embeddings) if isinstance(table, torch.nn.Embedding) else 2


def special_tokens(config: Any) -> set[int]:
    """Return the ids of the model's special tokens, such as padding or an image placeholder."""
    ids: set[int] = set()
    for section in nested(config):
        for name, value in vars(section).items():
            if name.endswith(("_token_id", "_token_index")):
                values = value if isinstance(value, (list, tuple)) else (value,)
                ids |= {token for token in values if isinstance(token, int)}
    return ids


def sequence(model: Any, names: tuple[str, ...] = POSITIONS) -> int:
    """Return the sequence length: 128, or what the model's positions allow."""
    limit = find(model.config, names, TEXT_PARTS)
    if not isinstance(limit, int) or limit <= 0:
        return SEQUENCE
    # RoBERTa and its kin count positions from behind the padding index.
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None):
            limit -= module.padding_idx + 1
            break
    return max(min(SEQUENCE, int(limit)), 1)


def image(config: Any) -> tuple[int, int, int]:
    """Return channels, height and width; 224 × 224 where the configuration has no size."""
    size = find(config, ("image_size", "img_size", "input_size"), VISION_PARTS)
    channels = find(config, ("num_channels", "in_channels", "in_chans"), VISION_PARTS)
    height, width = _sides(size)
    return channels if isinstance(channels, int) else 3, height, width


def _sides(size: Any) -> tuple[int, int]:
    if isinstance(size, int) and size > 0:
        return size, size
    if isinstance(size, dict) and "height" in size:
        return int(size["height"]), int(size["width"])
    if isinstance(size, (list, tuple)) and size:
        return int(size[-2] if len(size) > 1 else size[0]), int(size[-1])
    return IMAGE_SIDE, IMAGE_SIDE


def frames(config: Any) -> int:
    """Return the frames of a clip."""
    count = find(config, ("num_frames", "frames_per_clip"), VISION_PARTS)
    return count if isinstance(count, int) else FRAMES


def spectrogram(config: Any) -> tuple[int, ...]:
    """Return the shape of `input_features` behind the batch.

    Whisper and its kin: mel bins × frames, two frames per position. Others: frames × bins.
    """
    mels = find(config, ("num_mel_bins", "n_mels"), AUDIO_PARTS)
    positions = find(config, ("max_source_positions",), AUDIO_PARTS)
    if config.model_type == "speech_to_text":
        return (4 * SEQUENCE, int(config.input_feat_per_channel))
    if config.model_type.startswith("clap"):
        return (1, CLAP_FRAMES, int(mels or CLAP_MELS))
    if mels and (positions or config.model_type in MELS_FIRST):
        return (int(mels), 2 * int(positions or MELS_POSITIONS))
    bins = find(
        config,
        ("feature_projection_input_dim", "input_feat_size", "input_dim", "feature_size"),
        AUDIO_PARTS,
    )
    return (4 * SEQUENCE, int(bins or mels or 80))


def waveform(config: Any) -> tuple[int, ...]:
    """Return the shape of `input_values` behind the batch: samples, or channels × samples."""
    if config.model_type == "audio-spectrogram-transformer":
        return (config.max_length, config.num_mel_bins)
    channels = getattr(config, "audio_channels", None)
    codec = hasattr(config, "codebook_size") or hasattr(config, "n_codebooks")
    codec = codec or config.model_type.startswith(CHANNELLED)
    return (int(channels or 1), SAMPLES) if channels or codec else (SAMPLES,)


# Types whose code reads values to put an image into a text, which meta tensors do not have.
_READ_VALUES = ("ovis2",)
_FEATURE_METHOD = "get_image_features"
_NAMES = ("image_token_id", "image_token_index")


def placeholder(model: Any) -> int | None:
    """Return the token id that stands for a part of an image; None where the model has none."""
    if not model.can_generate() or _features(model) is None:
        return None
    if model.config.model_type in _READ_VALUES and model.device.type == "meta":
        return None
    token = next((value for name in _NAMES if (value := getattr(model.config, name, None))), None)
    return token if isinstance(token, int) else None


def image_token_count(model: Any, pixels: torch.Tensor) -> int | None:
    """Return how many tokens of a text stand for its image, by the features that the model makes.

    None where pixels alone are not enough, or the images have different numbers.
    """
    make = _features(model)
    if make is None:
        return None
    try:
        with torch.inference_mode():
            features = make(pixel_values=pixels)
    except Exception:  # noqa: BLE001 - a model that needs more than pixels raises anything
        return None
    features = getattr(features, "pooler_output", features)
    parts = [features] if isinstance(features, torch.Tensor) else features
    if not isinstance(parts, list | tuple) or not all(torch.is_tensor(part) for part in parts):
        return None
    rows = sum(math.prod(part.shape[:-1]) for part in parts)
    per_image, remainder = divmod(rows, len(pixels))
    return per_image if per_image and not remainder else None


def _features(model: Any) -> Callable[..., Any] | None:
    """Return the method that makes an image's features: of the model, or of its base model."""
    owners = (model, model.base_model)
    return next((make for owner in owners if (make := getattr(owner, _FEATURE_METHOD, None))), None)


def in_vocabulary(config: Any) -> None:
    """Move the placeholder into the model's vocabulary, for a configuration without weights.

    Real models get a larger table of embeddings for it, which default configurations lack.
    """
    vocabulary = find(config, ("vocab_size",), TEXT_PARTS)
    for name in _NAMES:
        token = getattr(config, name, None)
        if isinstance(token, int) and isinstance(vocabulary, int) and token >= vocabulary:
            setattr(config, name, vocabulary - 1)
