"""Counting a job on many devices in a process of its own, whose process group is fake."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchgauge.errors import MeasurementError
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.memory.simulated_step import StandIns, stand_ins
from torchgauge.measure.parallel.parallel_options import ParallelOptions
from torchgauge.measure.parallel.rank_count import ParallelSource
from torchgauge.measure.processes.fresh_folder import fresh_folder
from torchgauge.measure.processes.processes import ask
from torchgauge.progress import Progress
from torchgauge.records.parallel.parallel import Parallel
from torchgauge.signals import restoring
from torchgauge.targets.builds.source import Source
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.target import Target, TargetRequest
from torchgauge.targets.training.named_training import named_training
from torchgauge.targets.training.training import Training

SHOWN_EVERY = 0.5  # seconds


def count_requested(
    request: TargetRequest, options: ParallelOptions, progress: Progress
) -> Parallel:
    """Count a job whose model, or function that shards, is named as on the command line.

    Raises what loading and sharding raise, `loss-unknown`, and as `processes.ask`.
    """
    train = None
    if request.loss is not None:
        train = named_training(request.loss, None, precision=None, device="cpu")
    return _in_fresh_process(ParallelSource(request, options=options, train=train), progress)


def count_object(
    model: Any,
    inputs: Any,
    options: ParallelOptions,
    train: Training | None,
    progress: Progress,
) -> Parallel:
    """Count a job of a model of the caller's, which stays as it is, or of a function that shards.

    The model travels without values. Raises as `count_requested`.
    """
    target = Source.of_object(model, inputs, training=True).target
    module = module_of(model)
    if module is not None and isinstance(target, Target):
        without_values = StandIns(contextlib.nullcontext(), "meta")
        copy, copied_inputs = stand_ins(module, target.inputs, without_values)
        target = dataclasses.replace(target, model=copy, inputs=copied_inputs)
    return _in_fresh_process(ParallelSource(target, options=options, train=train), progress)


def _in_fresh_process(source: ParallelSource, progress: Progress) -> Parallel:
    progress.start("counting")
    with fresh_folder() as folder, _followed(folder / "progress", progress):
        source = dataclasses.replace(source, progress=folder / "progress")
        answer, interrupted = ask("parallel", source, LatencyOptions())
    if interrupted:
        raise KeyboardInterrupt
    if answer.parallel is None:
        raise MeasurementError(
            "A counting process ended without a record.",
            id="child-failed",
            remedy="Run it again; if it stays so, please report it.",
        )
    return answer.parallel


@restoring
def _followed(file: Path, progress: Progress) -> Iterator[None]:
    """Show what the counting process writes to a file, by a thread: nothing is measured here."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(SHOWN_EVERY):
            with contextlib.suppress(OSError):
                progress.update(file.read_text())

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
