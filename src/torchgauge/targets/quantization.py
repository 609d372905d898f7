"""Dynamic int8: weights as bytes, activations quantised as they come."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable

from torch import nn

from torchgauge.errors import InputError, missing_extra
from torchgauge.targets import members

LAYERS = (nn.Linear, nn.LSTM, nn.GRU)


def dynamic_int8(model: object, device: str) -> nn.Module:
    """Return the model with its linear layers (on the CPU also LSTM and GRU) in dynamic int8.

    The model is changed in place where torchao does it (GPU), copied by torch.ao (CPU). Raises
    InputError `int8-unsupported`, MissingExtraError.
    """
    if not isinstance(model, nn.Module):
        raise _unsupported("A plain callable has no layers that could be quantised.")
    kinds = LAYERS if device == "cpu" else (nn.Linear,)
    if not any(isinstance(layer, kinds) for layer in model.modules()):
        raise _unsupported("It has no layer of a kind that dynamic quantisation knows (Linear).")
    return _by_torch(model, set(kinds)) if device == "cpu" else _by_torchao(model)


def share(model: nn.Module) -> float:
    """Return the share of the parameters' bytes that lies in layers that get quantised."""
    layers = [layer for layer in model.modules() if isinstance(layer, LAYERS)]
    quantized_bytes = {id(p): p.nbytes for layer in layers for p in layer.parameters(recurse=False)}
    total_bytes = [p.nbytes for p in members.parameters(model)]
    return sum(quantized_bytes.values()) / max(sum(total_bytes), 1)


def _by_torch(model: nn.Module, kinds: set[type[nn.Module]]) -> nn.Module:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated in favour of torchao, and what there is
            from torch.ao.quantization import quantize_dynamic

            quantize: Callable[..., nn.Module] = quantize_dynamic
            return quantize(model, kinds, dtype=torch.qint8)
    except (ImportError, AttributeError, RuntimeError) as error:
        raise _unsupported(f"{type(error).__name__}: {error}") from error


def _by_torchao(model: nn.Module) -> nn.Module:
    if importlib.util.find_spec("torchao") is None:
        raise missing_extra("torchao", "torchao", "int8 on a GPU")
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return model


def _unsupported(cause: str) -> InputError:
    return InputError(
        "The model cannot run in dynamic int8.",
        id="int8-unsupported",
        cause=cause,
        remedy="Use bf16 or fp16, or quantise the model yourself and measure that.",
    )
