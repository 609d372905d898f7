"""Makes inputs of transformers models other than tokens, pixels and sound."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torchgauge.targets.huggingface import huggingface_sizes as sizes
from torchgauge.targets.inputs.fake_tensors import RandomTensors

STEPS = 20  # of a trajectory; the paper's context length
GRID = 16  # patches along each side of an image
PATCH_COLUMNS = 2  # row and column stand before the pixels of a flattened patch
REGIONS = 36  # objects an image detector finds, as the LXMERT paper feeds
HOURS = 24  # the horizon of a forecast

# Types that need inputs which `forward` declares optional.
BEYOND_SIGNATURE = {
    "bros": ("bbox",),
    "clvp": ("input_features",),
    "decision_transformer": ("actions", "rewards", "returns_to_go", "timesteps", "attention_mask"),
    "idefics": ("pixel_values",),
    "siglip2": ("pixel_attention_mask", "spatial_shapes"),
    "udop": ("bbox",),
    "lxmert": ("visual_feats", "visual_pos"),
    "voxtral_realtime": ("input_features",),
}


def makers(model: Any, draw: RandomTensors, batch: int) -> dict[str, Callable[[], torch.Tensor]]:
    """Return how the inputs are made, by their names in `forward`."""
    config = model.config
    return {
        **_time_series(config, draw, batch),
        **_trajectory(config, draw, batch),
        **_vision_tower(config, draw, batch),
        "bbox": lambda: draw.zeros(batch, sizes.sequence(model), 4).float(),
        "visual_feats": lambda: draw.normal(batch, REGIONS, config.visual_feat_dim),
        "visual_pos": lambda: draw.normal(batch, REGIONS, config.visual_pos_dim),
        "inputs": lambda: draw.normal(batch, sizes.SEQUENCE, config.d_model),
        "input_features_mask": lambda: draw.ones(batch, sizes.spectrogram(config)[-1]),
        "query_embeds": lambda: draw.normal(batch, GRID * 2, config.hidden_size),
    }


def _time_series(
    config: Any, draw: RandomTensors, batch: int
) -> dict[str, Callable[[], torch.Tensor]]:
    """Return the windows of a forecasting model: context plus the longest lag."""
    lags = getattr(config, "lags_sequence", None) or [0]
    context = getattr(config, "context_length", None) or HOURS
    length = int(context) + max(lags)
    channels = int(getattr(config, "num_input_channels", 0) or _number(config, "input_size"))
    # Models that patch a window of many channels always have the channel dimension.
    wide = channels > 1 or hasattr(config, "num_input_channels")
    shape = (batch, length, channels) if wide else (batch, length)
    return {
        "past_values": lambda: draw.normal(*shape),
        "past_observed_mask": lambda: draw.ones(*shape).float(),
        "past_time_features": lambda: draw.normal(batch, length, config.num_time_features),
        "past_values_padding": lambda: draw.zeros(batch, length),
        "freq": lambda: draw.zeros(batch, 1),
    }


def _trajectory(
    config: Any, draw: RandomTensors, batch: int
) -> dict[str, Callable[[], torch.Tensor]]:
    return {
        "states": lambda: draw.normal(batch, STEPS, config.state_dim),
        "actions": lambda: draw.normal(batch, STEPS, config.act_dim),
        "rewards": lambda: draw.normal(batch, STEPS, 1),
        "returns_to_go": lambda: draw.normal(batch, STEPS, 1),
        "timesteps": lambda: draw.integers(STEPS, batch, STEPS),
        "attention_mask": lambda: draw.ones(batch, STEPS),
    }


def _vision_tower(
    config: Any, draw: RandomTensors, batch: int
) -> dict[str, Callable[[], torch.Tensor]]:
    """Return images as the flat list of patches that the towers of vision-language models take."""
    patch = sizes.find(config, ("patch_size",), sizes.VISION_PARTS) or 1
    side = patch if isinstance(patch, int) else math.isqrt(math.prod(patch))
    pixels = sizes.image(config)[0] * side**2
    deep = getattr(config, "temporal_patch_size", 1) or 1
    flat = sizes.find(config, ("patch_embed_hidden_size",), sizes.VISION_PARTS)

    def grid() -> torch.Tensor:
        grids = draw.ones(batch, 3)
        grids[:, 1:] = GRID
        return grids

    def flattened() -> torch.Tensor:
        patches = draw.normal(batch, GRID**2, PATCH_COLUMNS + (flat or pixels))
        patches[..., :PATCH_COLUMNS] = 1.0  # row and column, which index embeddings
        return patches

    return {
        "hidden_states": lambda: draw.normal(batch * GRID**2, pixels * deep),
        "flat_pixel_values": lambda: draw.normal(batch * GRID**2, pixels * deep),
        "grid_thw": grid,
        "image_grid_thw": grid,
        "pixel_attention_mask": lambda: draw.ones(batch, GRID**2),
        "spatial_shapes": lambda: draw.ones(batch, 2) * GRID,
        "flattened_patches": flattened,
    }


def _number(config: Any, name: str) -> int:
    value = getattr(config, name, 1)
    return value if isinstance(value, int) else 1
