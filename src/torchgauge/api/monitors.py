"""`monitor`: what a model's calls take where it really runs, from now on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchgauge.errors import InputError
from torchgauge.monitoring.call_times import CountTokens
from torchgauge.monitoring.delivery import Receiver
from torchgauge.monitoring.monitor import Monitor
from torchgauge.monitoring.monitor_options import MonitorOptions
from torchgauge.monitoring.receivers.history import HistoryReceiver
from torchgauge.monitoring.receivers.otlp import OtlpReceiver
from torchgauge.monitoring.receivers.trackers import FunctionReceiver, TrackerReceiver
from torchgauge.records.monitoring.window import Window


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
    history: str | None = None,
    otlp: str | None = None,
    gen_ai: bool = False,
    trackers: Sequence[str | Path] = (),
    on_windows: Callable[[tuple[Window, ...]], object] | None = None,
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
        folder: Where each process leaves a file with all that it recorded; by default `monitors`
            in TORCHGAUGE_STATE, else in `torchgauge` in the user's state.
        interval: Seconds between two writes of that file: what a killed process loses at most.
        window: Seconds of a window. When one ends it goes to all of the following.
        history: A history's file or URL, which gets the windows.
        otlp: The URL of an OTLP endpoint for metrics over HTTP, which gets the totals; needs the
            extra `otlp`.
        gen_ai: Whether OTLP's names are those of the conventions for generative AI.
        trackers: "wandb" or "mlflow", whose active run gets figures of the windows, or a folder for
            TensorBoard.
        on_windows: Called with the windows of this process, in a thread of its own.

    Returns:
        The monitor: a context manager that closes it, and a decorator.

    Raises:
        InputError: `monitor-option`, `monitor-target`; `no-run` without a tracker's run.
        MissingExtraError: A receiver's library is not installed.
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
    receivers: list[Receiver] = [TrackerReceiver(tracker) for tracker in trackers]
    if history is not None:
        receivers.append(HistoryReceiver(history))
    if otlp is not None:
        receivers.append(OtlpReceiver(otlp, gen_ai=gen_ai))
    if on_windows is not None:
        receivers.append(FunctionReceiver(on_windows))
    monitor = Monitor(options, count_tokens=tokens, receivers=receivers)
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
