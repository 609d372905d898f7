"""A worker of the reference server: it loads the target and computes batches of its example."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import BinaryIO

import msgspec
import torch

from torchgauge.device import settings
from torchgauge.device.cpu import cores_granted
from torchgauge.device.select import open_device
from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.measure.description import describe
from torchgauge.measure.forward import running
from torchgauge.measure.processes.child_work import unpacked
from torchgauge.measure.step import Step, prepared
from torchgauge.records.finding import Failure
from torchgauge.serving.server.messages import BatchDone, WorkerReady
from torchgauge.targets.inputs.batching import with_batch
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.placement import Placement

# Calls of every batch size before the first request: the first ones allocate and compile.
WARMUP_CALLS = 3
# Past this many sizes only powers of two are warmed up.
WARMED_SIZES = 8


def serve(request: BinaryIO, max_batch: int, workers: int) -> None:
    """Say that the model is ready, then compute a batch for each size read, until the input ends.

    Answers are lines of JSON: `WorkerReady`, then a `BatchDone` each.
    """
    sizes, answers = _own_pipes()

    def say(answer: WorkerReady | BatchDone) -> None:
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()

    try:
        placement = _placement(request, workers)
        device = open_device(placement.device)
        with device.current(), prepared(placement) as step:
            steps = batch_steps(placement, step, max_batch)
            warm_up(steps)
            say(WorkerReady(target=describe(placement, training=False)))
            for line in sizes:
                say(_computed(steps[int(line) - 1], device.synchronize))
    except TorchgaugeError as error:
        say(WorkerReady(failure=Failure.from_error(error)))


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return standard input and output for our use; the model's prints go to standard error."""
    questions, answers = os.dup(0), os.dup(1)
    with contextlib.suppress(OSError), open(os.devnull) as empty:  # noqa: PTH123
        os.dup2(empty.fileno(), 0)
    os.dup2(2, 1)
    sys.stdout.flush()
    return os.fdopen(questions, "rb"), os.fdopen(answers, "wb")


def _placement(request: BinaryIO, workers: int) -> Placement:
    parent_settings = pickle.load(request)  # noqa: S301 - the parent wrote it
    settings.apply(parent_settings)
    source, *_ = unpacked(request)
    with running(source.device or "cpu", "Loading the model"):
        placement = source.open()
    settings.apply(parent_settings, once=True)
    if workers > 1:
        torch.set_num_threads(max(1, int(min(torch.get_num_threads(), cores_granted()) / workers)))
    return placement


def batch_steps(placement: Placement, step: Step, max_batch: int) -> list[Step]:
    """Return a step for every number of requests up to `max_batch`: one request is the example.

    The examples are stacked once; smaller batches are views of the largest.

    Raises InputError `not-batchable` where the example cannot be stacked.
    """
    if max_batch == 1:
        return [step]
    larger = (
        Step(replace(placement, inputs=inputs), None, step.modes)
        for inputs in stacked_inputs(placement.inputs, max_batch)
    )
    return [step, *larger]


def stacked_inputs(inputs: Inputs, max_batch: int) -> Iterator[Inputs]:
    """Yield the example stacked 2, 3, … `max_batch` times along its leading dimension.

    Raises InputError `not-batchable` where it has no one leading dimension.
    """
    sizes = {tensor.shape[0] if tensor.dim() else 0 for _, tensor in inputs.tensors()}
    try:
        rows = max(sizes, default=0)
        largest = with_batch(inputs, rows * max_batch)
    except InputError as error:
        raise InputError(
            "Requests for this target cannot be computed in batches.",
            id="not-batchable",
            cause=error.cause,
            remedy="Give max_batch=1, or inputs that all begin with the batch dimension.",
        ) from error
    for number in range(2, max_batch + 1):
        yield with_batch(largest, rows * number)


def warm_up(steps: list[Step]) -> None:
    """Call the steps of the small batches, of powers of two and of the largest.

    Raises what the model raises, and InputError `not-batchable` where it does so in a batch only.
    """
    numbers = set(range(1, min(len(steps), WARMED_SIZES) + 1)) | {len(steps)}
    numbers |= {2**power for power in range(len(steps).bit_length())}
    for number in sorted(numbers):
        try:
            for _ in range(WARMUP_CALLS):
                steps[number - 1].ready()
                steps[number - 1]()
        except TorchgaugeError as error:
            if number == 1:
                raise
            raise InputError(
                f"The model does not compute {number} requests at once.",
                id="not-batchable",
                cause=error.cause or error.message,
                remedy=f"Give max_batch={number - 1}, or a model that takes any batch size.",
            ) from error


def _computed(step: Step, synchronize: Callable[[], None]) -> BatchDone:
    step.ready()
    try:
        step()
        synchronize()
    except TorchgaugeError as error:
        return BatchDone(error=f"{error.message} {error.cause}")
    return BatchDone()
