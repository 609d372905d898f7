"""Count what needs no clock: size and work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchgauge.api.preparation import require_torch
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.count import Count
from torchgauge.records.work.size import Size
from torchgauge.turn import turn


def measure_size(model: object) -> Size:
    """Count parameters, buffers and bytes, each tensor once; nothing is run.

    Raises InputError `not-a-module` for what has no parameters that could be counted.
    """
    require_torch()
    from torchgauge.measure.work.size import measure

    return measure(model)


def count_cost(model: Callable[..., Any], inputs: Any = None, *, backward: bool = False) -> Cost:
    """Count FLOPs and bytes of one call by layer and operator, from the shapes that it runs with.

    The model runs on the device where it is; on meta or fake tensors nothing is computed. If the
    code reads a value, which meta tensors do not have, a copy on the CPU with random values is
    counted (up to 4 GiB), with the warning `counted-on-cpu`. With `backward` the model is in
    training mode, else in evaluation mode, and a gradient of ones is sent into every differentiable
    output (no loss is counted). An operator without a formula is in `unknown`.

    Raises MeasurementError where the call raises.
    """
    require_torch()
    from torchgauge.measure.work.count import cost_of
    from torchgauge.targets.builds.source import Source

    with turn():
        return cost_of(Source.of_object(model, inputs, training=backward), backward=backward)


def count_request(
    target: str,
    *,
    inputs: tuple[str, ...] = (),
    weights: Path | None = None,
    batch: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    trust: bool = False,
    backward: bool = False,
    optimizer: str | None = None,
    loss: str | None = None,
    autocast: str | None = None,
    on: tuple[str, ...] = (),
) -> Count:
    """Do the same for a target as the command line names it, and count its size.

    `device` None means meta, and the CPU where the model cannot run there. With `backward` the
    memory of a training step is part of it, with `optimizer` ("adamw" if None), `loss` ("mean" or
    "file.py:function"; None is the one the model returns, else the mean of its outputs) and forward
    and loss under `autocast` ("bf16", "fp16"). `on` names devices of the datasheet table ("h100",
    "l4"), for which time and memory are estimated. Raises InputError `device-unknown`,
    `optimizer-unknown`, `loss-unknown`.
    """
    require_torch()
    from torchgauge.analyze.memory.training_memory import OPTIMIZER, optimizer_named
    from torchgauge.device.roofs import peaks
    from torchgauge.device.select import resolve
    from torchgauge.measure.work.count import CountOptions, count
    from torchgauge.targets.target import TargetRequest
    from torchgauge.targets.training.named_training import named_training

    request = TargetRequest(
        spec=target,
        inputs=inputs,
        weights=weights,
        batch=batch,
        device="meta" if device is None else resolve(device),
        precision=precision,
        trust=trust,
    )
    train = None
    if loss is not None:
        train = named_training(loss, None, precision=None, device=request.device)
    options = CountOptions(
        backward=backward,
        optimizer=optimizer_named(optimizer or OPTIMIZER),
        train=train,
        autocast=autocast,
        on=tuple(peaks.find(name) for name in on),
    )
    with turn():
        return count(request, options, fall_back=device is None)
