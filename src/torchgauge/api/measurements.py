"""Measure one figure alone: latency or memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchgauge.api.preparation import measuring, prepared
from torchgauge.records.latency.latency import Latency
from torchgauge.records.memory.memory import Memory
from torchgauge.turn import turn

if TYPE_CHECKING:
    from torchgauge.targets.training.training import Training


def measure_latency(
    model_or_callable: Callable[..., Any],
    inputs: Any = None,
    *,
    train: Training | bool | None = None,
    warmup: int | None = None,
    iterations: int | None = None,
    processes: int | None = None,
    target_rel_error: float | None = None,
    budget: float | None = None,
    preprocess: Callable[[Any], Any] | None = None,
    postprocess: Callable[[Any], Any] | None = None,
    cold_cache: bool = False,
    percentile: float | None = None,
    device: str | None = None,
    progress: bool | None = None,
) -> Latency:
    """Time calls in this process and in fresh ones, and return the latency.

    Args:
        model_or_callable: The model, or any function.
        inputs: As `profile` takes them, or what `preprocess` takes.
        train: A training step to time instead of inference.
        warmup: Exactly so many calls are left out; None detects the end of the warm-up.
        iterations: Exactly so many calls after the warm-up, in this process unless `processes` is
            set.
        processes: Fresh processes to start; 1 is this one alone. None: as the budget allows.
        target_rel_error: A single process samples until its median is known to ± this (0.01).
        budget: Seconds of sampling in all (default 5; 30 for one process alone).
        preprocess: Makes the model's inputs from `inputs`, timed as a stage of an end-to-end
            latency.
        postprocess: Takes the outputs, timed likewise.
        cold_cache: Overwrite the last-level cache before each call.
        percentile: Sample until there are enough samples for the interval of this one (0.99).
        device: Where to run; None leaves the model where it is.
        progress: Show progress; None does so on a terminal.

    Ctrl-C returns what was measured, with `stop` "interrupted". Raises InputError for options that
    make no sense, MeasurementError where the call raises.
    """
    source, options = prepared(
        model_or_callable,
        inputs,
        train=train,
        warmup=warmup,
        iterations=iterations,
        processes=processes,
        target_rel_error=target_rel_error,
        budget=budget,
        preprocess=preprocess,
        postprocess=postprocess,
        cold_cache=cold_cache,
        percentile=percentile,
        device=device,
    )
    from torchgauge.measure.plan import measure_latency as measure

    with measuring(progress) as display:
        display.start("latency")
        return measure(source, options, display)


def measure_memory(
    model: Callable[..., Any],
    inputs: Any = None,
    *,
    train: Training | bool | None = None,
    device: str | None = None,
) -> Memory:
    """Measure the bytes of tensors alive during one step, and what the peak consists of.

    Raises MeasurementError where the step raises, memory runs out or another profiler is active.
    """
    source, options = prepared(model, inputs, train=train, device=device)
    from torchgauge.measure.forward import opened
    from torchgauge.measure.memory.memory import measure

    with turn():
        return measure(opened(source), train=options.train)
