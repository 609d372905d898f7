"""What every call needs first: torch, a source with options, a place for progress."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from torchgauge.errors import missing_extra
from torchgauge.progress import Progress
from torchgauge.progress import progress as progress_for
from torchgauge.signals import restoring
from torchgauge.turn import turn

if TYPE_CHECKING:
    from torchgauge.measure.latency.latency_options import LatencyOptions
    from torchgauge.targets.builds.source import Source
    from torchgauge.targets.training.training import Training


def require_torch() -> None:
    """Raise MissingExtraError where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise missing_extra("torch", "torch", "Measuring a model")


def prepared(
    model: Callable[..., Any],
    inputs: Any,
    *,
    device: str | None = None,
    precision: str | None = None,
    train: Training | bool | None = None,
    **options: Any,
) -> tuple[Source, LatencyOptions]:
    """Return a model as the source of measurements, and how to time it.

    A `percentile` among the options becomes the samples that it needs.
    """
    require_torch()
    from torchgauge.device.select import resolve
    from torchgauge.measure.latency.latency_options import LatencyOptions
    from torchgauge.targets.builds.source import Source
    from torchgauge.targets.training.training import Training

    training = Training.resolve(train)
    source = Source.of_object(
        model,
        inputs,
        device=None if device is None else resolve(device),
        precision=precision,
        training=training is not None,
    )
    return source, LatencyOptions(train=training, **timing_options(**options))


def timing_options(*, percentile: float | None = None, **options: Any) -> dict[str, Any]:
    """Leave out what is None, so that the defaults stand in one place."""
    if percentile is not None:
        from torchgauge.analyze.statistics.percentiles import samples_needed

        options["independent"] = samples_needed(percentile)
    return {name: value for name, value in options.items() if value is not None}


@restoring
def showing(choice: bool | None) -> Iterator[Progress]:
    """Show progress as chosen; None: where a terminal is there to see it."""
    display = progress_for(choice)
    try:
        yield display
    finally:
        display.close()


@restoring
def measuring(choice: bool | None) -> Iterator[Progress]:
    """Show progress as chosen, in this thread's turn to measure. Raises as `Turn.take`."""
    with showing(choice) as display, turn(display):
        yield display
