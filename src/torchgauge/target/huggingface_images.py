"""An image beside the text of a model that generates text: how many tokens stand for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torchgauge.target import huggingface_sizes as sizes

# Types whose code reads values to put an image into a text, so that meta tensors do not do.
_READ_VALUES = ("ovis2",)
_MAKES = "get_image_features"
_NAMES = ("image_token_id", "image_token_index")


def placeholder(model: Any) -> int | None:
    """Return the token id that stands for a part of an image; None where the model has none."""
    if not model.can_generate() or _features(model) is None:
        return None
    if model.config.model_type in _READ_VALUES and model.device.type == "meta":
        return None
    found = next((value for name in _NAMES if (value := getattr(model.config, name, None))), None)
    return found if isinstance(found, int) else None


def places(model: Any, pixels: torch.Tensor) -> int | None:
    """Return how many tokens of a text stand for its image, by the features that the model makes.

    None where it makes none of pixels alone, or not as many for each image.
    """
    make = _features(model)
    if make is None:
        return None
    try:
        with torch.inference_mode():
            features = make(pixel_values=pixels)
    except Exception:  # noqa: BLE001 - it wants more than pixels, and says so in its own way
        return None
    features = getattr(features, "pooler_output", features)
    parts = [features] if isinstance(features, torch.Tensor) else features
    if not isinstance(parts, list | tuple) or not all(torch.is_tensor(part) for part in parts):
        return None
    rows = sum(math.prod(part.shape[:-1]) for part in parts)
    each, rest = divmod(rows, len(pixels))
    return each if each and not rest else None


def _features(model: Any) -> Callable[..., Any] | None:
    """Return what makes an image's features: of the model, or of what its head stands on."""
    owners = (model, model.base_model)
    return next((make for one in owners if (make := getattr(one, _MAKES, None))), None)


def in_vocabulary(config: Any) -> None:
    """Have the placeholder be a token that the model has, for a configuration without weights.

    Real models get a larger table of embeddings for it, which default configurations lack.
    """
    vocabulary = sizes.find(config, ("vocab_size",), sizes.TEXT_PARTS)
    for name in _NAMES:
        token = getattr(config, name, None)
        if isinstance(token, int) and isinstance(vocabulary, int) and token >= vocabulary:
            setattr(config, name, vocabulary - 1)
