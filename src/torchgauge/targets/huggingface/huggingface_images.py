"""The placeholder tokens of an image in the text input of a model that generates text."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torchgauge.targets.huggingface import huggingface_sizes as sizes

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
    vocabulary = sizes.find(config, ("vocab_size",), sizes.TEXT_PARTS)
    for name in _NAMES:
        token = getattr(config, name, None)
        if isinstance(token, int) and isinstance(vocabulary, int) and token >= vocabulary:
            setattr(config, name, vocabulary - 1)
