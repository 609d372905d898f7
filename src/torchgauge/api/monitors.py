"""`monitor`: what a model's calls take where it really runs, from now on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchgauge.errors import InputError
from torchgauge.monitoring.call_times import CountTokens
from torchgauge.monitoring.monitor import Monitor
from torchgauge.monitoring.monitor_options import MonitorOptions


def monitor(
    model: Any = None,
    every: int = 1,
    name: str | None = None,
    *,
    layers: int = 1000,
    tokens: CountTokens | None = None,
    labels: Mapping[str, str] | None = None,
    folder: str | Path | None = None,
    interval: float = 1.0,
    window: float = 60.0,
) -> Monitor:
    """Monitor a model's calls from now on: latency, batch sizes, tokens, errors, layers, memory.

    The model stays what it was: outputs, state, copies, pickles, compiled code and wrappers. A call
    takes 0.3 µs longer.

    Args:
        model: An `nn.Module`. Without one, decorate functions with the monitor, time blocks with
            its `time`, or give it to the ASGI middleware.
        every: One call in so many is timed, drawn at random; all are counted, and all errors.
        name: The monitor's name; that of the model's class by default.
        layers: One call in so many has its layers timed, drawn at random; 0: none.
        tokens: Returns the tokens of a call: `tokens(args, kwargs, output)`. Without it they are
            estimated from calls whose token ids were looked at, padding included.
        labels: Further labels of all that is recorded.
        folder: Where each process leaves a file with all that it recorded; by default that of
            TORCHGAUGE_MONITOR_FOLDER, else `torchgauge/monitors` in the user's state.
        interval: Seconds between two writes of that file: what a killed process loses at most.
        window: Seconds of a window.

    Returns:
        The monitor: a context manager that closes it, and a decorator.

    Raises:
        InputError: `monitor-option`, `monitor-target`.
    """
    if name is None:
        if model is None:
            raise InputError(
                "A monitor without a model needs a name.",
                id="monitor-option",
                remedy='Call tg.monitor(name="…").',
            )
        name = type(model).__name__
    _check_module(model)
    options = MonitorOptions(
        name=name,
        every=every,
        layers=layers,
        interval=interval,
        window=window,
        folder=folder,
        labels=dict(labels or {}),
    )
    monitor = Monitor(options, count_tokens=tokens)
    if model is not None:
        monitor.attach(model)
    return monitor


def _check_module(model: Any) -> None:
    if model is None:
        return
    from torch import nn

    if not isinstance(model, nn.Module):
        raise InputError(
            f"tg.monitor takes an nn.Module, and not {type(model).__name__}.",
            id="monitor-target",
            cause="The calls of another object cannot be timed without changing it.",
            remedy='Decorate the function: predict = tg.monitor(name="predict")(predict).',
        )
