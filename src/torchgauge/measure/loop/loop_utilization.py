"""The utilization of a loop's steps: FLOPs of recorded steps over the time of bare ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from torchgauge.analyze.statistics.median import median_interval
from torchgauge.analyze.work.recorded_products import typical_products
from torchgauge.analyze.work.utilization import (
    Products,
    StepContents,
    StepTime,
    peak_used,
    utilization,
)
from torchgauge.device.roofs import roofs as machine
from torchgauge.measure.work.model_shape import model_shape
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.work.utilization import Utilization


def loop_utilization(
    loop: Loop, steps: Sequence[Products], models: list[nn.Module], tokens: int | None
) -> Utilization | None:
    """Return the utilization of this process's device; `tokens` are those of a call of the model.

    `models` are those that the loop calls. None without bare steps or recorded products.
    """
    products, bare = typical_products(tuple(steps)), loop.bare
    if products is None or bare is None:
        return None
    device, settings = _device(), loop.environment.settings
    calls = loop.samples // loop.batch if loop.samples and loop.batch else None
    peak = peak_used(
        products,
        machine.datasheet(device),
        machine.known_roofs(device),
        (settings.fp32_matmul, settings.fp32_convolution),
    )
    return utilization(
        products,
        StepTime(bare, median_interval(Loop.durations_of(loop.stretches, "bare"))),
        peak,
        contents=StepContents(
            loop.samples, None if tokens is None or calls is None else tokens * calls
        ),
        shape=model_shape(models),
        backward=loop.by == "optimizer",
    )


def _device() -> str:
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "cpu"
    return f"cuda:{torch.cuda.current_device()}"
