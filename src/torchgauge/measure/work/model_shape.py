"""The sizes of a transformer that the field's formula of FLOPs is of, as the model tells them."""

from __future__ import annotations

from typing import Any

from torch import nn

from torchgauge.analyze.work.utilization import ModelShape
from torchgauge.targets import members

# What configurations call them; Hugging Face's, GPT-2's and MPT's.
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")


def model_shape(modules: list[nn.Module]) -> ModelShape | None:
    """Return the shape of a model, of several their parameters alone; None without any.

    Layers and width are those of its configuration, else of its `nn.MultiheadAttention`s where they
    are all as wide. An encoder beside a decoder has lengths of its own: no layers are told then.
    """
    parameters = {
        id(parameter): parameter.numel()
        for module in modules
        for parameter in members.parameters(module)
    }
    if not parameters:
        return None
    total = sum(parameters.values())
    layers, width = _configured(modules[0]) if len(modules) == 1 else (None, None)
    return ModelShape(total, layers, width)


def _configured(module: nn.Module) -> tuple[int | None, int | None]:
    config = getattr(module, "config", None)
    if getattr(config, "is_encoder_decoder", False) is True:
        return None, None
    layers, hidden = _number(config, _LAYERS), _number(config, _HIDDEN)
    if layers and hidden:
        size, heads = _number(config, ("head_dim",)), _number(config, _HEADS)
        return layers, heads * size if heads and size else hidden
    attentions = [part for part in module.modules() if isinstance(part, nn.MultiheadAttention)]
    widths = {attention.embed_dim for attention in attentions}
    return (len(attentions), widths.pop()) if len(widths) == 1 else (None, None)


def _number(config: Any, names: tuple[str, ...]) -> int | None:
    values = (getattr(config, name, None) for name in names)
    return next((value for value in values if type(value) is int and value > 0), None)
