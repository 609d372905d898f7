"""`monitor`: what a model's calls take where it really runs, from now on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchgauge.errors import InputError
from torchgauge.monitoring.call_times import CountTokens
from torchgauge.monitoring.delivery import FunctionReceiver, Receiver
from torchgauge.monitoring.monitor import Monitor
from torchgauge.monitoring.monitor_options import MonitorOptions
from torchgauge.records.monitoring.window import Window

if TYPE_CHECKING:
    from torchgauge.analyze.history.alerts import Rule
    from torchgauge.analyze.monitoring.window_alerts import WindowRule

OnWindows = Callable[[tuple[Window, ...]], object]


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
    on_windows: OnWindows | None = None,
    buckets: Sequence[float] = (),
    alerts: str | Path | None = None,
) -> Monitor:
    """Monitor a model's calls from now on; the model stays what it was (docs/monitor.md).

    Args:
        model: An `nn.Module`; without one decorate functions, time blocks, or use the middleware.
        every: One call in so many is timed, drawn at random; all calls and errors are counted.
        name: The monitor's name; that of the model's class by default.
        layers: One call in so many has its layers timed, drawn at random; 0: none.
        tokens: Counts a call's tokens: `tokens(args, kwargs, output)`, else they are estimated.
        labels: Further labels of all that is recorded.
        folder: Where each process leaves its file; `monitors` in the user's state by default.
        interval: Seconds until all is in that file: the most that is lost where a signal ends it.
        window: Seconds of a window. When one ends, it goes to all of the following.
        history: A history's file or URL.
        otlp: The URL of an OTLP endpoint for metrics over HTTP; needs the extra `otlp`.
        gen_ai: Whether OTLP's names are those of the conventions for generative AI.
        trackers: "wandb" or "mlflow" with an active run, or a folder for TensorBoard.
        on_windows: Called with the windows of this process, in a thread of its own.
        buckets: Upper bounds of times on `/metrics`, in seconds; by default ten a decade.
        alerts: A file of alert rules (docs/alerts.md), whose limits are bounds, too.

    Returns:
        The monitor: a context manager that closes it, and a decorator.

    Raises:
        InputError: `monitor-option`, `monitor-target`, `no-run`, `alerts-invalid`, `file-missing`.
        MissingExtraError: A receiver's library is not installed.

    Examples:
        >>> import torch
        >>> import torchgauge as tg
        >>> model = torch.nn.Linear(4, 2)
        >>> with tg.monitor(model, name="linear", folder="monitors") as monitor:
        ...     outputs = [model(torch.ones(3, 4)) for _ in range(5)]
        >>> [window.count for window in monitor.totals() if window.series == "latency"]
        [5]
    """
    options = MonitorOptions(
        name=_name(model, name),
        every=every,
        layers=layers,
        interval=interval,
        window=window,
        folder=folder,
        labels=dict(labels or {}),
        buckets=buckets,
        rules=() if alerts is None else _rules(Path(alerts)),
    )
    receivers = list(_receivers(history, otlp, trackers, on_windows, gen_ai=gen_ai))
    monitor = Monitor(options, count_tokens=tokens, receivers=receivers)
    return monitor if model is None else monitor.attach(model)


def _name(model: Any, name: str | None) -> str:
    if model is not None:
        _check_module(model)
    elif name is None:
        raise InputError(
            "A monitor without a model needs a name.",
            id="monitor-option",
            remedy='Call tg.monitor(name="…").',
        )
    return type(model).__name__ if name is None else name


def _rules(path: Path) -> tuple[Rule | WindowRule, ...]:
    from torchgauge.history import rules

    return rules.read(path).all_rules


def _receivers(
    history: str | None,
    otlp: str | None,
    trackers: Sequence[str | Path],
    on_windows: OnWindows | None,
    *,
    gen_ai: bool,
) -> Iterator[Receiver]:
    # Imported where they are needed: a database's library takes half of the time of all imports.
    if trackers:
        from torchgauge.monitoring.receivers.trackers import TrackerReceiver

        yield from map(TrackerReceiver, trackers)
    if history is not None:
        from torchgauge.monitoring.receivers.history import HistoryReceiver

        yield HistoryReceiver(history)
    if otlp is not None:
        from torchgauge.monitoring.receivers.otlp import OtlpReceiver

        yield OtlpReceiver(otlp, gen_ai=gen_ai)
    if on_windows is not None:
        yield FunctionReceiver(on_windows)


def _check_module(model: Any) -> None:
    from torch import nn

    if not isinstance(model, nn.Module):
        raise InputError(
            f"tg.monitor takes an nn.Module, and not {type(model).__name__}.",
            id="monitor-target",
            cause="The calls of another object cannot be timed without changing it.",
            remedy='Decorate the function: predict = tg.monitor(name="predict")(predict).',
        )
