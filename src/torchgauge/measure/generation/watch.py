"""Watch a program that generates: `with tg.watch_generation(model) as watch:`.

Make the record of a watch of generation from its calls.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from torchgauge.analyze.findings.catalogue import findings
from torchgauge.analyze.generation.cells import cells
from torchgauge.analyze.generation.fits import fits
from torchgauge.device.environment import environment
from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.forks import Owner
from torchgauge.measure.description import describe_module
from torchgauge.measure.generation.call_watch import CallWatch
from torchgauge.measure.generation.forwards import ThreadForwards, timed
from torchgauge.measure.interrupts import Interrupts
from torchgauge.measure.recording import recording as other_profilers
from torchgauge.measure.work import size
from torchgauge.records.generation.call import GenerationCall
from torchgauge.records.generation.generation import Generation
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.work.size import Size
from torchgauge.signals import run_all
from torchgauge.turn import Turn

RUNNING = "a watch of generation without a record yet"
ROUNDS, CALLS = 31, 50


class GenerationWatch:
    """The context manager of `tg.watch_generation`; after the block it has the record of the calls.

    What was seen before an exception or Ctrl-C ends the block is kept.
    """

    def __init__(self, model: Any, *, assistant: Any = None) -> None:
        self._watch = CallWatch(model, assistant)
        self._turn = Turn(timeline=True)
        self._record: Generation | None = None
        self._owner = Owner()

    def __enter__(self) -> GenerationWatch:
        """Begin to watch, once no other thread measures. Raises as `Turn.take`."""
        self._turn.take()
        self._owner = Owner()
        try:
            self._watch.__enter__()
        except BaseException:  # Ctrl-C too: the turn must not stay taken
            self._turn.end()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Put the model back as it was, then make the record.

        The first Ctrl-C meanwhile is raised once that is done. Does nothing in a forked process.
        """
        if self._owner.in_fork:
            return
        try:
            with Interrupts() as interrupts:
                self._watch.__exit__(kind, error, trace)
                self._record = watch_record(
                    self._watch,
                    interrupted=isinstance(error, KeyboardInterrupt),
                    slowing=other_profilers.slowing(),
                )
        finally:  # of the model again, since a signal may have been faster
            run_all([lambda: self._watch.__exit__(kind, error, trace), self._turn.end])
        if interrupts.noted and error is None:
            raise KeyboardInterrupt

    @property
    def calls(self) -> tuple[GenerationCall, ...]:
        """The calls in order; inside the block those so far, for which it waits for a GPU."""
        return self._watch.calls

    @property
    def record(self) -> Generation:
        """The record of the calls. Raises InputError `watch-running` inside the block."""
        if self._record is None:
            raise InputError(
                "The watch of generation has no record yet.",
                id="watch-running",
                cause="It is made when the block ends.",
                remedy="Read it after the `with` block; `calls` has the calls so far.",
            )
        return self._record

    @property
    def warnings(self) -> tuple[MeasurementWarning, ...]:
        """What the reader must know."""
        return self.record.all_warnings

    def save(self, path: str | Path) -> Path:
        """Write the record as JSON and return the path."""
        return self.record.save(path)

    def __str__(self) -> str:
        return RUNNING if self._record is None else str(self._record)

    def __repr__(self) -> str:
        return f"<GenerationWatch: {RUNNING if self._record is None else repr(self._record)}>"

    def _repr_html_(self) -> str | None:
        return None if self._record is None else self._record._repr_html_()


class _Empty(nn.Module):
    """A model that does nothing with the arguments of a decode step."""

    def forward(self, input_ids: torch.Tensor, past_key_values: _EmptyCache) -> None:
        """Do nothing."""


class _EmptyCache:
    """A cache that answers as one of transformers does: from its first layer's keys."""

    def __init__(self) -> None:
        self.layers = [_EmptyLayer()]


class _EmptyLayer:
    def __init__(self) -> None:
        self.keys = torch.zeros(1, 1, 8, 1)
        self.is_initialized = True

    def get_seq_length(self) -> int:
        """Return the positions, as a layer of transformers does."""
        if not self.is_initialized or self.keys.numel() == 0:
            return 0
        return self.keys.shape[-2]


def timer_cost() -> float:
    """Return the seconds that timing adds to a forward on this machine now, the median of rounds.

    What recording two events on a GPU adds is not in it.
    """
    model, cache, of_thread = _Empty(), _EmptyCache(), ThreadForwards()
    ids = torch.zeros(1, 1, dtype=torch.long)
    added = []
    for _ in range(ROUNDS):
        bare = _turn_time(model, ids, cache)
        with timed(model, "model", of_thread):
            added.append(_turn_time(model, ids, cache) - bare)
        of_thread.ongoing.forwards.clear()
    return max(0.0, statistics.median(added))


def _turn_time(model: nn.Module, ids: torch.Tensor, cache: _EmptyCache) -> float:
    begin = time.perf_counter_ns()
    for _ in range(CALLS):
        model(input_ids=ids, past_key_values=cache)
    return (time.perf_counter_ns() - begin) * 1e-9 / CALLS


def watch_record(watch: CallWatch, *, interrupted: bool, slowing: Sequence[str] = ()) -> Generation:
    """Return the record of what a watch saw; `slowing` are profilers that were active with it."""
    calls = watch.calls
    shapes = cells(calls)
    generation = Generation(
        target=describe_module(watch.model),
        assistant=None if watch.assistant is None else describe_module(watch.assistant),
        environment=environment(),
        size=_size(watch.model),
        watched=True,
        cells=shapes,
        fits=fits(shapes),
        overhead=timer_cost(),
        interrupted=interrupted,
        warnings=tuple(_warnings(calls, watch.packed_forwards, slowing)),
    )
    return msgspec.structs.replace(generation, findings=findings(generation))


def _size(model: nn.Module) -> Size | None:
    try:
        return size.measure(model)
    except TorchgaugeError:  # of weights that are not made yet
        return None


def _warnings(
    calls: Sequence[GenerationCall], packed_forwards: int, slowing: Sequence[str]
) -> Iterator[MeasurementWarning]:
    for name in slowing:
        yield other_profilers.slowed(name, "generation")
    if packed_forwards:
        yield MeasurementWarning(
            id="continuous-batching",
            message=f"{packed_forwards:,} forwards of continuous batching (generate_batch) are in "
            "no call.",
            probe="generation",
            cause="Each computes prompts of some requests and steps of others at once: it is "
            "neither a prefill nor a decode step of one shape.",
            remedy="Watch generate(); generate_batch(…, record_timestamps=True) has the times of a "
            "request's tokens.",
        )
    if not calls and not packed_forwards:
        yield MeasurementWarning(
            id="no-generation-seen",
            message="No call of the model was seen.",
            probe="generation",
            cause="The block did not call this model, or a compiled function that contains it did.",
            remedy="Give the model that generates, and compile the model itself.",
        )
    yield from _device_warnings(calls)


def _device_warnings(calls: Sequence[GenerationCall]) -> Iterator[MeasurementWarning]:
    untimed = [call for call in calls if call.device != "cpu" and len(call.forwards)]
    if any(not call.forwards.device for call in untimed):
        yield MeasurementWarning(
            id="device-time-unknown",
            message="Device times of some calls are not known; theirs are those of the host.",
            probe="generation",
            cause="The model is on several devices, or its forwards were captured in a graph.",
        )
