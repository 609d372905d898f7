"""One measurement alone: latency, memory."""

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
    """Time calls in this process and in fresh ones, for `budget` seconds in all (6).

    `processes` is how many are to be started, 1 stands for this one alone, which then samples until
    its median is known to ±`target_rel_error` (±1 %) or the `budget` (30 s) is over. The interval's
    `scope` says how far it reaches.

    `preprocess` takes `inputs` as given and returns what the model takes; `postprocess` takes the
    outputs. Both are timed as stages, and the latency is then end to end. `cold_cache` pushes the
    last-level cache out before each call. `iterations` times exactly so many calls after the warm-
    up, in this process unless `processes` are given. With a `percentile` (0.99) sampling goes on
    until there are samples enough for its interval, within the budget. `device` None leaves the
    model where it is. Ctrl-C returns what was measured, with `stop` "interrupted".

    Raises InputError for options that make no sense, MeasurementError where the call raises.
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
