"""The utilization of a profiled training step, and of the steps of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import torch
from torch import nn

from torchgauge.analyze.loop.step_shares import mean_of
from torchgauge.analyze.work.recorded_products import typical_products
from torchgauge.analyze.work.utilization import (
    ModelShape,
    Products,
    StepContents,
    StepTime,
    peak_used,
    products_of,
    utilization,
)
from torchgauge.device.roofs import roofs as machine
from torchgauge.records.environment import Environment
from torchgauge.records.latency.latency import Latency
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import Roofs
from torchgauge.records.work.utilization import PeakUsed, Utilization
from torchgauge.targets.holdings import holdings, unique
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.placement import Placement

SAME_WORK = 0.01  # of a step's FLOPs: steps that differ by less are alike
# What configurations call them; Hugging Face's, GPT-2's and MPT's.
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")


def step_utilization(
    placement: Placement,
    environment: Environment,
    cost: Cost | None,
    latency: Latency | None,
    roofs: Roofs | None,
) -> Utilization | None:
    """Return the MFU and HFU of a training step; None in inference, and where it was not timed."""
    if cost is None or latency is None or not cost.backward:
        return None
    target, module = placement.target, module_of(placement.model)
    products = products_of(cost)
    return utilization(
        products,
        StepTime(latency.median, latency.interval),
        device_peak(products, placement.device, environment, roofs),
        contents=StepContents(target.batch, target.tokens),
        shape=None if module is None else model_shape([module]),
    )


def loop_utilization(
    loop: Loop, steps: Sequence[Products], models: list[nn.Module], tokens: int | None
) -> Utilization | None:
    """Return the utilization of this process's device; `tokens` are those of a call of the model.

    `models` are those that the loop calls. None without bare steps or recorded products.
    """
    products, bare = typical_products(tuple(steps)), Loop.durations_of(loop.stretches, "bare")
    if products is None or not bare:
        return None
    device = _device()
    calls = loop.samples // loop.batch if loop.samples and loop.batch else None
    used = utilization(
        products,
        StepTime(*mean_of(bare), average="mean"),
        device_peak(products, device, loop.environment, machine.known_roofs(device)),
        contents=StepContents(
            loop.samples, None if tokens is None or calls is None else tokens * calls
        ),
        shape=model_shape(models),
    )
    lowest, *_, highest = sorted(step.model for step in (*steps, products))
    if used is None or highest <= lowest * (1 + SAME_WORK):
        return used
    return msgspec.structs.replace(
        used, flops_range=(lowest, highest), mfu_interval=None, hfu_interval=None
    )


def device_peak(
    products: Products, device: str, environment: Environment, measured: Roofs | None
) -> PeakUsed | None:
    """Return the device's peak for these products: the datasheet's, else what was measured."""
    rounding = environment.settings.fp32_matmul, environment.settings.fp32_convolution
    return peak_used(products, machine.datasheet(device), measured, rounding)


def _device() -> str:
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "cpu"
    return f"cuda:{torch.cuda.current_device()}"


def model_shape(modules: list[nn.Module]) -> ModelShape | None:
    """Return the shape of a model, of several their parameters alone; None without any.

    Layers and width are those of its configuration, else of its `nn.MultiheadAttention`s where they
    are all as wide. An encoder beside a decoder has lengths of its own: no layers are told then.
    """
    held = unique(tensor for module in modules for tensor in holdings(module))
    total = sum(tensor.elements for tensor in held if tensor.role == "parameter")
    if not total:
        return None
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
